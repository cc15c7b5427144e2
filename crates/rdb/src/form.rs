//! The forms of values: the number of each form of each type, and the version of the format that brought it.

use crate::event::Kind;

/// The form of a value. Redis's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    String = 0,
    List = 1,
    Set = 2,
    /// A sorted set with scores in digits.
    ZsetDigits = 3,
    Hash = 4,
    /// A sorted set with scores as eight bytes.
    Zset = 5,
    ModuleOld = 6,
    Module = 7,
    HashZipmap = 9,
    ListZiplist = 10,
    SetIntset = 11,
    ZsetZiplist = 12,
    HashZiplist = 13,
    /// A list of ziplists.
    ListQuicklist = 14,
    /// A stream of Redis 5.0.
    Stream1 = 15,
    HashListpack = 16,
    ZsetListpack = 17,
    /// A list of listpacks and single elements.
    ListQuicklist2 = 18,
    /// A stream of Redis 7.0.
    Stream2 = 19,
    SetListpack = 20,
    /// A stream of Redis 7.2.
    Stream3 = 21,
    /// Fields with deadlines, as release candidates of 7.4 wrote them.
    TimedHashEarly = 22,
    TimedHashListpackEarly = 23,
    TimedHash = 24,
    TimedHashListpack = 25,
    /// A stream of Redis 8.6, with the idempotent IDs of producers.
    Stream4 = 26,
    /// A stream of Redis 8.8, also with pending entries that have no consumer.
    Stream5 = 27,
}

/// All forms, with the type of value of each; `None` for data of modules.
const FORMS: [(Form, Option<Kind>); 27] = [
    (Form::String, Some(Kind::String)),
    (Form::List, Some(Kind::List)),
    (Form::Set, Some(Kind::Set)),
    (Form::ZsetDigits, Some(Kind::Zset)),
    (Form::Hash, Some(Kind::Hash)),
    (Form::Zset, Some(Kind::Zset)),
    (Form::ModuleOld, None),
    (Form::Module, None),
    (Form::HashZipmap, Some(Kind::Hash)),
    (Form::ListZiplist, Some(Kind::List)),
    (Form::SetIntset, Some(Kind::Set)),
    (Form::ZsetZiplist, Some(Kind::Zset)),
    (Form::HashZiplist, Some(Kind::Hash)),
    (Form::ListQuicklist, Some(Kind::List)),
    (Form::Stream1, Some(Kind::Stream)),
    (Form::HashListpack, Some(Kind::Hash)),
    (Form::ZsetListpack, Some(Kind::Zset)),
    (Form::ListQuicklist2, Some(Kind::List)),
    (Form::Stream2, Some(Kind::Stream)),
    (Form::SetListpack, Some(Kind::Set)),
    (Form::Stream3, Some(Kind::Stream)),
    (Form::TimedHashEarly, Some(Kind::TimedHash)),
    (Form::TimedHashListpackEarly, Some(Kind::TimedHash)),
    (Form::TimedHash, Some(Kind::TimedHash)),
    (Form::TimedHashListpack, Some(Kind::TimedHash)),
    (Form::Stream4, Some(Kind::IdempotentStream)),
    (Form::Stream5, Some(Kind::NackedStream)),
];

impl Form {
    pub fn of(number: u8) -> Option<Form> {
        FORMS.iter().map(|(form, _)| *form).find(|form| *form as u8 == number)
    }

    /// Returns the oldest version of the format that has the form, but none before Redis 5.0.
    pub(crate) fn version(self) -> u16 {
        match self as u8 {
            0..=15 => 9,
            16..=19 => 10,
            20..=21 => 11,
            22..=25 => 12,
            26 => 13,
            _ => 14,
        }
    }

    /// Tells whether this is a stream with the idempotent IDs of producers.
    pub(crate) fn has_producers(self) -> bool {
        matches!(self, Form::Stream4 | Form::Stream5)
    }

    /// Returns the type of the value; `None` for data of a module.
    pub fn kind(self) -> Option<Kind> {
        FORMS.iter().find(|(form, _)| *form == self).and_then(|(_, kind)| *kind)
    }
}
