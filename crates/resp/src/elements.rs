//! `Elements`: a list of bulk strings that is encoded while it is collected. Rows are looked at one by one and copied
//! once, without an allocation for each; bulk strings are the same in both protocols.

use crate::{Protocol, write};

/// The aggregate that the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Array,
    /// A set; in RESP2 an array.
    Set,
    /// Keys and values in turn. In RESP2 an array.
    Map,
    /// Arrays of two elements each. In RESP2 one array of all of them, in turn.
    Pairs,
}

/// Bulk strings, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elements {
    shape: Shape,
    count: usize,
    body: Vec<u8>,
    /// The places in the body of missing values, in order: the protocols write them differently.
    nulls: Vec<usize>,
    /// Whether the missing values are arrays.
    are_arrays: bool,
}

impl Elements {
    pub fn new(shape: Shape) -> Self {
        Elements { shape, count: 0, body: Vec::new(), nulls: Vec::new(), are_arrays: false }
    }

    /// Returns an empty list with room for `count` elements of about `bytes` each.
    pub fn with_capacity(shape: Shape, count: usize, bytes: usize) -> Self {
        const AROUND_BYTES: usize = 8;
        let body = Vec::with_capacity(count.saturating_mul(bytes + AROUND_BYTES));
        Elements { shape, count: 0, body, nulls: Vec::new(), are_arrays: false }
    }

    /// Takes `count` bulk strings that are encoded already, in `body`.
    pub fn encoded(shape: Shape, count: usize, body: Vec<u8>) -> Self {
        Elements { shape, count, body, nulls: Vec::new(), are_arrays: false }
    }

    /// Adds a bulk string.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        write::bulk(&mut self.body, bytes);
        self.count += 1;
    }

    /// Adds an element of another kind: `write` writes one that is the same in both protocols. Not for pairs.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.shape != Shape::Pairs, "pairs are bulk strings");
        write(&mut self.body);
        self.count += 1;
    }

    /// Adds an element that ends with a missing array: `write` writes the parts before it. Not beside missing strings.
    pub fn push_with_null_array(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.are_arrays || self.nulls.is_empty(), "what is missing is of one kind");
        self.push_with(write);
        self.are_arrays = true;
        self.nulls.push(self.body.len());
    }

    /// Adds a missing value.
    pub fn push_null(&mut self) {
        self.nulls.push(self.body.len());
        self.count += 1;
    }

    /// Returns the number of elements so far; of a map or of pairs, both elements of each count.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes of the encoded elements.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Removes all elements, for a command that runs again from the start.
    pub fn clear(&mut self) {
        self.count = 0;
        self.body.clear();
        self.nulls.clear();
    }

    pub(crate) fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        match self.shape {
            Shape::Array => write::array_len(out, self.count),
            Shape::Set => write::set_len(protocol, out, self.count),
            Shape::Map => write::map_len(protocol, out, self.count / 2),
            Shape::Pairs if protocol == Protocol::Resp3 => return self.encode_pairs(out),
            Shape::Pairs => write::array_len(out, self.count),
        }
        let mut from = 0;
        for &at in &self.nulls {
            out.extend_from_slice(&self.body[from..at]);
            match self.are_arrays {
                true => write::null_array(protocol, out),
                false => write::null(protocol, out),
            }
            from = at;
        }
        out.extend_from_slice(&self.body[from..]);
    }

    /// Writes an array of arrays of two. None of the elements is missing.
    fn encode_pairs(&self, out: &mut Vec<u8>) {
        debug_assert!(self.nulls.is_empty(), "pairs are whole");
        write::array_len(out, self.count / 2);
        let mut rest = &self.body[..];
        while !rest.is_empty() {
            let (first, second) = (bulk_bytes(rest), bulk_bytes(&rest[bulk_bytes(rest)..]));
            write::array_len(out, 2);
            out.extend_from_slice(&rest[..first + second]);
            rest = &rest[first + second..];
        }
    }
}

/// Bytes of the encoded bulk string at the start of `body`.
fn bulk_bytes(body: &[u8]) -> usize {
    let digits = body[1..].iter().take_while(|byte| byte.is_ascii_digit());
    let (mut line, mut length) = (1, 0);
    for digit in digits {
        length = length * 10 + usize::from(digit - b'0');
        line += 1;
    }
    line + 2 + length + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_those_of_the_protocol() {
        use crate::Reply;
        let mut elements = Elements::new(Shape::Array);
        elements.push_null();
        elements.push(b"a");
        elements.push_null();
        let expected = Reply::array([Reply::Null, Reply::bulk("a"), Reply::Null]);
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            elements.encode(protocol, &mut ours);
            expected.encode(protocol, &mut theirs);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn missing_arrays_are_those_of_the_protocol() {
        use crate::Reply;
        let mut elements = Elements::new(Shape::Array);
        elements.push_with_null_array(|out| write::array_len(out, 1));
        elements.push(b"a");
        elements.push_with_null_array(|out| {
            write::array_len(out, 2);
            write::bulk(out, b"b");
        });
        let expected = Reply::array([
            Reply::array([Reply::NullArray]),
            Reply::bulk("a"),
            Reply::array([Reply::bulk("b"), Reply::NullArray]),
        ]);
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            elements.encode(protocol, &mut ours);
            expected.encode(protocol, &mut theirs);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn pairs_are_arrays_of_their_own_in_resp3() {
        use crate::Reply;
        let mut elements = Elements::new(Shape::Pairs);
        for string in ["a", "", "a longer one", "\r\n$3"] {
            elements.push(string.as_bytes());
        }
        let bulks = |strings: &[&'static str]| strings.iter().copied().map(Reply::bulk).collect::<Vec<_>>();
        let flat = Reply::Array(bulks(&["a", "", "a longer one", "\r\n$3"]));
        let nested = Reply::array([Reply::Array(bulks(&["a", ""])), Reply::Array(bulks(&["a longer one", "\r\n$3"]))]);
        for (protocol, expected) in [(Protocol::Resp2, flat), (Protocol::Resp3, nested)] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            elements.encode(protocol, &mut ours);
            expected.encode(protocol, &mut theirs);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn it_is_what_a_reply_of_bulk_strings_is() {
        use crate::Reply;
        let bulks = || ["a", "", "\r\n"].map(Reply::bulk);
        let pairs = || vec![(Reply::bulk("k"), Reply::bulk("v"))];
        let cases = [
            (Shape::Array, &["a", "", "\r\n"][..], Reply::array(bulks())),
            (Shape::Set, &["a", "", "\r\n"][..], Reply::Set(bulks().into())),
            (Shape::Map, &["k", "v"][..], Reply::Map(pairs())),
        ];
        for (shape, strings, expected) in cases {
            let mut elements = Elements::new(shape);
            strings.iter().for_each(|string| elements.push(string.as_bytes()));
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                elements.encode(protocol, &mut ours);
                expected.encode(protocol, &mut theirs);
                assert_eq!(ours, theirs, "{shape:?}");
            }
        }
    }
}
