//! What must hold of any bytes that are given as a HyperLogLog, and of what becomes of them: run by a seeded test and by the
//! fuzz target `hll`.

use super::sketch::{self, Corrupt, Encoding, HEADER_BYTES, REGISTERS};
use super::{dense, estimate, sparse};
use std::borrow::Cow;

/// Panics if something does not hold. The first bytes choose the bound of a sparse sketch; the input is taken as registers,
/// and as changes of an empty sketch, three bytes each.
pub fn check_bytes(input: &[u8]) {
    let Some((head, rest)) = input.split_first_chunk::<2>() else { return };
    let bytes_max = usize::from(u16::from_le_bytes(*head) % 4096);
    let (registers, changes) = rest.split_at(rest.len() / 2);
    let mut found = sketch::empty();
    found.truncate(HEADER_BYTES);
    found.extend_from_slice(registers);
    // To look at all registers takes a hundred times as long as to change some.
    let check = if head[1] >> 4 == 0xf { check_changes } else { check_runs };
    check(found, changes, bytes_max);
    check(sketch::empty(), rest, bytes_max);
}

/// The register and the value that a change asks for.
fn parse(change: &[u8]) -> (usize, u8) {
    let register = usize::from(u16::from_le_bytes([change[0], change[1]])) % REGISTERS;
    (register, change[2] % (sketch::VALUE_MAX + 1))
}

/// Whether the last run lacks a byte: it is read as if it were there, and loses registers when it changes, as in Redis.
fn is_cut_off(sketch: &[u8]) -> bool {
    let registers = sketch::registers(sketch);
    sparse::runs(registers).map(|run| run.bytes()).sum::<usize>() > registers.len()
}

/// What a change does to its register and to the runs, as long as the sketch is sparse.
fn check_runs(sketch: Vec<u8>, changes: &[u8], bytes_max: usize) {
    let value_of = |sketch: &[u8], register| Ok(sparse::find(sketch::registers(sketch), register)?.value());
    let is_whole = |sketch: &[u8]| sparse::histogram(sketch::registers(sketch)).is_ok() && !is_cut_off(sketch);
    let (was_whole, began_cut_off, len_before) = (is_whole(&sketch), is_cut_off(&sketch), sketch.len());
    let (mut sketch, mut encoding) = (Cow::Owned(sketch), Encoding::Sparse);
    for change in changes.chunks_exact(3) {
        let (register, value) = parse(change);
        let before: Result<u8, Corrupt> = value_of(&sketch, register);
        let was_cut_off = is_cut_off(&sketch);
        let raised = sketch::raise(&mut sketch, &mut encoding, register, value, bytes_max);
        let (Ok(before), Ok(raised)) = (before, raised) else {
            assert!(!was_whole, "what is whole stays so");
            continue;
        };
        assert_eq!(raised, value > before, "a register is raised if it is lower");
        if encoding == Encoding::Dense {
            assert_eq!(dense::get(sketch::registers(&sketch), register), value);
            return;
        }
        assert!(was_cut_off || value_of(&sketch, register) == Ok(before.max(value)));
        assert!(sketch.len() <= bytes_max.max(len_before), "a sparse sketch is short");
    }
    assert!(began_cut_off || is_whole(&sketch) == was_whole, "no register comes or goes");
}

fn check_changes(sketch: Vec<u8>, changes: &[u8], bytes_max: usize) {
    let mut values = Box::new([0; REGISTERS]);
    let is_readable = sketch::merge(&sketch, Encoding::Sparse, &mut values).is_ok();
    assert_eq!(is_readable, check(&sketch, Encoding::Sparse, is_readable.then_some(&*values)).is_ok());
    let is_whole = is_readable && !is_cut_off(&sketch);
    let len_before = sketch.len();
    let (mut sketch, mut encoding) = (Cow::Owned(sketch), Encoding::Sparse);
    for change in changes.chunks_exact(3) {
        let (register, value) = parse(change);
        match sketch::raise(&mut sketch, &mut encoding, register, value, bytes_max) {
            Ok(raised) => {
                assert!(!is_whole || raised == (value > values[register]), "a register is raised if it is lower");
                values[register] = values[register].max(value);
            }
            Err(Corrupt) => assert!(!is_whole, "what is whole stays so"),
        }
        assert!(encoding == Encoding::Dense || sketch.len() <= bytes_max.max(len_before), "a sparse sketch is short");
    }
    if is_whole {
        check(&sketch, encoding, Some(&values)).expect("what is whole stays so");
    }
}

/// The registers in every way to read them.
fn check(bytes: &[u8], encoding: Encoding, values: Option<&[u8; REGISTERS]>) -> Result<(), Corrupt> {
    assert_eq!(sketch::encoding(bytes), Some(encoding));
    let counts = match encoding {
        Encoding::Dense => dense::histogram(sketch::registers(bytes)),
        Encoding::Sparse => {
            let decoded = sparse::decoded(sketch::registers(bytes));
            assert_eq!(decoded.split_whitespace().count(), sparse::runs(sketch::registers(bytes)).count());
            let dense = sketch::dense_of(bytes)?;
            let counts = sparse::histogram(sketch::registers(bytes))?;
            assert_eq!(counts, dense::histogram(sketch::registers(&dense)), "dense and sparse agree");
            counts
        }
    };
    let Some(values) = values else { return Ok(()) };
    let mut again = Box::new([0; REGISTERS]);
    sketch::merge(bytes, encoding, &mut again)?;
    assert!(*again == *values, "the registers are what they were raised to");
    let zeros = values.iter().filter(|value| **value == 0).count();
    assert_eq!(counts[0] as usize, zeros);
    assert_eq!(estimate::count(&counts) == 0, zeros == REGISTERS, "what has elements has a count");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_cut_off_counts_as_long_as_it_is() {
        // Found by fuzzing: the sketch became a byte longer than it may.
        let found = b"\x24\x00\x24\xf6\0\0\0\0\0\x24\0\x24\xf6\0\0\0\0\0\x4a\x6a\x02\xb6\xb6\x83\x83\x83\xb6\
            \xb6\xb6\xb6\xb6\0\xb6\xff\xb6\xb6\xee";
        check_bytes(found);
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for round in 0..4000 {
            let len = random() % if round % 10 == 0 { 4000 } else { 60 };
            let mut input: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if round % 3 == 0 && len > 8 {
                // One register over and over, and its neighbours: runs are split and joined.
                for at in (2..len - 2).step_by(3) {
                    (input[at], input[at + 1], input[at + 2]) = ((random() % 12) as u8, 0, (random() % 5) as u8);
                }
            }
            check_bytes(&input);
        }
    }
}
