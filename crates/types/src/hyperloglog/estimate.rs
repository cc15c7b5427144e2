//! How many elements a HyperLogLog has seen, from how many registers have each value: the estimator of Ertl, "New
//! cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6, which Redis uses, in the same order
//! of operations: equal registers give the same number.

use super::layout::{REGISTERS, VALUE_BITS};

/// 1 / (2 ln 2).
const ALPHA_INFINITY: f64 = 0.721_347_520_444_481_7;

/// Returns the count, from the number of registers of each value.
pub fn count(registers: &[u32; 64]) -> u64 {
    let m = REGISTERS as f64;
    let highest = VALUE_BITS as usize;
    let mut z = m * tau((m - f64::from(registers[highest + 1])) / m);
    for value in (1..=highest).rev() {
        z += f64::from(registers[value]);
        z *= 0.5;
    }
    z += m * sigma(f64::from(registers[0]) / m);
    (ALPHA_INFINITY * m * m / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_everything_have_a_count() {
        let mut registers = [0; 64];
        registers[0] = REGISTERS as u32;
        assert_eq!(count(&registers), 0);
        let mut full = [0; 64];
        full[VALUE_BITS as usize + 1] = REGISTERS as u32;
        assert!(count(&full) > 1 << 60);
        let mut one = registers;
        (one[0], one[3]) = (REGISTERS as u32 - 1, 1);
        assert_eq!(count(&one), 1);
    }
}
