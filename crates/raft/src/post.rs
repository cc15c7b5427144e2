//! The messages that clients publish on one member, on their way to the subscribers of another: beside those of Raft,
//! on the same connection. Nobody repeats one that is lost.

use crate::wire::{Envelope, FRONT_BYTES, WireError, seal, u32_at, u64_at};

/// The kind's number, behind those of Raft's messages.
const KIND: u8 = 13;
/// Bytes of a head: kind, whether the channel is a shard channel, two zeros, bytes of the channel, checksum of channel
/// and text.
const HEAD_BYTES: usize = 12;
/// The most bytes of channel and text: Raft's messages wait behind them.
const BYTES_MAX: u64 = 16 << 20;

/// A message on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post<'a> {
    pub is_shard: bool,
    pub channel: &'a [u8],
    pub text: &'a [u8],
}

/// A message that one member sends to another.
#[derive(Debug)]
pub enum Incoming<'a> {
    Envelope(Envelope),
    Post(Post<'a>),
}

impl<'a> Post<'a> {
    /// Appends the bytes of this message; false, and nothing, if it is too long to be sent.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let Post { is_shard, channel, text } = *self;
        let bytes = channel.len() as u64 + text.len() as u64;
        if bytes > BYTES_MAX {
            return false;
        }
        let at = out.len();
        out.extend_from_slice(&[0; FRONT_BYTES]);
        out.extend_from_slice(&[KIND, u8::from(is_shard), 0, 0]);
        out.extend_from_slice(&(channel.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc_of(channel, text).to_le_bytes());
        seal(&mut out[at..], bytes);
        out.extend_from_slice(channel);
        out.extend_from_slice(text);
        true
    }

    fn decode(bytes: &'a [u8]) -> Result<Option<(Post<'a>, usize)>, WireError> {
        let Some((head, behind)) = bytes.split_at_checked(FRONT_BYTES + HEAD_BYTES) else { return Ok(None) };
        if crc32fast::hash(&head[4..]) != u32_at(head, 0) {
            return Err(WireError("a wrong checksum of a head"));
        }
        let length = u64_at(head, 8);
        let (front, head) = head.split_at(FRONT_BYTES);
        debug_assert_eq!(u32_at(front, 4) as usize, HEAD_BYTES);
        let channel_bytes = u64::from(u32_at(head, 4));
        if head[0] != KIND || head[1] > 1 || head[2..4] != [0, 0] || length > BYTES_MAX || channel_bytes > length {
            return Err(WireError("a head with impossible fields"));
        }
        let Some(texts) = behind.get(..length as usize) else { return Ok(None) };
        let (channel, text) = texts.split_at(channel_bytes as usize);
        if crc_of(channel, text) != u32_at(head, 8) {
            return Err(WireError("a message of a channel that is damaged"));
        }
        Ok(Some((Post { is_shard: head[1] == 1, channel, text }, FRONT_BYTES + HEAD_BYTES + texts.len())))
    }
}

fn crc_of(channel: &[u8], text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(channel);
    hasher.update(text);
    hasher.finalize()
}

impl<'a> Incoming<'a> {
    /// Reads what stands at the beginning of `bytes`, and how many they are; None if there is more to come.
    ///
    /// # Errors
    /// No member sends these bytes, whatever follows.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Incoming<'a>, usize)>, WireError> {
        let is_post = bytes.len() >= FRONT_BYTES && u32_at(bytes, 4) as usize == HEAD_BYTES;
        if is_post {
            return Ok(Post::decode(bytes)?.map(|(post, length)| (Incoming::Post(post), length)));
        }
        Ok(Envelope::decode(bytes)?.map(|(envelope, length)| (Incoming::Envelope(envelope), length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(post: Post<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(post.encode(&mut bytes));
        bytes
    }

    #[test]
    fn a_message_that_would_hold_up_raft_is_not_sent() {
        let (mut bytes, text) = (Vec::new(), vec![0; BYTES_MAX as usize]);
        assert!(!Post { is_shard: false, channel: b"c", text: &text }.encode(&mut bytes) && bytes.is_empty());
        assert!(Post { is_shard: false, channel: b"", text: &text }.encode(&mut bytes));
        assert!(matches!(Incoming::decode(&bytes), Ok(Some((Incoming::Post(_), length))) if length == bytes.len()));
    }

    #[test]
    fn a_message_of_a_channel_reads_back_and_no_beginning_of_it_does() {
        let posts = [
            Post { is_shard: false, channel: b"channel", text: b"text" },
            Post { is_shard: true, channel: b"", text: b"" },
            Post { is_shard: true, channel: b"c", text: &[7; 100_000] },
        ];
        for post in posts {
            let bytes = bytes_of(post);
            assert!(matches!(
                Incoming::decode(&bytes),
                Ok(Some((Incoming::Post(read), length))) if read == post && length == bytes.len()
            ));
            for cut in (0..bytes.len()).step_by(1 + bytes.len() / 100) {
                assert!(matches!(Incoming::decode(&bytes[..cut]), Ok(None)), "{cut}");
            }
        }
    }

    #[test]
    fn a_message_of_a_channel_with_a_flipped_bit_is_refused() {
        let whole = bytes_of(Post { is_shard: false, channel: b"channel", text: b"text" });
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Another length of the head makes it a message of Raft, which is longer.
            let decoded = Incoming::decode(&bytes);
            assert!(decoded.is_err() || matches!(decoded, Ok(None)) && (4..16).contains(&(bit / 8)), "bit {bit}");
        }
    }
}
