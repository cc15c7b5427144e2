//! A user: how it logs in, and its sets of rights.
//!
//! A user is a value that never changes: a change of its rules makes another one, which sessions take when they look
//! again. So a call is always judged by one and the same state of the rules.

use crate::catalog::Catalog;
use crate::limits::Limits;
use crate::password::PasswordHash;
use crate::request::{Denied, Request};
use crate::selector::Selector;
use crate::word::is_word;
use crate::wrong::Wrong;
use std::sync::Arc;

/// The name of the user that connections have until they log in.
pub const DEFAULT: &[u8] = b"default";

/// The rights of a user that has just been made (`acl-pubsub-default`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fresh {
    pub all_channels: bool,
}

/// A user and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: Arc<[u8]>,
    enabled: bool,
    nopass: bool,
    /// Payloads of RESTORE are to be checked. They are in any case: the rule is only remembered.
    sanitizes: bool,
    /// The passwords without duplicates, in the order in which they were added.
    passwords: Vec<PasswordHash>,
    /// The rights that stand outside of parentheses.
    root: Selector,
    selectors: Vec<Selector>,
    limits: Limits,
    /// Invariant: it is set where one of the selectors permits everything.
    is_unrestricted: bool,
}

impl Default for User {
    /// A user without a name and without any rights.
    fn default() -> User {
        User::new(&[], Fresh::default())
    }
}

impl User {
    /// A user that may log in nowhere and run nothing.
    pub fn new(name: &[u8], fresh: Fresh) -> User {
        User {
            name: name.into(),
            enabled: false,
            nopass: false,
            sanitizes: true,
            passwords: Vec::new(),
            root: Selector::new(fresh.all_channels),
            selectors: Vec::new(),
            limits: Limits::default(),
            is_unrestricted: false,
        }
    }

    /// The default user of a server without any rules: it needs no password and may do everything.
    pub fn default_user(catalog: &Catalog) -> User {
        let mut user = User::new(DEFAULT, Fresh::default());
        for rule in [&b"+@all"[..], b"~*", b"&*", b"on", b"nopass"] {
            user.apply(rule, catalog, Fresh::default()).expect("the rules are right");
        }
        user
    }

    pub fn name(&self) -> &Arc<[u8]> {
        &self.name
    }

    /// Whether the user may log in.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether any password will do.
    pub fn needs_no_password(&self) -> bool {
        self.nopass
    }

    /// Whether connections that have not logged in may act as this user.
    pub fn is_open(&self) -> bool {
        self.enabled && self.nopass
    }

    /// Whether the user may log in with this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.enabled || self.nopass {
            return self.is_open();
        }
        let given = PasswordHash::of(password);
        // All of them are compared, so that the time does not tell which one it is.
        self.passwords.iter().fold(false, |found, hash| hash.is_same(&given) | found)
    }

    /// Whether the user may run every command with every argument.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether the user may make a call.
    ///
    /// # Errors
    /// The denial of the set of rights that came nearest.
    pub fn check(&self, request: &impl Request) -> Result<(), Denied> {
        self.find(request).map(|_| ())
    }

    /// Whether one of the sets of rights permits a call and to read every key.
    pub fn reads_every_key(&self, request: &impl Request) -> bool {
        self.all_selectors().any(|selector| selector.reads_every_key() && selector.check(request).is_ok())
    }

    /// The first set of rights that permits a call.
    fn find(&self, request: &impl Request) -> Result<&Selector, Denied> {
        let mut nearest: Option<Denied> = None;
        for selector in self.all_selectors() {
            match selector.check(request) {
                Ok(()) => return Ok(selector),
                Err(denied) => nearest = nearest.max(Some(denied)),
            }
        }
        Err(nearest.expect("a user has a root"))
    }

    /// Whether the user may be subscribed to a channel.
    pub fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_selectors().any(|selector| selector.has_channel(channel, is_pattern))
    }

    fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Applies rules in order.
    ///
    /// # Errors
    /// The first rule that is wrong, by its place, and why. The user is to be thrown away then.
    pub fn apply_all<R: AsRef<[u8]>>(
        &mut self,
        rules: &[R],
        catalog: &Catalog,
        fresh: Fresh,
    ) -> Result<(), (usize, Wrong)> {
        for (at, rule) in rules.iter().enumerate() {
            self.apply(rule.as_ref(), catalog, fresh).map_err(|wrong| (at, wrong))?;
        }
        Ok(())
    }

    /// Applies one rule; words that belong to one pair of parentheses are one.
    pub fn apply(&mut self, rule: &[u8], catalog: &Catalog, fresh: Fresh) -> Result<(), Wrong> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("nopass") => (self.nopass, self.passwords) = (true, Vec::new()),
            _ if is("resetpass") => (self.nopass, self.passwords) = (false, Vec::new()),
            _ if is("sanitize-payload") => self.sanitizes = true,
            _ if is("skip-sanitize-payload") => self.sanitizes = false,
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => *self = User { name: self.name.clone(), ..User::new(&[], fresh) },
            [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
            [b'#', digits @ ..] => self.add_password(PasswordHash::parse(digits).ok_or(Wrong::PasswordHash)?),
            [b'<', password @ ..] => self.remove_password(PasswordHash::of(password))?,
            [b'!', digits @ ..] => self.remove_password(PasswordHash::parse(digits).ok_or(Wrong::PasswordHash)?)?,
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::new(fresh.all_channels);
                for rule in inner.split(|&byte| byte == b' ') {
                    // Written down, it would be the last one.
                    if rule.ends_with(b")") {
                        return Err(Wrong::Syntax);
                    }
                    selector.apply(rule, catalog)?;
                }
                self.selectors.push(selector);
            }
            rule if self.limits.apply(rule)? => {}
            rule => self.root.apply(rule, catalog)?,
        }
        self.is_unrestricted = self.root.is_all() || self.selectors.iter().any(Selector::is_all);
        Ok(())
    }

    /// The user with this password and no other, or without need of any if it is empty: `requirepass`.
    pub fn with_only_password(&self, password: &[u8]) -> User {
        let mut user = User { nopass: password.is_empty(), passwords: Vec::new(), ..self.clone() };
        if !password.is_empty() {
            user.add_password(PasswordHash::of(password));
        }
        user
    }

    fn add_password(&mut self, hash: PasswordHash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.nopass = false;
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), Wrong> {
        let place = self.passwords.iter().position(|other| *other == hash).ok_or(Wrong::NoSuchPassword)?;
        self.passwords.remove(place);
        Ok(())
    }

    /// The flags, in the order in which ACL LIST and ACL GETUSER show them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitizes = if self.sanitizes { "sanitize-payload" } else { "skip-sanitize-payload" };
        [Some(if self.enabled { "on" } else { "off" }), self.nopass.then_some("nopass"), Some(sanitizes)]
            .into_iter()
            .flatten()
    }

    /// The hashes of the passwords, in hexadecimal digits.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(PasswordHash::to_string)
    }

    /// The rights outside of parentheses.
    pub fn root(&self) -> &Selector {
        &self.root
    }

    /// The limits of what the user's clients may take of a node.
    #[inline]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The rights in parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// The line of ACL LIST and of a file of users: `user name rules`. Applied to a fresh user, the rules make this
    /// one.
    pub fn line(&self) -> Vec<u8> {
        let mut line = [b"user ", &self.name[..]].concat();
        for word in self.flags() {
            line.push(b' ');
            line.extend(word.as_bytes());
        }
        for hash in self.passwords() {
            line.extend(b" #");
            line.extend(hash.as_bytes());
        }
        line.push(b' ');
        self.root.describe(&mut line);
        for selector in &self.selectors {
            line.extend(b" (");
            selector.describe(&mut line);
            line.push(b')');
        }
        if !self.limits.is_none() {
            line.push(b' ');
            line.extend(self.limits.text().as_bytes());
        }
        line
    }
}

/// Whether a user can have this name.
pub fn is_name(name: &[u8]) -> bool {
    is_word(name)
}

/// Makes one rule of the words that belong to one pair of parentheses, which clients and files may send apart.
///
/// # Errors
/// The place of the word that opens a parenthesis which nothing closes.
pub fn merge_parentheses<R: AsRef<[u8]>>(words: &[R]) -> Result<Vec<Vec<u8>>, usize> {
    let mut rules: Vec<Vec<u8>> = Vec::with_capacity(words.len());
    let mut opened = None;
    for (at, word) in words.iter().enumerate() {
        let word = word.as_ref();
        match opened {
            None => {
                opened = (word.starts_with(b"(") && !word.ends_with(b")")).then_some(at);
                rules.push(word.to_vec());
            }
            Some(_) => {
                let rule = rules.last_mut().expect("the word that opened it is there");
                rule.push(b' ');
                rule.extend(word);
                if word.ends_with(b")") {
                    opened = None;
                }
            }
        }
    }
    opened.map_or(Ok(rules), Err)
}
