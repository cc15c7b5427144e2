//! Words of rules.

/// Whether a rule can be written down and read again: the words of a line are separated by blanks.
pub(crate) fn is_word(bytes: &[u8]) -> bool {
    !bytes.iter().any(|&byte| byte.is_ascii_whitespace() || byte == 0x0b || byte == 0)
}
