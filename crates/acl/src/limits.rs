//! Limits of what all clients of a user together may take of a node: an extension of the language of rules.
//!
//! `rate=OPS` (calls a second), `bandwidth=BYTES` (of requests and replies, a second), `memory=BYTES` (of connections)
//! and `connections=N`. Numbers of bytes may have a unit, as in `10mb`; 0 takes a limit away. The form is that of
//! `db=`, so that whoever splits a line of ACL LIST at its blanks finds one more word, and only where there is a limit.

use crate::wrong::Wrong;

/// The limits of a user; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Calls a second.
    pub rate: u64,
    /// Bytes of requests and replies a second.
    pub bandwidth: u64,
    /// Bytes that the connections take: requests that have not run, replies that have not left, queued commands.
    pub memory: u64,
    /// Connections at a time.
    pub connections: u64,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    /// Applies a rule; whether it is about a limit at all.
    ///
    /// # Errors
    /// The number of a limit is wrong.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<bool, Wrong> {
        let Some(at) = rule.iter().position(|&byte| byte == b'=') else { return Ok(false) };
        let (name, number) = (rule[..at].to_ascii_lowercase(), &rule[at + 1..]);
        let (limit, is_bytes) = match &name[..] {
            b"rate" => (&mut self.rate, false),
            b"bandwidth" => (&mut self.bandwidth, true),
            b"memory" => (&mut self.memory, true),
            b"connections" => (&mut self.connections, false),
            _ => return Ok(false),
        };
        let is_plain =
            number.first().is_some_and(u8::is_ascii_digit) && (is_bytes || number.iter().all(u8::is_ascii_digit));
        *limit = haypile_config::value::bytes(number).filter(|_| is_plain).ok_or(Wrong::Limit)?;
        Ok(true)
    }

    /// Returns the rules that make these limits, with a blank between each two.
    pub fn text(&self) -> String {
        let all = [
            ("rate", self.rate),
            ("bandwidth", self.bandwidth),
            ("memory", self.memory),
            ("connections", self.connections),
        ];
        let set = all.iter().filter(|(_, limit)| *limit > 0);
        set.map(|(name, limit)| format!("{name}={limit}")).collect::<Vec<_>>().join(" ")
    }
}
