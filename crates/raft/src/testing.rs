//! The checks of bytes from a member that may lie, for fuzz targets and seeded tests.

use crate::configuration::Configuration;
use crate::post::Incoming;
use crate::wire::{FRONT_BYTES, seal, travels};

/// Reads `data` as messages, as messages with the right checksums, as the record of a change of members, and as the
/// text in it.
///
/// # Panics
/// A message or a configuration does not encode to the bytes that it was read from, or holds what none may.
pub fn check_bytes(data: &[u8]) {
    check_stream(data);
    check_stream(&forged(data));
    check_configuration(data);
}

/// Returns a message of the head and the records that `data` gives, with their right lengths and checksums.
fn forged(data: &[u8]) -> Vec<u8> {
    let Some((&[low, high], rest)) = data.split_first_chunk() else { return Vec::new() };
    let (head, records) = rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
    let mut bytes = [&[0; FRONT_BYTES], head].concat();
    seal(&mut bytes, records.len() as u64);
    bytes.extend_from_slice(records);
    bytes
}

fn check_stream(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((incoming, bytes))) = Incoming::decode(rest) {
        let mut again = Vec::new();
        match &incoming {
            Incoming::Envelope(envelope) => envelope.encode(&mut again),
            Incoming::Post(post) => assert!(post.encode(&mut again), "it has come"),
        }
        assert_eq!(again, rest[..bytes], "a message has one form");
        rest = &rest[bytes..];
        let Incoming::Envelope(envelope) = incoming else { continue };
        assert!(travels(envelope.message.get_msg_type()), "a message that no member sends");
        for entry in &envelope.entries {
            assert!(entry.records().all(|record| record.is_some()), "a record is damaged");
            check_changes(entry.records().flatten().map(|record| record.body));
        }
    }
}

/// Reads records as those that change the members.
fn check_changes<'a>(bodies: impl Iterator<Item = &'a [u8]>) {
    bodies.filter_map(Configuration::of_record).for_each(|configuration| {
        assert!(configuration.iter().next().is_some(), "a group has members");
    });
}

fn check_configuration(text: &[u8]) {
    check_changes([text].into_iter());
    let read = std::str::from_utf8(text).ok().and_then(|text| Some((text, Configuration::parse(text).ok()?)));
    if let Some((text, configuration)) = read {
        assert_eq!(configuration.to_string(), text, "a configuration has one form");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::Random;

    #[test]
    fn bytes_of_a_liar_do_no_harm() {
        let (mut random, mut messages) = (Random(9), 0);
        for _ in 0..40_000 {
            let mut data: Vec<u8> = (0..random.below(300)).map(|_| random.number() as u8).collect();
            // Most bytes claim what no message has.
            if data.len() > 2 + 84 {
                data.truncate(2 + 84);
                let head = [84, 0, data[2] % 14, data[3] % 2, 0, 0];
                data[..6].copy_from_slice(&head);
            }
            messages += usize::from(matches!(Incoming::decode(&forged(&data)), Ok(Some(_))));
            check_bytes(&data);
        }
        assert!(messages > 1000, "{messages} of them were messages");
    }
}
