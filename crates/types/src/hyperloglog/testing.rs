//! Properties that must hold of any bytes that are given as a HyperLogLog, and of their changes: run by a seeded test
//! and by the fuzz target `hll`.

use super::layout::{self, Corrupt, Encoding, HEADER_BYTES, REGISTERS};
use super::{dense, estimate, sparse};
use std::borrow::Cow;

/// Longer inputs are cut: a HyperLogLog shows all its behaviour in blocks within these bytes.
const INPUT_BYTES_MAX: usize = 2048;

/// One input in so many is read in every way, which looks at each of the registers, some times over, and takes as long
/// as a hundred inputs whose runs are looked at.
const READ_IN_EVERY_WAY: u32 = 256;

/// Steps of a change whose third byte is this or more read the registers back.
const READ_BACK_FROM: u8 = (u8::MAX / VALUES) * VALUES;
const VALUES: u8 = layout::VALUE_MAX + 1;

/// Changes of a HyperLogLog whose last run lacks a byte. After each of them all runs are read.
const CUT_OFF_CHANGES_MAX: usize = 32;

/// A register that no run covers.
const MISSING: u8 = u8::MAX;

/// Panics if a property does not hold. The first bytes choose the bound of a sparse HyperLogLog; the input is taken as
/// registers, and as changes of an empty HyperLogLog, three bytes each.
pub fn check_bytes(input: &[u8]) {
    let input = &input[..input.len().min(INPUT_BYTES_MAX)];
    // The sum is over all bytes: were it over some, inputs with those would gather in a fuzzer's corpus.
    let sum = input.iter().fold(0u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    check_input(input, (sum >> 16) % READ_IN_EVERY_WAY == 0);
}

fn check_input(input: &[u8], in_every_way: bool) {
    let Some((head, rest)) = input.split_first_chunk::<2>() else { return };
    let bytes_max = usize::from(u16::from_le_bytes(*head) % 4096);
    let (registers, changes) = rest.split_at(rest.len() / 2);
    let mut found = layout::empty();
    found.truncate(HEADER_BYTES);
    found.extend_from_slice(registers);
    check_changes(found, changes, bytes_max, in_every_way);
    check_changes(layout::empty(), rest, bytes_max, in_every_way);
}

/// Parses a change: the register and the value that it asks for.
fn parse(change: &[u8]) -> (usize, u8) {
    let register = usize::from(u16::from_le_bytes([change[0], change[1]])) % REGISTERS;
    (register, change[2] % VALUES)
}

/// The registers, read run by run.
struct Model {
    values: Box<[u8; REGISTERS]>,
    /// Registers that the runs cover, including more than there may be.
    covered: usize,
    /// Whether the last run lacks a byte: it is read as if it were there, and loses registers when it changes, as in
    /// Redis.
    is_cut_off: bool,
}

impl Model {
    fn of(hll: &[u8]) -> Model {
        let registers = layout::registers(hll);
        let mut values = Box::new([MISSING; REGISTERS]);
        let (mut covered, mut bytes) = (0, 0);
        for run in sparse::runs(registers) {
            if covered < REGISTERS {
                values[covered..(covered + run.len).min(REGISTERS)].fill(run.value);
            }
            (covered, bytes) = (covered + run.len, bytes + run.bytes());
        }
        Model { values, covered, is_cut_off: bytes > registers.len() }
    }

    fn is_readable(&self) -> bool {
        self.covered == REGISTERS
    }

    /// Returns the value of a register if a run covers it.
    fn get(&self, register: usize) -> Result<u8, Corrupt> {
        Some(self.values[register]).filter(|value| *value != MISSING).ok_or(Corrupt)
    }

    fn assert_is(&self, hll: &[u8], encoding: Encoding) {
        match encoding {
            Encoding::Sparse => {
                let now = Model::of(hll);
                assert!(*now.values == *self.values, "the registers are what they were raised to");
                assert_eq!((now.covered, now.is_cut_off), (self.covered, self.is_cut_off), "no register comes or goes");
                let registers = layout::registers(hll);
                assert_eq!(sparse::histogram(registers).is_ok(), self.is_readable(), "what is whole stays so");
            }
            Encoding::Dense => {
                let mut packed = vec![0; dense::REGISTERS_BYTES];
                dense::pack(&self.values, &mut packed);
                assert!(*layout::registers(hll) == *packed, "the registers are what they were raised to");
            }
        }
    }
}

fn check_changes(hll: Vec<u8>, changes: &[u8], bytes_max: usize, in_every_way: bool) {
    let mut model = Model::of(&hll);
    if in_every_way {
        assert_eq!(check(&hll, Encoding::Sparse, &model).is_ok(), model.is_readable());
    }
    let sparse_max = bytes_max.max(hll.len());
    let (mut hll, mut encoding) = (Cow::Owned(hll), Encoding::Sparse);
    let mut cut_off_changes = 0;
    for change in changes.chunks_exact(3) {
        let (register, value) = parse(change);
        let before = model.get(register);
        let raised = layout::raise(&mut hll, &mut encoding, register, value, bytes_max);
        match (before, raised) {
            (Ok(before), Ok(raised)) => assert_eq!(raised, value > before, "a register is raised if it is lower"),
            (Ok(before), Err(Corrupt)) => {
                assert!(value > before && !model.is_readable(), "what is whole becomes dense");
                continue;
            }
            (Err(Corrupt), raised) => {
                assert_eq!(raised, Err(Corrupt), "a register that is missing stays so");
                continue;
            }
        }
        if encoding == Encoding::Sparse {
            assert!(hll.len() <= sparse_max, "a sparse hll is short");
        }
        if model.is_cut_off && encoding == Encoding::Sparse {
            cut_off_changes += 1;
            if cut_off_changes > CUT_OFF_CHANGES_MAX {
                return;
            }
            model = Model::of(&hll);
            continue;
        }
        model.values[register] = model.values[register].max(value);
        if change[2] >= READ_BACK_FROM {
            for near in register.saturating_sub(1)..(register + 2).min(REGISTERS) {
                let found = match encoding {
                    Encoding::Sparse => sparse::find(layout::registers(&hll), near).map(|place| place.value()),
                    Encoding::Dense => Ok(dense::get(layout::registers(&hll), near)),
                };
                assert_eq!(found, model.get(near), "one register is raised, and no other");
            }
        }
    }
    model.assert_is(&hll, encoding);
    if in_every_way {
        assert_eq!(check(&hll, encoding, &model).is_ok(), model.is_readable());
    }
}

/// Compares every way to read the registers with the model.
fn check(bytes: &[u8], encoding: Encoding, model: &Model) -> Result<(), Corrupt> {
    assert_eq!(layout::encoding(bytes), Some(encoding));
    let counts = match encoding {
        Encoding::Dense => dense::histogram(layout::registers(bytes)),
        Encoding::Sparse => {
            let decoded = sparse::decoded(layout::registers(bytes));
            assert_eq!(decoded.split_whitespace().count(), sparse::runs(layout::registers(bytes)).count());
            let dense = layout::dense_of(bytes)?;
            let counts = sparse::histogram(layout::registers(bytes))?;
            assert_eq!(counts, dense::histogram(layout::registers(&dense)), "dense and sparse agree");
            counts
        }
    };
    let values = &*model.values;
    let mut again = Box::new([0; REGISTERS]);
    layout::merge(bytes, encoding, &mut again)?;
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
        // Found by fuzzing: the HyperLogLog became a byte longer than it may.
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
                // One register and its neighbours change over and over: runs are split and joined.
                for at in (2..len - 2).step_by(3) {
                    (input[at], input[at + 1], input[at + 2]) = ((random() % 12) as u8, 0, (random() % 5) as u8);
                }
            }
            check_bytes(&input);
            if round % 16 == 0 {
                check_input(&input, true);
            }
        }
    }
}
