//! One set of rights: commands, keys, channels and databases that go together.

use crate::catalog::Catalog;
use crate::permitted::Permitted;
use crate::request::{Databases, Denied, KeyUse, Reason, Request};
use crate::word::is_word;
use crate::wrong::Wrong;
use haypile_config::glob;
use std::collections::BTreeSet;

/// A set of rights. A call is permitted where all that it needs is in one and the same set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    permitted: Permitted,
    keys: Vec<KeyPattern>,
    /// Invariant: no pattern is there beside it.
    all_keys: bool,
    channels: Vec<Vec<u8>>,
    /// Invariant: no pattern is there beside it.
    all_channels: bool,
    /// The permitted databases; None for all.
    databases: Option<BTreeSet<u32>>,
}

/// A glob pattern of keys, and what may be done with those that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    to: KeyUse,
}

const READ_AND_WRITE: KeyUse = KeyUse { reads: true, writes: true };

impl KeyPattern {
    fn allows(&self, wanted: KeyUse) -> bool {
        (self.to.reads || !wanted.reads) && (self.to.writes || !wanted.writes)
    }

    fn describe(&self, out: &mut Vec<u8>) {
        out.extend(match (self.to.reads, self.to.writes) {
            (true, true) => &b"~"[..],
            (true, false) => b"%R~",
            _ => b"%W~",
        });
        out.extend(&self.pattern);
    }
}

impl Selector {
    /// Makes a selector without rights, but for all databases, and all channels where those of a fresh user are.
    pub(crate) fn new(all_channels: bool) -> Selector {
        Selector {
            permitted: Permitted::default(),
            keys: Vec::new(),
            all_keys: false,
            channels: Vec::new(),
            all_channels,
            databases: None,
        }
    }

    /// Applies one rule, of those that are about rights.
    pub(crate) fn apply(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), Wrong> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if rule.is_empty() {
            return Ok(());
        }
        if is("allkeys") || rule == b"~*" {
            (self.keys, self.all_keys) = (Vec::new(), true);
        } else if is("resetkeys") {
            (self.keys, self.all_keys) = (Vec::new(), false);
        } else if is("allchannels") || rule == b"&*" {
            (self.channels, self.all_channels) = (Vec::new(), true);
        } else if is("resetchannels") {
            (self.channels, self.all_channels) = (Vec::new(), false);
        } else if is("allcommands") || is("+@all") {
            self.permitted.set_all(true, catalog);
        } else if is("nocommands") || is("-@all") {
            self.permitted.set_all(false, catalog);
        } else if is("alldbs") {
            self.databases = None;
        } else if is("resetdbs") {
            self.databases = Some(BTreeSet::new());
        } else {
            return self.apply_with_argument(rule, catalog);
        }
        Ok(())
    }

    fn apply_with_argument(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), Wrong> {
        match rule {
            [b'+', rest @ ..] => self.permitted.apply(true, rest, catalog),
            [b'-', rest @ ..] => self.permitted.apply(false, rest, catalog),
            [b'~', pattern @ ..] => self.add_keys(pattern, READ_AND_WRITE),
            // As in Redis, whatever stands behind it.
            [b'%', ..] if self.all_keys => Err(Wrong::KeysBehindAll),
            [b'%', rest @ ..] => {
                let (pattern, to) = key_use(rest)?;
                self.add_keys(pattern, to)
            }
            [b'&', pattern @ ..] => self.add_channels(pattern),
            [b'd' | b'D', b'b' | b'B', b'=', ids @ ..] => self.add_databases(ids),
            _ => Err(Wrong::Syntax),
        }
    }

    fn add_keys(&mut self, pattern: &[u8], to: KeyUse) -> Result<(), Wrong> {
        if self.all_keys {
            return Err(Wrong::KeysBehindAll);
        }
        if !is_word(pattern) {
            return Err(Wrong::Syntax);
        }
        match self.keys.iter_mut().find(|other| other.pattern == pattern) {
            Some(other) => {
                other.to = KeyUse { reads: other.to.reads || to.reads, writes: other.to.writes || to.writes };
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), to }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), Wrong> {
        if self.all_channels {
            return Err(Wrong::ChannelsBehindAll);
        }
        if !is_word(pattern) {
            return Err(Wrong::Syntax);
        }
        if !self.channels.iter().any(|other| other == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    /// `db=0,1`: the first of these rules takes the right to all others away.
    fn add_databases(&mut self, ids: &[u8]) -> Result<(), Wrong> {
        let mut databases = self.databases.clone().unwrap_or_default();
        for id in ids.split(|&byte| byte == b',') {
            let is_number = !id.is_empty() && id.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(id).ok().filter(|_| is_number).ok_or(Wrong::Syntax)?;
            databases.insert(text.parse::<i32>().map_err(|_| Wrong::DatabaseRange)? as u32);
        }
        self.databases = Some(databases);
        Ok(())
    }

    /// Returns whether the selector permits everything.
    pub(crate) fn is_all(&self) -> bool {
        self.permitted.is_all() && self.all_keys && self.all_channels && self.databases.is_none()
    }

    pub(crate) fn check(&self, request: &impl Request) -> Result<(), Denied> {
        if !request.is_open() && !self.permitted.has(request.command(), request.first_argument()) {
            return Err(Denied { reason: Reason::Command, argument: 0 });
        }
        let denied = |reason: Reason, argument: Option<usize>| argument.map(|argument| Denied { reason, argument });
        denied(Reason::Key, self.denied_key(request))
            .or_else(|| denied(Reason::Channel, self.denied_channel(request)))
            .or_else(|| denied(Reason::Database, self.denied_database(request)))
            .map_or(Ok(()), Err)
    }

    /// The argument of the first key that is not permitted.
    fn denied_key(&self, request: &impl Request) -> Option<usize> {
        let mut denied = None;
        if !self.all_keys {
            request.keys(&mut |argument, key, wanted| {
                denied = Some(argument).filter(|_| !self.has_key(key, wanted));
                denied.is_none()
            });
        }
        denied
    }

    fn denied_channel(&self, request: &impl Request) -> Option<usize> {
        let mut denied = None;
        if !self.all_channels {
            request.channels(&mut |argument, channel, is_pattern| {
                denied = Some(argument).filter(|_| !self.has_channel(channel, is_pattern));
                denied.is_none()
            });
        }
        denied
    }

    fn denied_database(&self, request: &impl Request) -> Option<usize> {
        let mut denied = None;
        if self.databases.is_some() {
            request.databases(&mut |argument, databases| {
                denied = Some(argument).filter(|_| !self.has_databases(databases));
                denied.is_none()
            });
        }
        denied
    }

    fn has_key(&self, key: &[u8], wanted: KeyUse) -> bool {
        self.keys.iter().any(|pattern| pattern.allows(wanted) && glob::matches(&pattern.pattern, key, false))
    }

    /// Returns whether the selector permits to read every key, whatever its name.
    pub(crate) fn reads_every_key(&self) -> bool {
        let is_every = |pattern: &KeyPattern| pattern.to.reads && pattern.pattern == b"*";
        self.all_keys || self.keys.iter().any(is_every)
    }

    /// Returns whether the selector permits a channel. A pattern is permitted only as it stands: it would match
    /// channels that no rule names.
    pub(crate) fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let permits = |rule: &Vec<u8>| if is_pattern { rule == channel } else { glob::matches(rule, channel, false) };
        self.all_channels || self.channels.iter().any(permits)
    }

    fn has_databases(&self, wanted: Databases) -> bool {
        match (&self.databases, wanted) {
            (None, _) => true,
            (Some(_), Databases::All) => false,
            (Some(permitted), Databases::One(index)) => permitted.contains(&index),
        }
    }

    /// The patterns of keys, such as `~a* %R~b`.
    pub fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let mut text = Vec::new();
        for pattern in &self.keys {
            separate(&mut text);
            pattern.describe(&mut text);
        }
        text
    }

    /// The patterns of channels, such as `&a* &b`.
    pub fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let mut text = Vec::new();
        for pattern in &self.channels {
            separate(&mut text);
            text.push(b'&');
            text.extend(pattern);
        }
        text
    }

    /// The rules for commands, such as `-@all +get`.
    pub fn commands_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.permitted.describe(&mut text);
        text
    }

    /// The rule for databases, such as `db=0,1`; none where all are permitted.
    pub fn databases_text(&self) -> Option<Vec<u8>> {
        let databases = self.databases.as_ref()?;
        if databases.is_empty() {
            return Some(b"resetdbs".to_vec());
        }
        let ids: Vec<String> = databases.iter().map(u32::to_string).collect();
        Some(format!("db={}", ids.join(",")).into_bytes())
    }

    /// All rules, in the order in which ACL LIST shows them.
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        let keys = self.keys_text();
        if !keys.is_empty() {
            out.extend(keys);
            out.push(b' ');
        }
        if !self.all_channels {
            out.extend(b"resetchannels ");
        }
        let channels = self.channels_text();
        if !channels.is_empty() {
            out.extend(channels);
            out.push(b' ');
        }
        if let Some(databases) = self.databases_text() {
            out.extend(databases);
            out.push(b' ');
        }
        self.permitted.describe(out);
    }
}

fn separate(text: &mut Vec<u8>) {
    if !text.is_empty() {
        text.push(b' ');
    }
}

/// The pattern of a rule such as `R~pattern`, and what may be done with its keys.
fn key_use(rule: &[u8]) -> Result<(&[u8], KeyUse), Wrong> {
    let mut to = KeyUse::default();
    for (at, byte) in rule.iter().enumerate() {
        match byte {
            b'R' | b'r' if !to.reads => to.reads = true,
            b'W' | b'w' if !to.writes => to.writes = true,
            b'~' if to != KeyUse::default() => return Ok((&rule[at + 1..], to)),
            _ => return Err(Wrong::Syntax),
        }
    }
    // Redis takes a rule without a pattern as one for the key without a name.
    if to == KeyUse::default() { Err(Wrong::Syntax) } else { Ok((b"", to)) }
}
