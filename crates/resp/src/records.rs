//! `Records`: an array of elements that are arrays themselves, or not, encoded while it is collected. The encoding is
//! the same in both protocols but for two things, whose places are kept: numbers that have their digits already, and
//! missing arrays.

use crate::{Protocol, write};

/// An array that is encoded but for the parts that differ between the protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    count: usize,
    body: Vec<u8>,
    /// The places of those parts, in order.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The offset in the body.
    at: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The digits of a double of so many bytes follow, with the line's end: a bulk string in RESP2.
    Digits(usize),
    NullArray,
}

impl Records {
    pub fn new() -> Records {
        Records::default()
    }

    /// Begins the next element: an array of `len` parts, which come next.
    pub fn begin(&mut self, len: usize) {
        self.count += 1;
        self.array(len);
    }

    /// Adds a bulk string as the next element.
    pub fn push(&mut self, bytes: &[u8]) {
        self.count += 1;
        self.bulk(bytes);
    }

    /// Adds a missing array as the next element.
    pub fn push_null(&mut self) {
        self.count += 1;
        self.marks.push(Mark { at: self.body.len(), kind: Kind::NullArray });
    }

    /// Begins a part that is an array; its elements come next.
    pub fn array(&mut self, len: usize) {
        write::array_len(&mut self.body, len);
    }

    /// Adds a bulk string as a part.
    pub fn bulk(&mut self, bytes: &[u8]) {
        write::bulk(&mut self.body, bytes);
    }

    /// Adds an integer as a part.
    pub fn integer(&mut self, value: i64) {
        write::integer(&mut self.body, value);
    }

    /// Adds a double with these digits as a part.
    pub fn digits(&mut self, digits: &[u8]) {
        self.marks.push(Mark { at: self.body.len(), kind: Kind::Digits(digits.len()) });
        self.body.extend_from_slice(digits);
        self.body.extend_from_slice(b"\r\n");
    }

    /// Returns the number of elements so far.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes of the encoded elements, about.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(crate) fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        write::array_len(out, self.count);
        self.encode_elements(protocol, out);
    }

    /// Encodes the elements without the line that says how many they are, for an array that is sent piece by piece.
    pub fn encode_elements(&self, protocol: Protocol, out: &mut Vec<u8>) {
        out.reserve(self.body.len());
        let mut from = 0;
        for mark in &self.marks {
            out.extend_from_slice(&self.body[from..mark.at]);
            from = mark.at;
            match (mark.kind, protocol) {
                (Kind::Digits(len), Protocol::Resp2) => write::bulk_len(out, len),
                (Kind::Digits(_), Protocol::Resp3) => out.push(b','),
                (Kind::NullArray, _) => write::null_array(protocol, out),
            }
        }
        out.extend_from_slice(&self.body[from..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;

    #[test]
    fn it_is_what_a_reply_of_arrays_is() {
        let mut records = Records::new();
        records.begin(3);
        records.bulk(b"member");
        records.integer(-7);
        records.array(2);
        records.digits(b"1.5");
        records.digits(b"-0.25");
        records.push_null();
        records.push(b"alone");
        assert_eq!(records.len(), 3);
        let expected = Reply::array([
            Reply::array([
                Reply::bulk("member"),
                Reply::Integer(-7),
                Reply::array([Reply::Double(1.5), Reply::Double(-0.25)]),
            ]),
            Reply::NullArray,
            Reply::bulk("alone"),
        ]);
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            Reply::Records(records.clone()).encode(protocol, &mut ours);
            expected.encode(protocol, &mut theirs);
            assert_eq!(ours, theirs);
        }
    }
}
