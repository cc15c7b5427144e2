//! PFSELFTEST: HyperLogLogs of random elements, of all sizes up to a million, compared with the true counts.

use super::layout::{self, Encoding, HEADER_BYTES, REGISTERS, VALUE_MAX};
use super::{dense, estimate, sparse};
use std::borrow::Cow;

/// Dense registers are written and read back so often.
const ROUNDS: usize = 100;

/// Elements that are added.
const ELEMENTS: u64 = 1_000_000;

/// Bytes of the longest sparse HyperLogLog here: it becomes dense on the way.
const SPARSE_BYTES_MAX: usize = 3000;

/// Runs the test; the error is a sentence about the defect. The same seed gives the same elements.
pub fn run(mut seed: u64) -> Result<(), String> {
    registers_keep_what_was_written(&mut seed)?;
    counts_are_near(seed)
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 16
}

fn registers_keep_what_was_written(seed: &mut u64) -> Result<(), String> {
    let mut registers = [0; dense::REGISTERS_BYTES];
    for round in 0..ROUNDS {
        let values: Vec<u8> = (0..REGISTERS).map(|_| (next(seed) % (u64::from(VALUE_MAX) + 1)) as u8).collect();
        for (register, value) in values.iter().enumerate() {
            dense::set(&mut registers, register, *value);
        }
        for (register, value) in values.iter().enumerate() {
            let found = dense::get(&registers, register);
            if found != *value {
                return Err(format!("Register {register} has {found} instead of {value} in round {round}"));
            }
        }
    }
    Ok(())
}

fn counts_are_near(mut seed: u64) -> Result<(), String> {
    let first = next(&mut seed);
    let mut always_dense = layout::dense_of(&layout::empty()).map_err(|_| "An empty hll is corrupt".to_owned())?;
    let mut encoding = Encoding::Sparse;
    let mut hll: Cow<'_, [u8]> = Cow::Owned(layout::empty());
    let mut checkpoint = 1;
    for number in 1..=ELEMENTS {
        let (register, value) = layout::register_of(&(first ^ number).to_le_bytes());
        let registers = &mut always_dense[HEADER_BYTES..];
        if dense::get(registers, register) < value {
            dense::set(registers, register, value);
        }
        layout::raise(&mut hll, &mut encoding, register, value, SPARSE_BYTES_MAX)
            .map_err(|_| format!("A sparse hll is corrupt after {number} elements"))?;
        if number == checkpoint {
            let registers = match encoding {
                Encoding::Dense => Ok(dense::histogram(layout::registers(&hll))),
                Encoding::Sparse => sparse::histogram(layout::registers(&hll)),
            };
            let count = registers.map(|registers| estimate::count(&registers)).unwrap_or(0);
            let of_dense = estimate::count(&dense::histogram(&always_dense[HEADER_BYTES..]));
            if count != of_dense {
                return Err(format!("Sparse and dense count {count} and {of_dense} of {number} elements"));
            }
            // Six times the standard error: one run in a billion is further off. Few elements are counted to one or
            // two.
            let error_max = (number as f64 * 6.0 * 1.04 / (REGISTERS as f64).sqrt()).ceil().max(2.0);
            if (count as f64 - number as f64).abs() > error_max {
                return Err(format!("{number} elements are counted as {count}"));
            }
            checkpoint *= 10;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_test_passes() {
        for seed in 0..4 {
            super::run(seed).expect("all is well");
        }
    }
}
