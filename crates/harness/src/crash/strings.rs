//! The writers' operations on strings.

use super::model::{Effect, Entry};
use super::writer::{Plan, Writer};
use crate::client::Reply;
use crate::clock::now_ms;

/// The largest string that a writer builds by APPEND and SETRANGE: several chunks.
const BIG_BYTES_MAX: usize = 200_000;
/// The longest life of a short-lived key.
pub(super) const MAYFLY_MS_MAX: u64 = 1500;

impl Writer {
    pub(super) fn set_to(&mut self, plan: &mut Plan, key: Vec<u8>, value: Vec<u8>) {
        let effect = Effect::Put((plan.database, key.clone()), Entry::text(&value));
        self.push(plan, vec![b"SET".to_vec(), key, value], Reply::ok(), vec![effect]);
    }

    pub(super) fn set(&mut self, plan: &mut Plan) {
        let (key, value) = (self.plain_key(), self.value());
        self.set_to(plan, key, value);
    }

    pub(super) fn mset(&mut self, plan: &mut Plan) {
        let mut command = vec![b"MSET".to_vec()];
        let mut effects = Vec::new();
        for _ in 0..self.random.between(2, 8) {
            let (key, value) = (self.plain_key(), self.value());
            effects.push(Effect::Put((plan.database, key.clone()), Entry::text(&value)));
            command.extend([key, value]);
        }
        self.push(plan, command, Reply::ok(), effects);
    }

    pub(super) fn count(&mut self, plan: &mut Plan) {
        let key = self.key("n", 30);
        let by = self.random.between(1, 9) as i64;
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let number: i64 = before.as_ref().map_or(0, |e| String::from_utf8_lossy(e.bytes()).parse().unwrap_or(0));
        let after = number + by;
        let entry = Entry { deadline: before.and_then(|e| e.deadline), ..Entry::text(after.to_string()) };
        let command = if by == 1 {
            vec![b"INCR".to_vec(), key]
        } else {
            vec![b"INCRBY".to_vec(), key, by.to_string().into_bytes()]
        };
        self.push(plan, command, Reply::Integer(after), vec![Effect::Put(place, entry)]);
    }

    pub(super) fn append(&mut self, plan: &mut Plan) {
        let key = self.key("big", 4);
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let old = before.as_ref().map_or(&[][..], Entry::bytes);
        if old.len() > BIG_BYTES_MAX {
            let command = vec![b"DEL".to_vec(), key];
            return self.push(plan, command, Reply::Integer(1), vec![Effect::Remove(place)]);
        }
        let mut piece = self.value();
        if self.random.percent(10) {
            piece.resize(20_000, b'+');
        }
        let value = [old, &piece].concat();
        let reply = Reply::Integer(value.len() as i64);
        let entry = Entry { deadline: before.as_ref().and_then(|e| e.deadline), ..Entry::text(value) };
        self.push(plan, vec![b"APPEND".to_vec(), key, piece], reply, vec![Effect::Put(place, entry)]);
    }

    pub(super) fn setrange(&mut self, plan: &mut Plan) {
        let key = self.key("big", 4);
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let mut value = before.as_ref().map_or_else(Vec::new, |e| e.bytes().to_vec());
        let offset = self.random.below(BIG_BYTES_MAX as u64) as usize;
        let piece = self.value();
        value.resize(value.len().max(offset + piece.len()), 0);
        value[offset..offset + piece.len()].copy_from_slice(&piece);
        let reply = Reply::Integer(value.len() as i64);
        let entry = Entry { deadline: before.and_then(|e| e.deadline), ..Entry::text(value) };
        let command = vec![b"SETRANGE".to_vec(), key, offset.to_string().into_bytes(), piece];
        self.push(plan, command, reply, vec![Effect::Put(place, entry)]);
    }

    /// Adds a command on a deadline, which no run reaches: set, moved, taken away.
    pub(super) fn deadline(&mut self, plan: &mut Plan) {
        let key = self.key("d", 60);
        let place = (plan.database, key.clone());
        let deadline = 4_102_444_800_000 + self.random.below(1_000_000);
        let text = deadline.to_string().into_bytes();
        let before = self.get(&place);
        match (self.random.below(4), before) {
            (0, Some(entry)) => {
                let effect = Effect::Put(place, Entry { deadline: Some(deadline), ..entry });
                self.push(plan, vec![b"PEXPIREAT".to_vec(), key, text], Reply::Integer(1), vec![effect]);
            }
            (1, Some(entry)) => {
                let had = i64::from(entry.deadline.is_some());
                let effect = Effect::Put(place, Entry { deadline: None, ..entry });
                self.push(plan, vec![b"PERSIST".to_vec(), key], Reply::Integer(had), vec![effect]);
            }
            (2, Some(entry)) => {
                let reply = Reply::Bulk(entry.bytes().to_vec());
                let effect = Effect::Put(place, Entry { deadline: Some(deadline), ..entry });
                self.push(plan, vec![b"GETEX".to_vec(), key, b"PXAT".to_vec(), text], reply, vec![effect]);
            }
            _ => {
                let value = self.value();
                let entry = Entry { deadline: Some(deadline), ..Entry::text(&value) };
                let command = vec![b"SET".to_vec(), key, value, b"PXAT".to_vec(), text];
                self.push(plan, command, Reply::ok(), vec![Effect::Put(place, entry)]);
            }
        }
    }

    pub(super) fn delete(&mut self, plan: &mut Plan) {
        let name = *self.random.pick(&["DEL", "DEL", "UNLINK", "GETDEL"]);
        let mut command = vec![name.as_bytes().to_vec()];
        let mut effects = Vec::new();
        let mut removed = 0;
        let mut value = Reply::NullBulk;
        let keys = if name == "GETDEL" { 1 } else { self.random.between(1, 5) };
        for _ in 0..keys {
            let key = if self.random.percent(90) { self.plain_key() } else { self.key("big", 4) };
            let place = (plan.database, key.clone());
            if !command.contains(&key)
                && let Some(entry) = self.get(&place)
            {
                removed += 1;
                value = Reply::Bulk(entry.bytes().to_vec());
            }
            effects.push(Effect::Remove(place));
            command.push(key);
        }
        let reply = if name == "GETDEL" { value } else { Reply::Integer(removed) };
        self.push(plan, command, reply, effects);
    }

    pub(super) fn rename(&mut self, plan: &mut Plan) {
        let class = if self.random.percent(80) { ("p", 1500) } else { ("big", 4) };
        let (from, to) = (self.key(class.0, class.1), self.key(class.0, class.1));
        self.rename_to(plan, from, to);
    }

    pub(super) fn rename_to(&mut self, plan: &mut Plan, from: Vec<u8>, to: Vec<u8>) {
        let (from_place, to_place) = ((plan.database, from.clone()), (plan.database, to.clone()));
        let only_if_new = self.random.percent(30);
        if self.get(&from_place).is_none() {
            let reply = Reply::Error(b"ERR no such key".to_vec());
            return self.push(plan, vec![b"RENAME".to_vec(), from, to], reply, vec![]);
        }
        if only_if_new && self.get(&to_place).is_some() {
            return self.push(plan, vec![b"RENAMENX".to_vec(), from, to], Reply::Integer(0), vec![]);
        }
        let effects = vec![Effect::Move(from_place, to_place)];
        let (name, reply) = if only_if_new { ("RENAMENX", Reply::Integer(1)) } else { ("RENAME", Reply::ok()) };
        self.push(plan, vec![name.as_bytes().to_vec(), from, to], reply, effects);
    }

    /// Adds a key that soon expires. No other operation touches it, because its result would depend on the time.
    pub(super) fn mayfly(&mut self, plan: &mut Plan) {
        let (key, value) = (self.key("m", 200), self.value());
        let deadline = now_ms() + self.random.between(30, MAYFLY_MS_MAX);
        let entry = Entry { deadline: Some(deadline), ..Entry::text(&value) };
        let effect = Effect::Put((plan.database, key.clone()), entry);
        let command = vec![b"SET".to_vec(), key, value, b"PXAT".to_vec(), deadline.to_string().into_bytes()];
        self.push(plan, command, Reply::ok(), vec![effect]);
    }

    pub(super) fn conditional(&mut self, plan: &mut Plan) {
        let (key, value) = (self.plain_key(), self.value());
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let put = Effect::Put(place, Entry::text(&value));
        if self.random.percent(50) {
            let absent = before.is_none();
            let effects = if absent { vec![put] } else { vec![] };
            self.push(plan, vec![b"SETNX".to_vec(), key, value], Reply::Integer(i64::from(absent)), effects);
        } else {
            let reply = before.map_or(Reply::NullBulk, |e| Reply::Bulk(e.bytes().to_vec()));
            self.push(plan, vec![b"GETSET".to_vec(), key, value], reply, vec![put]);
        }
    }

    pub(super) fn read(&mut self, plan: &mut Plan) {
        let key = match self.random.below(4) {
            0 => self.key("big", 4),
            1 => self.key("d", 60),
            _ => self.plain_key(),
        };
        let entry = self.get(&(plan.database, key.clone()));
        if self.random.percent(20) {
            let length = entry.map_or(0, |e| e.bytes().len() as i64);
            return self.push(plan, vec![b"STRLEN".to_vec(), key], Reply::Integer(length), vec![]);
        }
        let reply = entry.map_or(Reply::NullBulk, |e| Reply::Bulk(e.bytes().to_vec()));
        self.push(plan, vec![b"GET".to_vec(), key], reply, vec![]);
    }
}
