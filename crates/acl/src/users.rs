//! All users of a server, and the lines that they are kept in.

use crate::catalog::Catalog;
use crate::user::{DEFAULT, Fresh, User, is_name, merge_parentheses};
use crate::wrong::Wrong;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A state of all users. A change makes another state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    by_name: BTreeMap<Arc<[u8]>, Arc<User>>,
}

/// The fault of a line about a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongLine {
    NoUser,
    Name(Vec<u8>),
    Parenthesis,
    Duplicate(Vec<u8>),
    Rule(Vec<u8>, Wrong),
}

impl WrongLine {
    /// The fault of a line of a configuration file, in a sentence.
    pub fn text(&self) -> String {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            WrongLine::NoUser => "there is no name behind 'user'".to_owned(),
            WrongLine::Name(name) => format!("spaces are not allowed in the name of a user: '{}'", shown(name)),
            WrongLine::Parenthesis => "Unmatched parenthesis in selector definition.".to_owned(),
            WrongLine::Duplicate(_) => Wrong::Duplicate.text().to_owned(),
            WrongLine::Rule(user, wrong) => {
                format!("Error in user declaration '{}': {}", shown(user), wrong.text())
            }
        }
    }

    /// The fault of a line of a file of users, as ACL LOAD tells it.
    pub fn text_in_file(&self, file: &str, line: usize) -> String {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            WrongLine::NoUser => format!("{file}:{line} should start with user keyword followed by the username. "),
            WrongLine::Name(name) => {
                format!("{file}:{line}: username '{}' contains invalid characters. ", shown(name))
            }
            WrongLine::Parenthesis => format!("{file}:{line}: Unmatched parenthesis in selector definition. "),
            WrongLine::Duplicate(name) => {
                format!("WARNING: Duplicate user '{}' found on line {line}. ", shown(name))
            }
            WrongLine::Rule(_, wrong) => format!("{file}:{line}: {}. ", wrong.text()),
        }
    }
}

impl Users {
    /// Makes the users of a fresh server: the default user alone, which may do everything.
    pub fn new(catalog: &Catalog) -> Users {
        let default = Arc::new(User::default_user(catalog));
        Users { by_name: BTreeMap::from([(default.name().clone(), default)]) }
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    pub fn default_user(&self) -> &Arc<User> {
        self.get(DEFAULT).expect("the default user is never removed")
    }

    /// All users, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// The number of users: at least one.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Puts a user in the place of the one of this name, if there is one.
    pub fn put(&mut self, user: User) {
        let user = Arc::new(user);
        self.by_name.insert(user.name().clone(), user);
    }

    /// Removes a user; whether it was there. The default user stays.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT && self.by_name.remove(name).is_some()
    }

    /// Returns a user with more rules, or a new one with these.
    ///
    /// # Errors
    /// The place of the first rule that is wrong, and why.
    pub fn with_rules<R: AsRef<[u8]>>(
        &self,
        name: &[u8],
        rules: &[R],
        catalog: &Catalog,
        fresh: Fresh,
    ) -> Result<User, (usize, Wrong)> {
        let mut user = self.get(name).map_or_else(|| User::new(name, fresh), |user| User::clone(user));
        user.apply_all(rules, catalog, fresh)?;
        Ok(user)
    }

    /// Makes the users of a configuration file out of the words behind `user`, each with `T`, where it stands. The
    /// default user is as it is here if no line is about it.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn with_lines<'a, T>(
        &self,
        lines: impl IntoIterator<Item = (&'a [Vec<u8>], T)>,
        catalog: &Catalog,
        fresh: Fresh,
    ) -> Result<Users, (T, WrongLine)> {
        let mut users = self.clone();
        let mut seen = HashSet::new();
        for (words, place) in lines {
            match made_of(words, catalog, fresh) {
                Ok(user) if !seen.insert(user.name().clone()) => {
                    return Err((place, WrongLine::Duplicate(user.name().to_vec())));
                }
                Ok(user) => users.put(user),
                Err(wrong) => return Err((place, wrong)),
            }
        }
        Ok(users)
    }

    /// Reads a file of users: lines of the form `user name rules`. Blank lines count for nothing.
    ///
    /// Words are cut as Redis cuts them, at every single blank: two blanks have an empty word between them, which is
    /// the name of a user behind `user`, and no rule behind the name.
    ///
    /// # Errors
    /// All lines that are wrong, by number from 1 on.
    pub fn parse(text: &[u8], catalog: &Catalog, fresh: Fresh) -> Result<Users, Vec<(usize, WrongLine)>> {
        let mut users = Users::new(catalog);
        let mut seen = HashSet::new();
        let mut wrong = Vec::new();
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            let line = trimmed(line, b" \t\r\n");
            if line.is_empty() {
                continue;
            }
            let words = line.split(|&byte| byte == b' ').enumerate();
            // Redis takes no such bytes off a name, which it refuses.
            let words = words.map(|(at, word)| if at < 2 { word } else { trimmed(word, b"\t\r\n") });
            let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
            let (keyword, words) = words.split_first().expect("a line that is split has a first word");
            if keyword != b"user" || words.is_empty() {
                wrong.push((number, WrongLine::NoUser));
                continue;
            }
            match made_of(words, catalog, fresh) {
                Ok(user) if !seen.insert(user.name().clone()) => {
                    wrong.push((number, WrongLine::Duplicate(user.name().to_vec())));
                }
                Ok(user) => users.put(user),
                Err(why) => wrong.push((number, why)),
            }
        }
        if wrong.is_empty() { Ok(users) } else { Err(wrong) }
    }

    /// The file that `parse` reads.
    pub fn file(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.iter() {
            text.extend(user.line());
            text.push(b'\n');
        }
        text
    }
}

/// The bytes without any of `ends` at either end.
fn trimmed<'a>(mut bytes: &'a [u8], ends: &[u8]) -> &'a [u8] {
    while let [rest @ .., last] = bytes
        && ends.contains(last)
    {
        bytes = rest;
    }
    while let [first, rest @ ..] = bytes
        && ends.contains(first)
    {
        bytes = rest;
    }
    bytes
}

/// Makes a user of its name and its rules.
fn made_of(words: &[Vec<u8>], catalog: &Catalog, fresh: Fresh) -> Result<User, WrongLine> {
    let (name, rules) = words.split_first().ok_or(WrongLine::NoUser)?;
    if !is_name(name) {
        return Err(WrongLine::Name(name.clone()));
    }
    let rules = merge_parentheses(rules).map_err(|_| WrongLine::Parenthesis)?;
    let mut user = User::new(name, fresh);
    user.apply_all(&rules, catalog, fresh).map_err(|(_, wrong)| WrongLine::Rule(name.clone(), wrong))?;
    Ok(user)
}
