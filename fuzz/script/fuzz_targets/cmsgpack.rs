//! Bytes that cmsgpack unpacks. What may not happen is in `haypile_script::testing::check_reading`, which an ordinary
//! seeded test runs as well.
#![no_main]

use haypile_script::Interpreter;
use haypile_script::testing::{Reads, check_reading, interpreter};
use std::cell::RefCell;

thread_local! {
    static INTERPRETER: RefCell<Interpreter> = RefCell::new(interpreter());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    INTERPRETER.with_borrow_mut(|interpreter| check_reading(interpreter, Reads::Cmsgpack, data));
});
