//! Holds the decoder to its promises on any input; the fuzz target and the seeded test run this function.

use haypile_resp::decode::{DecodeError, Decoder};
use haypile_resp::{Protocol, Reply};

/// Decodes all of `input`, arriving in pieces of `piece` bytes; returns the replies, and the error that ends them.
pub fn decode_all(input: &[u8], piece: usize) -> (Vec<Reply>, Option<DecodeError>) {
    let mut decoder = Decoder::new();
    let mut replies = Vec::new();
    let (mut at, mut arrived) = (0, 0);
    while arrived < input.len() {
        arrived = input.len().min(arrived + piece);
        loop {
            match decoder.next(&input[at..arrived]) {
                Ok((taken, reply)) => {
                    at += taken;
                    match reply {
                        Some(reply) => replies.push(reply),
                        None => break,
                    }
                }
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

/// Checks the decoder on one input, of which the first byte chooses the size of the pieces.
///
/// # Panics
/// If the pieces matter, or if a decoded reply does not survive being encoded and decoded again.
pub fn check(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    let (replies, error) = decode_all(input, input.len().max(1));
    let in_pieces = decode_all(input, 1 + usize::from(choice & 15));
    assert_eq!((&replies, &error), (&in_pieces.0, &in_pieces.1));
    for reply in &replies {
        let mut encoded = Vec::new();
        reply.encode(Protocol::Resp3, &mut encoded);
        let (again, error) = decode_all(&encoded, encoded.len());
        assert_eq!(error, None, "{reply:?}");
        assert_eq!(again.len(), 1, "{reply:?}");
        let mut encoded_again = Vec::new();
        again[0].encode(Protocol::Resp3, &mut encoded_again);
        assert_eq!(encoded, encoded_again, "{reply:?}");
    }
}
