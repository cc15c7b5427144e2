//! The bytes of a file's values as they lie there, for callers that hand them on: a DUMP payload holds the same bytes.
//!
//! A value is recorded beside its parts, as long as it is no longer than a bound. Of a longer value, the bytes up to
//! somewhere behind the bound stay, and all parts that were handed over by then are in them.

use crate::form::Form;
use crate::payload::{self, Payload};
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// A recording of the value that is being read. Clones share it.
#[derive(Clone, Debug)]
pub struct Tape(Rc<RefCell<Recorded>>);

#[derive(Debug)]
struct Recorded {
    bytes_max: usize,
    /// The form of the value, and the value.
    bytes: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Records,
    /// The value is complete.
    Whole,
    /// The value is longer than the bound.
    Long,
}

/// Bytes of memory that are kept for the next value.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl Tape {
    /// Returns a tape for values whose payloads are at most so long.
    pub fn new(bytes_max: usize) -> Tape {
        let bytes_max = bytes_max.saturating_sub(payload::FOOTER_BYTES);
        Tape(Rc::new(RefCell::new(Recorded { bytes_max, bytes: Vec::new(), state: State::Whole })))
    }

    pub(crate) fn begin(&self, form: Form) {
        let mut tape = self.0.borrow_mut();
        tape.bytes.clear();
        tape.bytes.shrink_to(KEPT_BYTES_MAX);
        tape.bytes.push(form as u8);
        tape.state = State::Records;
    }

    /// Adds bytes; returns whether the recording goes on.
    pub(crate) fn add(&self, bytes: &[u8]) -> bool {
        let mut tape = self.0.borrow_mut();
        tape.bytes.extend_from_slice(bytes);
        if tape.bytes.len() > tape.bytes_max {
            tape.state = State::Long;
        }
        tape.state == State::Records
    }

    pub(crate) fn end(&self) {
        let mut tape = self.0.borrow_mut();
        if tape.state == State::Records {
            tape.state = State::Whole;
        }
    }

    /// Tells whether the value is too long to be recorded.
    pub fn is_long(&self) -> bool {
        self.0.borrow().state == State::Long
    }

    /// Takes the beginning of a value that is too long, which does not read to its end, off the tape.
    pub fn take_beginning(&self) -> Beginning {
        let mut tape = self.0.borrow_mut();
        assert!(tape.state == State::Long, "the others are whole");
        Beginning(std::mem::take(&mut tape.bytes))
    }

    /// Returns the payload of DUMP of the value that has come to its end; `None` if it was too long.
    pub fn seal(&self) -> Option<Ref<'_, [u8]>> {
        let mut tape = self.0.borrow_mut();
        let form = tape.bytes.first().and_then(|form| Form::of(*form));
        let form = form.filter(|_| tape.state == State::Whole)?;
        payload::seal_in_place(&mut tape.bytes, form.version());
        drop(tape);
        Some(Ref::map(self.0.borrow(), |tape| &tape.bytes[..]))
    }
}

/// The beginning of a value.
#[derive(Debug)]
pub struct Beginning(Vec<u8>);

impl Beginning {
    /// Returns a payload whose first parts only can be read.
    pub fn payload(&self) -> Payload<'_> {
        Payload::beginning(&self.0)
    }
}
