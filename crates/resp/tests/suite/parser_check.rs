//! Compares the parser with a plain model of it, on any input.
//!
//! The model reads a request from its start each time, knows nothing of earlier calls and copies everything; the parser
//! must come to the same result, at once and in any pieces. The fuzz target and the seeded test run this function.

use haypile_resp::parser::{UNAUTHENTICATED_ARGS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX};
use haypile_resp::{Limits, Parser, ProtocolError};

/// How many bytes of an input of [`check`] choose limits and sizes of pieces; the rest is what the client sends.
pub const CHOICE_BYTES: usize = 3;

/// A step over a client's bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    Wait,
    /// A number of bytes without a command.
    Empty(usize),
    /// A command: its size and arguments.
    Command(usize, Vec<Vec<u8>>),
    Error(ProtocolError),
}

/// Checks the parser on one input.
///
/// # Panics
/// If the parser and the model disagree.
pub fn check(input: &[u8]) {
    let Some((choice, data)) = input.split_at_checked(CHOICE_BYTES) else {
        return;
    };
    let limits = limits(choice[0]);
    let expected = expected(data, &limits);
    assert_eq!(parsed(data, &limits, &[data.len().max(1)]), expected, "at once");
    let pieces = [1 + usize::from(choice[1] & 15), 1 + usize::from(choice[2])];
    assert_eq!(parsed(data, &limits, &pieces), expected, "in pieces of {pieces:?}");
}

/// Limits small enough to be met by small inputs, and the default ones.
fn limits(choice: u8) -> Limits {
    let default = Limits::default();
    let of = |shift: u8, small: u64, medium: u64, default: u64| match choice >> shift & 3 {
        0 => small,
        1 => medium,
        _ => default,
    };
    Limits {
        bulk_bytes_max: of(0, 7, 300, default.bulk_bytes_max),
        multibulk_len_max: of(2, 3, 12, default.multibulk_len_max.into()) as u32,
        inline_bytes_max: of(4, 16, 40, default.inline_bytes_max.into()) as u32,
        request_bytes_max: of(6, 60, 500, default.request_bytes_max.into()) as u32,
        authenticated: choice.count_ones().is_multiple_of(2),
    }
}

/// Returns the model's steps over `data`, up to the first error or the end.
pub fn expected(data: &[u8], limits: &Limits) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = 0;
    loop {
        let step = model(&data[at..], limits);
        match step {
            Step::Empty(bytes) | Step::Command(bytes, _) => at += bytes,
            Step::Wait | Step::Error(_) => {
                steps.push(step);
                return steps;
            }
        }
        steps.push(step);
    }
}

/// Returns the parser's steps over `data` when it arrives in pieces of these sizes in turn.
fn parsed(data: &[u8], limits: &Limits, pieces: &[usize]) -> Vec<Step> {
    let mut parser = Parser::new(*limits);
    let mut steps = Vec::new();
    let mut args = Vec::new();
    let (mut at, mut arrived, mut needed_until) = (0, 0, 0);
    for piece in pieces.iter().cycle() {
        arrived = data.len().min(arrived + piece);
        loop {
            let buf = &data[at..arrived];
            let request = match parser.next(buf, &mut args) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    assert!(parser.needed() > 0);
                    assert!(parser.needed() <= limits.request_bytes_max as usize);
                    needed_until = arrived + parser.needed();
                    break;
                }
                Err(error) => {
                    steps.push(Step::Error(error));
                    return steps;
                }
            };
            assert!(arrived >= needed_until, "a request although more was needed");
            assert!(args.len() <= buf.len(), "an argument takes a byte at least");
            at += request.bytes();
            let args = request.args(buf, &args);
            steps.push(match request {
                haypile_resp::Request::Empty { bytes } => Step::Empty(bytes),
                _ => {
                    assert!(!args.is_empty());
                    Step::Command(request.bytes(), args.iter().map(<[u8]>::to_vec).collect())
                }
            });
        }
        if arrived == data.len() {
            break;
        }
    }
    steps.push(Step::Wait);
    steps
}

/// Returns the request at the start of `data`.
fn model(data: &[u8], limits: &Limits) -> Step {
    let room = limits.request_bytes_max as usize;
    let data = &data[..data.len().min(room)];
    match data.first() {
        None => Step::Wait,
        Some(b'*') => model_multibulk(data, limits).unwrap_or_else(|stop| stop),
        Some(_) => model_inline(data, limits).unwrap_or_else(|stop| stop),
    }
}

/// Returns the line at `at`, which ends with `end`; if there is none, the step instead. A line is searched as a C
/// string.
fn model_line<'a>(
    data: &'a [u8],
    at: usize,
    end: u8,
    limits: &Limits,
    too_long: ProtocolError,
) -> Result<&'a [u8], Step> {
    let line_max = limits.inline_bytes_max as usize;
    let visible = data[at..].split(|&byte| byte == 0).next().unwrap_or_default();
    match visible.iter().position(|&byte| byte == end) {
        Some(len) if len <= line_max => Ok(&visible[..len]),
        _ if data.len() - at > line_max => Err(Step::Error(too_long)),
        _ => Err(model_wait(data, limits)),
    }
}

fn model_wait(data: &[u8], limits: &Limits) -> Step {
    if data.len() == limits.request_bytes_max as usize {
        Step::Error(ProtocolError::RequestTooLarge)
    } else {
        Step::Wait
    }
}

fn model_multibulk(data: &[u8], limits: &Limits) -> Result<Step, Step> {
    let number = |line: &[u8]| -> Option<i64> {
        let text = std::str::from_utf8(&line[1..]).ok()?;
        let number: i64 = text.parse().ok()?;
        (number.to_string() == text).then_some(number)
    };
    let line = |at: usize, too_long| {
        let line = model_line(data, at, b'\r', limits, too_long)?;
        if at + line.len() + 2 > data.len() {
            return Err(model_wait(data, limits));
        }
        Ok(line)
    };

    let count_line = line(0, ProtocolError::CountLineTooLong)?;
    let count = number(count_line)
        .filter(|&count| count <= i64::from(limits.multibulk_len_max))
        .ok_or(Step::Error(ProtocolError::InvalidCount))?;
    if !limits.authenticated && count > i64::from(UNAUTHENTICATED_ARGS_MAX) {
        return Err(Step::Error(ProtocolError::UnauthenticatedCount));
    }
    let mut at = count_line.len() + 2;
    if count <= 0 {
        return Ok(Step::Empty(at));
    }
    let mut args = Vec::new();
    for _ in 0..count {
        let len_line = line(at, ProtocolError::LengthLineTooLong)?;
        if data[at] != b'$' {
            return Err(Step::Error(ProtocolError::ExpectedDollar(data[at])));
        }
        let len = number(len_line)
            .filter(|&len| len >= 0 && len as u64 <= limits.bulk_bytes_max)
            .ok_or(Step::Error(ProtocolError::InvalidLength))? as usize;
        if !limits.authenticated && len > UNAUTHENTICATED_BULK_BYTES_MAX as usize {
            return Err(Step::Error(ProtocolError::UnauthenticatedLength));
        }
        let start = at + len_line.len() + 2;
        if start + len + 2 > limits.request_bytes_max as usize {
            return Err(Step::Error(ProtocolError::RequestTooLarge));
        }
        if start + len + 2 > data.len() {
            return Err(Step::Wait);
        }
        args.push(data[start..start + len].to_vec());
        at = start + len + 2;
    }
    Ok(Step::Command(at, args))
}

fn model_inline(data: &[u8], limits: &Limits) -> Result<Step, Step> {
    let line = model_line(data, 0, b'\n', limits, ProtocolError::InlineTooLong)?;
    let bytes = line.len() + 1;
    let words = model_words(line).ok_or(Step::Error(ProtocolError::UnbalancedQuotes))?;
    Ok(if words.is_empty() { Step::Empty(bytes) } else { Step::Command(bytes, words) })
}

/// Splits a line into words, by a machine that sees one character after the other; `None` if the quotes are unbalanced.
fn model_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    enum State {
        Between,
        Word,
        Double,
        Single,
        Closed,
    }
    let space = |byte: u8| b" \t\n\x0b\x0c\r".contains(&byte);
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut state = State::Between;
    let mut rest = line;
    while let [byte, tail @ ..] = rest {
        let byte = *byte;
        rest = tail;
        if matches!(state, State::Between) && !space(byte) {
            words.push(Vec::new());
            state = State::Word;
        }
        let word = words.last_mut();
        match (&state, byte, word) {
            (State::Between, _, _) => {}
            (State::Closed, byte, _) if space(byte) => state = State::Between,
            (State::Closed, _, _) => return None,
            (State::Word, b' ' | b'\n' | b'\r' | b'\t', _) => state = State::Between,
            (State::Word, b'"', _) => state = State::Double,
            (State::Word, b'\'', _) => state = State::Single,
            (State::Double, b'"', _) | (State::Single, b'\'', _) => state = State::Closed,
            (State::Double, b'\\', Some(word)) if !rest.is_empty() => {
                let hex = rest
                    .get(1..3)
                    .filter(|_| rest[0] == b'x')
                    .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let (escaped, taken) = match (hex, rest[0]) {
                    (Some(byte), _) => (byte, 3),
                    (None, b'n') => (b'\n', 1),
                    (None, b'r') => (b'\r', 1),
                    (None, b't') => (b'\t', 1),
                    (None, b'b') => (8, 1),
                    (None, b'a') => (7, 1),
                    (None, other) => (other, 1),
                };
                word.push(escaped);
                rest = &rest[taken..];
            }
            (State::Single, b'\\', Some(word)) if rest.first() == Some(&b'\'') => {
                word.push(b'\'');
                rest = &rest[1..];
            }
            (_, byte, Some(word)) => word.push(byte),
            (_, _, None) => unreachable!("a word is open"),
        }
    }
    match state {
        State::Double | State::Single => None,
        State::Between | State::Word | State::Closed => Some(words),
    }
}
