//! One long element of a collection on its way out, piece by piece: its row is held, and nothing else of its size.

use haypile_rdb::{Output, Writer};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_store::Value;
use std::collections::VecDeque;
use std::io;

/// An element whose row was read. Each of its strings is the end of the row's key or of its value.
pub(super) struct LongElement {
    row: Vec<u8>,
    value: Value,
    rest: VecDeque<Step>,
}

/// The part of a row that a string lies in.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Row,
    Value,
}

/// The next thing that is written of an element.
pub(super) enum Step {
    /// The last `bytes` of a part, as a string.
    String {
        of: Part,
        bytes: usize,
    },
    /// The last `bytes` of a part, whose string has begun.
    Rest {
        of: Part,
        bytes: usize,
    },
    Score(f64),
    Deadline(Option<u64>),
}

impl LongElement {
    pub fn new(row: Vec<u8>, value: Value, steps: impl IntoIterator<Item = Step>) -> LongElement {
        LongElement { row, value, rest: steps.into_iter().collect() }
    }

    /// Writes what comes next, at most a piece of a long string; whether there is more.
    pub fn next<O: Output>(&mut self, writer: &mut Writer<O>) -> io::Result<bool> {
        let LongElement { row, value, rest } = self;
        let end_of = |of: Part, bytes: usize| match of {
            Part::Row => &row[row.len() - bytes..],
            Part::Value => &value[value.len() - bytes..],
        };
        match rest.pop_front() {
            None => return Ok(false),
            Some(Step::String { of, bytes }) if bytes > PIECE_BYTES && Writer::<O>::keeps_as_it_is(bytes) => {
                writer.begin_string(bytes as u64)?;
                rest.push_front(Step::Rest { of, bytes });
            }
            Some(Step::String { of, bytes }) => writer.string(end_of(of, bytes))?,
            Some(Step::Rest { of, bytes }) => {
                let piece = bytes.min(PIECE_BYTES);
                writer.raw(&end_of(of, bytes)[..piece])?;
                if bytes > piece {
                    rest.push_front(Step::Rest { of, bytes: bytes - piece });
                }
            }
            Some(Step::Score(score)) => writer.score(score)?,
            Some(Step::Deadline(deadline_ms)) => writer.field_deadline(deadline_ms)?,
        }
        Ok(!rest.is_empty())
    }
}
