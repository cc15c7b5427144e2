//! The kinds of directives: bounds, the way from words to a value, and the text that CONFIG GET prints for a value.
//!
//! Kinds with rules of their own are in `special.rs`.

use crate::special::Special;
use crate::value::{Mode, Refusal, Value, bytes, human, integer, octal};

/// The type of a directive, with bounds and unit.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// `yes`; `no` is refused for this reason.
    OnlyYes(&'static str),
    /// A decimal integer between the two, both included. The unit is for people.
    Int { min: i64, max: i64, unit: &'static str },
    /// A decimal integer that is taken as far as 0 to 2147483647 and then moved between the two.
    Clamped { min: i64, max: i64, unit: &'static str },
    /// Bytes, with an optional unit: `k m g` are powers of 1000, `kb mb gb` powers of 1024.
    Bytes { min: u64, max: u64 },
    /// Bytes, or `N%` up to 100 % of something that the doc names.
    BytesOrPercent,
    /// Bytes of at least `min`, or `auto`: a share of the memory budget. 0 means `auto` where it cannot mean off.
    BytesOrAuto { min: u64, zero: Zero },
    /// An octal file mode of bits of `max`, those of `always` among them.
    Octal { always: u32, max: u32 },
    /// Any text that passes the check.
    Text(fn(&[u8]) -> Result<(), &'static str>),
    /// One of the names. Two names of one number are two spellings of one value; the first is printed.
    Choice(&'static [(&'static str, u32)]),
    /// A set of the names, as bits.
    Flags { names: &'static [(&'static str, u32)], check: fn(u32) -> Result<(), &'static str> },
    /// A value with rules of its own.
    Special(Special),
}

/// The meaning of 0 where `auto` is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    Off,
    Auto,
}

impl Kind {
    /// Tells whether several words make one value.
    pub fn takes_many_words(&self) -> bool {
        match self {
            Kind::Flags { .. } => true,
            Kind::Special(special) => special.takes_many_words(),
            _ => false,
        }
    }

    /// Parses the words after a directive's name. `before` is the value that is replaced, which some kinds add to.
    pub fn parse(&self, words: &[&[u8]], before: &Value, mode: Mode) -> Result<Value, Refusal> {
        if let Kind::Special(special) = self {
            return special.parse(words, before, mode);
        }
        if let Kind::Flags { names, check } = self {
            return parse_flags(names, *check, words);
        }
        let [word] = words else {
            return Err("wrong number of arguments".into());
        };
        match *self {
            Kind::Bool => {
                if word.eq_ignore_ascii_case(b"yes") {
                    Ok(Value::Bool(true))
                } else if word.eq_ignore_ascii_case(b"no") {
                    Ok(Value::Bool(false))
                } else {
                    Err("argument must be 'yes' or 'no'".into())
                }
            }
            Kind::OnlyYes(why) => match Kind::Bool.parse(words, before, mode)? {
                Value::Bool(false) => Err(why.into()),
                yes => Ok(yes),
            },
            Kind::Int { min, max, .. } => {
                let number = integer(word).ok_or("argument couldn't be parsed into an integer")?;
                if number < min || number > max {
                    return Err(between(min, max));
                }
                Ok(Value::Int(number))
            }
            Kind::Clamped { min, max, .. } => {
                let number = integer(word).ok_or("argument couldn't be parsed into an integer")?;
                if !(0..=i64::from(i32::MAX)).contains(&number) {
                    return Err(between(0, i32::MAX));
                }
                Ok(Value::Int(number.clamp(min, max)))
            }
            Kind::Bytes { min, max } => {
                let bytes = bytes(word).ok_or("argument must be a memory value")?;
                if bytes < min || bytes > max {
                    return Err(between(min, max));
                }
                Ok(Value::Bytes(bytes))
            }
            Kind::BytesOrPercent => parse_bytes_or_percent(word),
            Kind::BytesOrAuto { min, zero } => parse_bytes_or_auto(word, min, zero),
            Kind::Octal { always, max } => {
                let mode = octal(word).ok_or("argument couldn't be parsed as an octal number")?;
                match u32::try_from(mode) {
                    Ok(mode) if mode & always == always && mode & !max == 0 => Ok(Value::Octal(mode)),
                    _ if always == 0 => Err(format!("argument must be between 0 and {max:o} inclusive").into()),
                    _ => Err(format!("argument must be {always:o} or that with more bits of {max:o}").into()),
                }
            }
            Kind::Text(check) => {
                check(word)?;
                Ok(Value::Text(word.to_vec()))
            }
            Kind::Choice(names) => match number_of(names, word) {
                Some(number) => Ok(Value::Choice(number)),
                None => Err(one_of(names)),
            },
            Kind::Flags { .. } | Kind::Special(_) => unreachable!("both were parsed above"),
        }
    }

    /// Returns the value as CONFIG GET prints it.
    pub fn print(&self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (Kind::Special(special), value) => special.print(value),
            (_, Value::Bool(yes)) => if *yes { "yes" } else { "no" }.into(),
            (_, Value::Int(number)) => number.to_string().into(),
            (_, Value::Bytes(bytes)) => bytes.to_string().into(),
            (_, Value::Percent(percent)) => format!("{percent}%").into(),
            (_, Value::Auto) => "auto".into(),
            (_, Value::Octal(mode)) => format!("{mode:o}").into(),
            (_, Value::Text(text)) => text.clone(),
            (Kind::Choice(names), Value::Choice(number)) => name_of(names, *number).into(),
            (Kind::Flags { names, .. }, Value::Flags(bits)) => print_flags(names, *bits).into(),
            (kind, value) => unreachable!("{value:?} was not parsed by {kind:?}"),
        }
    }

    /// Returns the allowed values in words: the end of "'port' takes ...".
    pub fn expects(&self) -> String {
        match self {
            Kind::Bool => "yes or no".into(),
            Kind::OnlyYes(why) => format!("yes: {why}"),
            Kind::Int { min, max, unit } | Kind::Clamped { min, max, unit } => {
                let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
                match (*min, *max) {
                    (i64::MIN, i64::MAX) => format!("an integer{unit}"),
                    (min, i64::MAX) => format!("an integer from {min} up{unit}"),
                    (min, max) if max >= i64::from(i32::MAX) && min > i64::from(i32::MIN) => {
                        format!("an integer from {min} up{unit}")
                    }
                    (min, max) => format!("an integer from {min} to {max}{unit}"),
                }
            }
            Kind::Bytes { min, max } => match (*min, *max) {
                (0, _) => "a number of bytes, like 1048576, 1024kb, 1mb or 1gb".into(),
                (min, max) if max >= i64::MAX as u64 => format!("a number of bytes from {} up, like 64mb", human(min)),
                (min, max) => format!("a number of bytes from {} to {}", human(min), human(max)),
            },
            Kind::BytesOrPercent => "a number of bytes like 1gb, or a share from 0% to 100%".into(),
            Kind::BytesOrAuto { min, zero: Zero::Off } => {
                format!("auto, 0 for none, or a number of bytes from {} up, like 256mb", human(*min))
            }
            Kind::BytesOrAuto { min, zero: Zero::Auto } => {
                format!("auto, or a number of bytes from {} up, like 256mb", human(*min))
            }
            Kind::Octal { always: 0, max } => format!("an octal file mode from 0 to {max:o}, like 700"),
            Kind::Octal { always, max } => {
                format!("an octal file mode: {always:o} or that with more bits of {max:o}, like 640")
            }
            Kind::Text(_) => "one word; put it between quotes if it has blanks".into(),
            Kind::Choice(names) => format!("one of: {}", names_of(names)),
            Kind::Flags { names, .. } => format!("one or more of: {}", names_of(names)),
            Kind::Special(special) => special.expects().into(),
        }
    }
}

/// Takes any text.
pub(crate) fn any_text(_: &[u8]) -> Result<(), &'static str> {
    Ok(())
}

fn between(min: impl std::fmt::Display, max: impl std::fmt::Display) -> Refusal {
    format!("argument must be between {min} and {max} inclusive").into()
}

fn parse_bytes_or_percent(word: &[u8]) -> Result<Value, Refusal> {
    if let Some(bytes) = bytes(word)
        && bytes <= i64::MAX as u64
    {
        return Ok(Value::Bytes(bytes));
    }
    match word.strip_suffix(b"%").and_then(integer) {
        Some(percent @ 0..=100) => Ok(Value::Percent(percent as u32)),
        Some(percent) if percent > 100 => Err("percentage argument must be less or equal to 100".into()),
        _ => Err("argument must be a memory or percent value".into()),
    }
}

fn parse_bytes_or_auto(word: &[u8], min: u64, zero: Zero) -> Result<Value, Refusal> {
    if word.eq_ignore_ascii_case(b"auto") {
        return Ok(Value::Auto);
    }
    match (bytes(word), zero) {
        (None, _) => Err("argument must be 'auto' or a memory value".into()),
        (Some(0), Zero::Auto) => Ok(Value::Auto),
        (Some(0), Zero::Off) => Ok(Value::Bytes(0)),
        (Some(bytes), _) if bytes >= min => Ok(Value::Bytes(bytes)),
        (Some(_), _) => Err(between(min, u64::MAX)),
    }
}

fn parse_flags(
    names: &'static [(&'static str, u32)],
    check: fn(u32) -> Result<(), &'static str>,
    words: &[&[u8]],
) -> Result<Value, Refusal> {
    let mut bits = 0;
    for word in words {
        bits |= number_of(names, word).ok_or_else(|| one_of(names))?;
    }
    if words.is_empty() {
        return Err(one_of(names));
    }
    check(bits)?;
    Ok(Value::Flags(bits))
}

fn print_flags(names: &[(&'static str, u32)], bits: u32) -> String {
    if bits == 0 {
        return name_of(names, 0).into();
    }
    let set = names.iter().filter(|(_, bit)| *bit != 0 && bits & bit == *bit);
    set.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

fn number_of(names: &[(&str, u32)], word: &[u8]) -> Option<u32> {
    let found = names.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    found.map(|(_, number)| *number)
}

fn name_of(names: &[(&'static str, u32)], number: u32) -> &'static str {
    let found = names.iter().find(|(_, other)| *other == number);
    found.map_or("unknown", |(name, _)| name)
}

fn names_of(names: &[(&'static str, u32)]) -> String {
    names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn one_of(names: &[(&'static str, u32)]) -> Refusal {
    format!("argument(s) must be one of the following: {}", names_of(names)).into()
}
