//! Passes runs of sparse registers eight bytes at a time, to come near a register of which nothing says where it lies.
//!
//! A run after the other takes two nanoseconds each, which was a third of what PFADD cost with a thousand runs. What makes it slow is
//! that where a run begins depends on the one before it: after an XZERO comes a byte that begins none. In a word of eight bytes, those
//! that look like an XZERO are known at once, and a table says which of them are, with the one bit that comes from the word before.
//! The lengths are then added side by side in the bytes of the word.

const WORD_BYTES: usize = 8;

/// The lowest bit of each byte.
const LOW: u64 = 0x0101_0101_0101_0101;

/// Where a run begins, and its first register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub at: usize,
    pub first: usize,
}

/// A run that begins not far before that of `register`: at least one other lies between them, or it is the very first one.
pub fn most(registers: &[u8], register: usize) -> Start {
    let (mut before, mut here, mut open) = (Start::default(), Start::default(), Open::default());
    for word in registers.chunks_exact(WORD_BYTES) {
        let (covered, next) = pass(u64::from_le_bytes(word.try_into().expect("a chunk is a word")), open);
        if here.first + covered > register {
            break;
        }
        // A run that goes on behind the word begins in it.
        before = Start { at: here.at - usize::from(open.is_open), first: here.first - open.covered };
        here = Start { at: here.at + WORD_BYTES, first: here.first + covered };
        open = next;
    }
    before
}

/// Whether the last byte of a word begins an XZERO, and what it has added to the registers that are covered.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    is_open: bool,
    covered: usize,
}

/// How many registers the bytes of a word cover: an XZERO by its first byte 256 for each of its number and one more, by its second byte
/// the rest.
fn pass(word: u64, before: Open) -> (usize, Open) {
    let looks = (word >> 6) & !(word >> 7) & LOW;
    // Bit n is byte n.
    let looks = looks.wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let xzeros = XZEROS[usize::from(before.is_open)][looks as usize];
    let seconds = (xzeros << 8) | u64::from(before.is_open);
    let (xzeros_all, seconds_all) = (xzeros * 0xff, seconds * 0xff);
    let vals_all = (((word >> 7) & LOW) * 0xff) & !seconds_all;
    let zeros_all = !(vals_all | seconds_all | xzeros_all);
    let lengths = word & (seconds_all | (vals_all & (LOW * 0x03)) | (zeros_all & (LOW * 0x3f)));
    let high = (word & xzeros_all & (LOW * 0x3f)).wrapping_mul(LOW) >> 56;
    let begun = WORD_BYTES - seconds.count_ones() as usize;
    let covered = sum_of_bytes(lengths) + ((high as usize) << 8) + begun;
    let is_open = xzeros >> 56 != 0;
    let last = (word >> 56) as usize;
    (covered, Open { is_open, covered: if is_open { ((last & 0x3f) << 8) + 1 } else { 0 } })
}

/// Up to 255 each.
fn sum_of_bytes(word: u64) -> usize {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let pairs = (word & EVEN) + ((word >> 8) & EVEN);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
}

/// Which bytes begin an XZERO, their lowest bit set, by whether the first byte belongs to the run before, and by which ones look like it.
static XZEROS: [[u64; 256]; 2] = {
    let mut table = [[0; 256]; 2];
    let mut looks = 0;
    while looks < 256 {
        let mut belongs = 0;
        while belongs < 2 {
            let (mut byte, mut is_second) = (0, belongs == 1);
            while byte < WORD_BYTES {
                is_second = !is_second && (looks >> byte) & 1 == 1;
                if is_second {
                    table[belongs][looks] |= 1 << (8 * byte);
                }
                byte += 1;
            }
            belongs += 1;
        }
        looks += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hll::sketch::REGISTERS;
    use crate::hll::sparse;

    /// Where all runs begin.
    fn starts(registers: &[u8]) -> Vec<Start> {
        let mut next = Start::default();
        let step = |run: sparse::Run| {
            let start = next;
            next = Start { at: start.at + run.bytes(), first: start.first + run.len };
            start
        };
        sparse::runs(registers).map(step).collect()
    }

    /// Compares with a walk over all runs, for each register.
    fn check(registers: &[u8]) {
        let starts = starts(registers);
        for register in 0..REGISTERS + 2 {
            let found = most(registers, register);
            let of_found = starts.iter().position(|start| *start == found).expect("a run begins there");
            let of_register = starts.partition_point(|start| start.first <= register) - 1;
            assert!(of_found < of_register || found.at == 0, "{registers:?}: {register} is found from {found:?}");
            assert!(
                starts[of_register].at - found.at <= 3 * WORD_BYTES || register >= REGISTERS,
                "{registers:?}: {found:?} is far from {register}"
            );
        }
    }

    #[test]
    fn it_ends_near_the_register_whatever_the_bytes() {
        let mut state = 7u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for len in (1..80).chain([500, 1500]) {
            check(&(0..len).map(|_| random()).collect::<Vec<_>>());
            // As runs lie in a sketch that is not broken; as XZEROs whose second bytes look like some; as the longest ones.
            let real = (0..len).map(|n| if n % 3 == 2 { 0x80 | random() } else { [0x40, random()][n % 3] });
            check(&real.collect::<Vec<_>>());
            check(&(0..len).map(|_| 0x40 | random() & 0x41).collect::<Vec<_>>());
            check(&vec![0x7f; len]);
            check(&vec![0x3f; len]);
            check(&vec![0xff; len]);
        }
    }
}
