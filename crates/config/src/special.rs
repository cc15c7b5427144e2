//! Values of the directives that have rules of their own: save points, buffer limits, addresses, percentiles and the
//! like.
//!
//! Each parses the words of one line and prints the text of CONFIG GET, with Redis's error texts. `crate::value` holds
//! the plain kinds.

use crate::value::{Mode, Refusal, Value, bytes, lenient_integer};

/// A directive's kind that needs code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A directory that exists.
    Dir,
    /// Pairs of seconds and changes.
    Save,
    /// `<class> <hard> <soft> <seconds>`, any number of times.
    OutputBufferLimit,
    /// Three values from -2000 to 2000.
    OomScores,
    /// Classes of keyspace events.
    KeyspaceEvents,
    /// Up to sixteen addresses.
    Bind,
    /// Host and port, or `no one`.
    ReplicaOf,
    /// Percentiles from 0 to 100.
    Percentiles,
}

/// Bound of a client's pending replies. Zero means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The bytes above which the client is closed at once.
    pub hard_bytes: u64,
    /// The bytes above which, for `soft_seconds` on end, the client is closed.
    pub soft_bytes: u64,
    pub soft_seconds: u64,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// A host name, an address, or `*` (all of IPv4) or `::*` (all of IPv6), as written.
    pub address: String,
    /// Whether the address has a leading `-`: if it is not available, the start goes on.
    pub optional: bool,
}

/// Redis's `CONFIG_BINDADDR_MAX`.
const BIND_ADDRESSES_MAX: usize = 16;

/// Classes of clients, in the order in which their limits are printed. `slave` is the name that Redis prints.
const CLIENT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// Classes of keyspace events that `A` stands for, and the others, in the order in which Redis prints them.
const EVENTS_OF_A: &[u8] = b"g$lshzxetd";
const EVENTS_BESIDE_A: &[u8] = b"nKEm";

impl Special {
    pub(crate) fn takes_many_words(self) -> bool {
        !matches!(self, Special::Dir | Special::KeyspaceEvents)
    }

    pub(crate) fn parse(self, words: &[&[u8]], before: &Value, mode: Mode) -> Result<Value, Refusal> {
        match self {
            Special::Dir => match words {
                [dir] => Ok(Value::Text(dir.to_vec())),
                _ => Err("wrong number of arguments".into()),
            },
            Special::Save => save(words, before, mode),
            Special::OutputBufferLimit => limits(words, before),
            Special::OomScores => oom_scores(words),
            Special::KeyspaceEvents => keyspace_events(words),
            Special::Bind => match words {
                [b""] => Ok(Value::Words(Vec::new())),
                words if words.len() > BIND_ADDRESSES_MAX => Err("Too many bind addresses specified.".into()),
                words => Ok(owned(words)),
            },
            Special::ReplicaOf => replica_of(words),
            Special::Percentiles => percentiles(words),
        }
    }

    pub(crate) fn print(self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (Special::Dir | Special::KeyspaceEvents, Value::Text(text)) => text.clone(),
            (Special::Save | Special::OomScores, Value::Numbers(numbers)) => joined(numbers),
            (Special::OutputBufferLimit, Value::Numbers(numbers)) => {
                let classes = CLIENT_CLASSES.iter().zip(numbers.chunks_exact(3));
                let printed: Vec<String> = classes
                    .map(|(class, limit)| format!("{class} {} {} {}", limit[0] as u64, limit[1] as u64, limit[2]))
                    .collect();
                printed.join(" ").into()
            }
            (Special::Bind | Special::ReplicaOf, Value::Words(words)) => words.join(&b' '),
            (Special::Percentiles, Value::Percentiles(numbers)) => {
                let printed: Vec<String> = numbers.iter().map(|number| trimmed(*number)).collect();
                printed.join(" ").into()
            }
            (special, value) => unreachable!("{value:?} was not parsed by {special:?}"),
        }
    }

    pub(crate) fn expects(self) -> &'static str {
        match self {
            Special::Dir => "an existing directory",
            Special::Save => "pairs of seconds (1 or more) and changes (0 or more), or \"\" for none",
            Special::OutputBufferLimit => {
                "any number of <normal|replica|pubsub> <hard bytes> <soft bytes> <soft seconds>"
            }
            Special::OomScores => "three integers from -2000 to 2000",
            Special::KeyspaceEvents => "letters out of KEg$lshzxetdmnA, or \"\" for none",
            Special::Bind => "up to 16 addresses; a leading - makes one optional, \"\" means none",
            Special::ReplicaOf => "<host> <port>, or no one",
            Special::Percentiles => "numbers from 0 to 100, or \"\" for none",
        }
    }
}

fn owned(words: &[&[u8]]) -> Value {
    Value::Words(words.iter().map(|word| word.to_vec()).collect())
}

fn joined(numbers: &[i64]) -> Vec<u8> {
    let printed: Vec<String> = numbers.iter().map(i64::to_string).collect();
    printed.join(" ").into()
}

/// Parses save points. Lines of a file add up, from none when the first of them comes; `save ""` and CONFIG SET begin
/// anew.
fn save(words: &[&[u8]], before: &Value, mode: Mode) -> Result<Value, Refusal> {
    let refused = || Refusal::from("Invalid save parameters");
    if words == [b""] {
        return Ok(Value::Numbers(Vec::new()));
    }
    if !words.len().is_multiple_of(2) {
        return Err(refused());
    }
    let mut points = match (mode, before) {
        (Mode::LaterLine, Value::Numbers(points)) => points.clone(),
        _ => Vec::new(),
    };
    for pair in words.chunks_exact(2) {
        let seconds = lenient_integer(pair[0]).filter(|seconds| *seconds >= 1).ok_or_else(refused)?;
        let changes = lenient_integer(pair[1]).filter(|changes| *changes >= 0).ok_or_else(refused)?;
        points.extend([seconds, changes]);
    }
    Ok(Value::Numbers(points))
}

/// Parses limits, three numbers for each class. Classes that are not named keep theirs.
fn limits(words: &[&[u8]], before: &Value) -> Result<Value, Refusal> {
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut numbers = match before {
        Value::Numbers(numbers) if numbers.len() == 9 => numbers.clone(),
        _ => vec![0; 9],
    };
    for group in words.chunks_exact(4) {
        let class = client_class(group[0]).ok_or("Invalid client class specified in buffer limit configuration.")?;
        let seconds = lenient_integer(group[3]).filter(|seconds| *seconds >= 0);
        let (Some(hard), Some(soft), Some(seconds)) = (bytes(group[1]), bytes(group[2]), seconds) else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".into());
        };
        numbers[class * 3..class * 3 + 3].copy_from_slice(&[hard as i64, soft as i64, seconds]);
    }
    Ok(Value::Numbers(numbers))
}

fn client_class(name: &[u8]) -> Option<usize> {
    if name.eq_ignore_ascii_case(b"replica") {
        return Some(1);
    }
    CLIENT_CLASSES.iter().position(|class| class.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the limits of normal clients, replicas and subscribers, in this order.
pub(crate) fn limits_of(value: &Value) -> [Limit; 3] {
    let Value::Numbers(numbers) = value else {
        unreachable!("a client-output-buffer-limit is numbers");
    };
    std::array::from_fn(|class| Limit {
        hard_bytes: numbers[class * 3] as u64,
        soft_bytes: numbers[class * 3 + 1] as u64,
        soft_seconds: numbers[class * 3 + 2] as u64,
    })
}

/// Returns the limits with the names of their classes, as a file names them.
pub(crate) fn limits_by_class(value: &Value) -> impl Iterator<Item = (&'static str, Limit)> {
    ["normal", "replica", "pubsub"].into_iter().zip(limits_of(value))
}

/// Returns the addresses of a `bind` value.
pub(crate) fn addresses_of(value: &Value) -> Vec<Bind> {
    let Value::Words(words) = value else {
        unreachable!("bind is words");
    };
    let parse = |word: &Vec<u8>| {
        let text = String::from_utf8_lossy(word);
        match text.strip_prefix('-') {
            Some(address) => Bind { address: address.into(), optional: true },
            None => Bind { address: text.into(), optional: false },
        }
    };
    words.iter().map(parse).collect()
}

fn oom_scores(words: &[&[u8]]) -> Result<Value, Refusal> {
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let scores: Option<Vec<i64>> =
        words.iter().map(|word| lenient_integer(word).filter(|score| (-2000..=2000).contains(score))).collect();
    match scores {
        Some(scores) => Ok(Value::Numbers(scores)),
        None => Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into()),
    }
}

fn keyspace_events(words: &[&[u8]]) -> Result<Value, Refusal> {
    let [letters] = words else {
        return Err("wrong number of arguments".into());
    };
    let known = |letter: &u8| *letter == b'A' || EVENTS_OF_A.contains(letter) || EVENTS_BESIDE_A.contains(letter);
    if !letters.iter().all(known) {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into());
    }
    let all = letters.contains(&b'A') || EVENTS_OF_A.iter().all(|letter| letters.contains(letter));
    let mut printed = Vec::new();
    if all {
        printed.push(b'A');
    } else {
        printed.extend(EVENTS_OF_A.iter().filter(|letter| letters.contains(letter)));
    }
    printed.extend(EVENTS_BESIDE_A.iter().filter(|letter| letters.contains(letter)));
    Ok(Value::Text(printed))
}

fn replica_of(words: &[&[u8]]) -> Result<Value, Refusal> {
    let [host, port] = words else {
        return Err("wrong number of arguments".into());
    };
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Value::Words(Vec::new()));
    }
    match lenient_integer(port) {
        Some(0..=65535) => Ok(owned(words)),
        _ => Err("Invalid master port".into()),
    }
}

/// Returns the host and the port of a `replicaof` value; None for `no one`.
pub(crate) fn master_of(value: &Value) -> Option<(String, u16)> {
    let Value::Words(words) = value else { unreachable!("replicaof is words") };
    let [host, port] = &words[..] else { return None };
    let port = lenient_integer(port).and_then(|port| u16::try_from(port).ok()).expect("a port was parsed");
    Some((String::from_utf8_lossy(host).into_owned(), port))
}

fn percentiles(words: &[&[u8]]) -> Result<Value, Refusal> {
    if words == [b""] {
        return Ok(Value::Percentiles(Vec::new()));
    }
    let mut numbers = Vec::with_capacity(words.len());
    for word in words {
        let number =
            std::str::from_utf8(word).ok().and_then(|text| text.parse::<f64>().ok()).filter(|number| !number.is_nan());
        match number {
            Some(number) if (0.0..=100.0).contains(&number) => numbers.push(number),
            Some(_) => return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into()),
            None => return Err("Invalid latency-tracking-info-percentiles parameters".into()),
        }
    }
    Ok(Value::Percentiles(numbers))
}

/// Prints six decimals, without the zeros at the end.
fn trimmed(number: f64) -> String {
    let printed = format!("{number:.6}");
    printed.trim_end_matches('0').trim_end_matches('.').into()
}
