//! The payload of DUMP: a value as it lies in a file, the version of the format, and a checksum over both.
//!
//! `form: u8 | value | version: u16 LE | CRC-64: u64 LE`.

use crate::checksum::Checksum;
use crate::error::{Error, Failure, Why};
use crate::event::{Kind, Part};
use crate::form::Form;
use crate::source::Slice;
use crate::value::{Elements, Reader};

/// Bytes behind the value.
pub const FOOTER_BYTES: usize = 10;

const CHECKSUM_BYTES: usize = 8;

/// A payload whose bytes are those that were written; its content is not checked.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    body: &'a [u8],
    pub version: u16,
    /// Whether the body goes on elsewhere.
    is_cut: bool,
}

impl<'a> Payload<'a> {
    /// Checks version and checksum.
    pub fn check(bytes: &'a [u8]) -> Result<Payload<'a>, Error> {
        let error = |why| Error { position: bytes.len() as u64, key: None, why };
        let Some((body, footer)) = bytes.split_last_chunk::<FOOTER_BYTES>() else { return Err(error(Why::Truncated)) };
        let version = u16::from_le_bytes([footer[0], footer[1]]);
        if version > crate::VERSION_MAX {
            return Err(error(Why::Version(version.into())));
        }
        let checksum = u64::from_le_bytes(footer[2..].try_into().expect("eight bytes"));
        if Checksum::default().and(&bytes[..bytes.len() - CHECKSUM_BYTES]).value() != checksum {
            return Err(error(Why::Checksum));
        }
        Ok(Payload { body, version, is_cut: false })
    }

    /// Takes the form of a value and its bytes, which come from elsewhere than a payload.
    pub fn unchecked(body: &'a [u8]) -> Payload<'a> {
        Payload { body, version: crate::VERSION, is_cut: false }
    }

    /// Takes the beginning of such bytes.
    pub(crate) fn beginning(body: &'a [u8]) -> Payload<'a> {
        Payload { is_cut: true, ..Payload::unchecked(body) }
    }

    /// Returns the bytes of the value as a source.
    fn source(&self, value: &'a [u8]) -> Slice<'a> {
        if self.is_cut { Slice::beginning(value) } else { Slice::new(value) }
    }

    /// Returns the form of the value, and its bytes.
    pub(crate) fn form(&self) -> Result<(Form, &'a [u8]), Error> {
        let error = |why| Error { position: 0, key: None, why };
        let (number, value) = self.body.split_first().ok_or_else(|| error(Why::Truncated))?;
        let form = Form::of(*number).ok_or_else(|| error(Why::Unsupported("a value of an unknown type")))?;
        Ok((form, value))
    }

    /// Returns the type of the value.
    pub fn kind(&self) -> Result<Kind, Error> {
        let (form, _) = self.form()?;
        let error = Error { position: 0, key: None, why: Why::Unsupported("the value is data of a module") };
        form.kind().ok_or(error)
    }

    /// Gives the parts of the value to `each`, and says how many elements it has: a value without any is none. Bytes
    /// behind the value are ignored, as in Redis. A long string is given in several parts.
    pub fn read<E>(&self, each: impl FnMut(Part<'_>) -> Result<(), E>) -> Result<Elements, Failure<E>> {
        let (form, value) = self.form()?;
        Reader::new(self.source(value)).value(form, each)
    }

    /// Reads like `read`, with all strings longer than `whole_bytes` piece by piece.
    pub(crate) fn read_in_pieces<E>(
        &self,
        whole_bytes: u64,
        each: impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<Elements, Failure<E>> {
        let (form, value) = self.form()?;
        Reader::new(self.source(value)).whole_up_to(whole_bytes).value(form, each)
    }
}

/// Makes a payload of a value.
pub(crate) fn seal(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    seal_in_place(&mut value, version);
    value
}

pub(crate) fn seal_in_place(value: &mut Vec<u8>, version: u16) {
    value.extend_from_slice(&version.to_le_bytes());
    let checksum = Checksum::default().and(value).value();
    value.extend_from_slice(&checksum.to_le_bytes());
}

/// The end of a payload whose value goes out in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seal(Checksum);

impl Seal {
    /// Adds the next bytes of the payload, from its form on.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = self.0.and(bytes);
    }

    /// Returns the bytes behind the value.
    pub fn end(mut self, version: u16) -> [u8; FOOTER_BYTES] {
        let version = version.to_le_bytes();
        self.add(&version);
        let mut footer = [0; FOOTER_BYTES];
        footer[..2].copy_from_slice(&version);
        footer[2..].copy_from_slice(&self.0.value().to_le_bytes());
        footer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_in_pieces_is_sealed_as_a_whole_one() {
        let value = b"\x00\x05stack";
        let mut pieces = Seal::default();
        value.chunks(3).for_each(|piece| pieces.add(piece));
        assert_eq!([&value[..], &pieces.end(11)].concat(), seal(value.to_vec(), 11));
    }

    #[test]
    fn a_payload_is_what_was_sealed() {
        let good = seal(b"\x00\x03hay".to_vec(), 10);
        let payload = Payload::check(&good).unwrap();
        assert_eq!((payload.version, payload.kind().unwrap()), (10, Kind::String));
        for len in 0..good.len() {
            assert!(Payload::check(&good[..len]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Payload::check(&bad).is_err(), "byte {at}");
        }
        assert!(Payload::check(&seal(b"\x00\x03hay".to_vec(), crate::VERSION_MAX + 1)).is_err());
        let module = seal(b"\x07\x00".to_vec(), 10);
        assert!(Payload::check(&module).unwrap().kind().is_err());
    }
}
