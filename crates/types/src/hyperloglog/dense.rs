//! Dense registers: six bits each, one after the other, from the lowest bit of the first byte on.

use super::layout::{HEADER_BYTES, REGISTERS};

const VALUE_BITS: usize = 6;
const VALUE_MASK: u8 = (1 << VALUE_BITS) - 1;

/// Bytes of all registers.
pub const REGISTERS_BYTES: usize = REGISTERS * VALUE_BITS / 8;

/// Bytes of a dense HyperLogLog.
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS_BYTES;

/// Registers that are unpacked together, and the bytes that they lie in.
const GROUP: usize = 8;
const GROUP_BYTES: usize = GROUP * VALUE_BITS / 8;

/// Returns where a register begins: the byte, and how many lower bits of it belong to the one before.
fn place(register: usize) -> (usize, u32) {
    let bit = register * VALUE_BITS;
    (bit / 8, (bit % 8) as u32)
}

/// Returns the two bytes that a register may lie in, as one number; behind the last byte there are zeros.
fn pair(registers: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([registers[at], registers.get(at + 1).copied().unwrap_or(0)])
}

#[inline]
pub fn get(registers: &[u8], register: usize) -> u8 {
    let (at, shift) = place(register);
    (pair(registers, at) >> shift) as u8 & VALUE_MASK
}

pub fn set(registers: &mut [u8], register: usize, value: u8) {
    let (at, changed, len) = changed(registers, register, value);
    registers[at..at + len].copy_from_slice(&changed[..len]);
}

/// Returns the bytes that change with a register: where they are, their new values, and how many they are.
pub fn changed(registers: &[u8], register: usize, value: u8) -> (usize, [u8; 2], usize) {
    debug_assert!(value <= VALUE_MASK, "Invariant: a register has six bits: {value}");
    let (at, shift) = place(register);
    let mask = u16::from(VALUE_MASK) << shift;
    let bytes = (pair(registers, at) & !mask | u16::from(value) << shift & mask).to_le_bytes();
    let is_in_one = shift as usize + VALUE_BITS <= 8;
    (at, bytes, if is_in_one { 1 } else { 2 })
}

/// Returns six bytes as eight registers, one a byte: the halves of ever smaller parts move apart.
#[inline(always)]
fn unpacked(bytes: &[u8; GROUP_BYTES]) -> [u8; GROUP] {
    let mut wide = [0; 8];
    wide[..GROUP_BYTES].copy_from_slice(bytes);
    let x = u64::from_le_bytes(wide);
    let x = x & 0x0000_0000_00ff_ffff | (x & 0x0000_ffff_ff00_0000) << 8;
    let x = x & 0x0000_0fff_0000_0fff | (x & 0x00ff_f000_00ff_f000) << 4;
    let x = x & 0x003f_003f_003f_003f | (x & 0x0fc0_0fc0_0fc0_0fc0) << 2;
    x.to_le_bytes()
}

/// Packs eight registers, one a byte, into six bytes.
#[inline(always)]
fn packed(values: &[u8; GROUP]) -> [u8; GROUP_BYTES] {
    let x = u64::from_le_bytes(*values);
    let x = x & 0x003f_003f_003f_003f | (x & 0x3f00_3f00_3f00_3f00) >> 2;
    let x = x & 0x0000_0fff_0000_0fff | (x & 0x0fff_0000_0fff_0000) >> 4;
    let x = x & 0x0000_0000_00ff_ffff | (x & 0x00ff_ffff_0000_0000) >> 8;
    x.to_le_bytes()[..GROUP_BYTES].try_into().expect("six bytes")
}

/// Makes each of `values` at least its register's value. The registers are of a dense HyperLogLog, so they are all
/// there.
pub fn merge(registers: &[u8], values: &mut [u8; REGISTERS]) {
    let (groups, _) = registers.as_chunks::<GROUP_BYTES>();
    let (targets, _) = values.as_chunks_mut::<GROUP>();
    for (group, target) in groups.iter().zip(targets) {
        let group = unpacked(group);
        for (target, value) in target.iter_mut().zip(group) {
            *target = (*target).max(value);
        }
    }
}

/// Writes all registers.
pub fn pack(values: &[u8; REGISTERS], registers: &mut [u8]) {
    let (groups, _) = registers.as_chunks_mut::<GROUP_BYTES>();
    let (values, _) = values.as_chunks::<GROUP>();
    for (group, values) in groups.iter_mut().zip(values) {
        *group = packed(values);
    }
}

/// Counts the registers that have each value.
pub fn histogram(registers: &[u8]) -> [u32; 64] {
    // Several tables, so that equal values in a row do not wait for one another.
    let mut counts = [[0u32; 64]; 4];
    let (groups, _) = registers.as_chunks::<GROUP_BYTES>();
    for group in groups {
        for (at, value) in unpacked(group).into_iter().enumerate() {
            counts[at % 4][usize::from(value & VALUE_MASK)] += 1;
        }
    }
    std::array::from_fn(|value| counts.iter().map(|counts| counts[value]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_what_was_set_one_by_one_and_all_together() {
        let value_of = |register: usize| (register * 37 % 64) as u8;
        let mut registers = [0xff; REGISTERS_BYTES];
        for register in (0..REGISTERS).rev() {
            set(&mut registers, register, value_of(register));
        }
        let mut values = [0; REGISTERS];
        merge(&registers, &mut values);
        for (register, value) in values.iter().enumerate() {
            assert_eq!(get(&registers, register), value_of(register));
            assert_eq!(*value, value_of(register));
        }
        let mut again = [0; REGISTERS_BYTES];
        pack(&values, &mut again);
        assert!(again == registers);
        let counts = histogram(&registers);
        for (value, count) in counts.iter().enumerate() {
            assert_eq!(*count as usize, values.iter().filter(|other| usize::from(**other) == value).count());
        }
    }

    #[test]
    fn merging_keeps_the_larger() {
        let mut registers = [0; REGISTERS_BYTES];
        set(&mut registers, 5, 9);
        set(&mut registers, 6, 3);
        let mut values = [4; REGISTERS];
        merge(&registers, &mut values);
        assert_eq!(values[4..8], [4, 9, 4, 4]);
    }
}
