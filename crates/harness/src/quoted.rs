//! Arguments as redis-cli reads and prints them: bare where that is possible, else in double quotes with `\n`, `\"` and
//! `\xHH`. redis-cli (and the inline command parser of a server) reads the output of `quote` back to the same bytes.

/// Returns one argument, quoted if necessary.
pub fn quote(bytes: &[u8]) -> String {
    let bare = !bytes.is_empty() && bytes.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\#".contains(b));
    if bare {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for &byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(byte as char),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('"');
    out
}

/// Returns a command as one line.
pub fn quote_all(arguments: &[Vec<u8>]) -> String {
    arguments.iter().map(|a| quote(a)).collect::<Vec<_>>().join(" ")
}

/// Returns a command as one line for a terminal: an argument longer than 60 bytes is cut, with its length and a
/// checksum.
pub fn quote_short(arguments: &[Vec<u8>]) -> String {
    arguments.iter().map(|a| abbreviate(a)).collect::<Vec<_>>().join(" ")
}

/// Returns one argument or value for a terminal.
pub fn abbreviate(bytes: &[u8]) -> String {
    if bytes.len() <= 60 {
        return quote(bytes);
    }
    format!("{}...({} bytes, hash {:08x})", quote(&bytes[..24]), bytes.len(), hash(bytes) as u32)
}

/// Returns the FNV-1a hash, to tell long values apart at a glance.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the arguments of a line, as redis-cli splits it; `None` if quotes are unbalanced.
pub fn split(line: &str) -> Option<Vec<Vec<u8>>> {
    let bytes = line.as_bytes();
    let mut arguments = Vec::new();
    let mut at = 0;
    loop {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let Some(&first) = bytes.get(at) else {
            return Some(arguments);
        };
        let mut argument = Vec::new();
        if first == b'"' {
            at = split_quoted(bytes, at + 1, &mut argument)?;
        } else {
            while let Some(byte) = bytes.get(at).filter(|b| !b.is_ascii_whitespace()) {
                argument.push(*byte);
                at += 1;
            }
        }
        arguments.push(argument);
    }
}

/// Reads up to the closing quote; returns the position after it.
fn split_quoted(bytes: &[u8], mut at: usize, argument: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (*bytes.get(at)?, bytes.get(at + 1)) {
            (b'"', _) => return Some(at + 1),
            (b'\\', Some(b'x')) => {
                let digits = std::str::from_utf8(bytes.get(at + 2..at + 4)?).ok()?;
                argument.push(u8::from_str_radix(digits, 16).ok()?);
                at += 4;
            }
            (b'\\', Some(escaped)) => {
                argument.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                at += 2;
            }
            (byte, _) => {
                argument.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        let arguments = vec![b"SET".to_vec(), all, b"".to_vec(), b"a b".to_vec(), b"#x".to_vec(), b"it's".to_vec()];
        assert_eq!(split(&quote_all(&arguments)), Some(arguments));
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        assert_eq!(split("SET \"a"), None);
    }
}
