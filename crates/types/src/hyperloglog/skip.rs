//! Passes runs of sparse registers 64 bytes at a time, then eight, to come near a register.
//!
//! A walk run by run is slow because the begin of a run depends on the one before it: after an XZERO comes a byte that
//! begins none. In a word of eight bytes, the bytes that look like an XZERO are known at once, and so are those of a
//! block of eight words, a bit for each byte. One addition finds for all 64 which of them begin an XZERO, with the one
//! bit that comes from the block before; a table makes bytes of the bits again. The lengths are then added side by side
//! in the bytes of the words.

const WORD_BYTES: usize = 8;
const BLOCK_WORDS: usize = 8;
const BLOCK_BYTES: usize = BLOCK_WORDS * WORD_BYTES;

/// The lowest bit of each byte.
const LOW: u64 = 0x0101_0101_0101_0101;

/// The begin of a run: its first byte and its first register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub at: usize,
    pub first: usize,
}

/// Returns a run that begins not far before that of `register`: at least one other lies between them, or it is the very
/// first one.
pub fn most(registers: &[u8], register: usize) -> Start {
    let (mut before, mut here, mut open) = (Start::default(), Start::default(), Open::default());
    let mut begins_of_last = 0;
    let (blocks, _) = registers.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        let begins =
            begins((0..BLOCK_WORDS).fold(0, |all, at| all | u64::from(looks(word(block, at))) << (at * 8)), open);
        let covered = covered_by_block(block, begins, open.is_open);
        if here.first + covered > register {
            break;
        }
        here = here.behind(BLOCK_BYTES, covered);
        open = Open::after(word(block, BLOCK_WORDS - 1), (begins >> 56) as u8);
        begins_of_last = begins;
    }
    if here.at > 0 {
        // The search goes back to the last word of the last block.
        let block = &blocks[here.at / BLOCK_BYTES - 1];
        let open = Open::after(word(block, BLOCK_WORDS - 2), (begins_of_last >> 48) as u8);
        let covered = covered_by(word(block, BLOCK_WORDS - 1), (begins_of_last >> 56) as u8, open.is_open);
        before = Start { at: here.at - WORD_BYTES, first: here.first - covered }.begin(open);
    }
    let (words, _) = registers[here.at..].as_chunks::<WORD_BYTES>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        let begins = begins(u64::from(looks(word)), open) as u8;
        let covered = covered_by(word, begins, open.is_open);
        if here.first + covered > register {
            break;
        }
        (before, here) = (here.begin(open), here.behind(WORD_BYTES, covered));
        open = Open::after(word, begins);
    }
    before
}

impl Start {
    /// Returns where the run that covers the next byte begins.
    fn begin(self, open: Open) -> Start {
        Start { at: self.at - usize::from(open.is_open), first: self.first - open.covered }
    }

    fn behind(self, bytes: usize, covered: usize) -> Start {
        Start { at: self.at + bytes, first: self.first + covered }
    }
}

/// Whether the last byte that was passed begins an XZERO, and what it has added to the registers that are covered.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    is_open: bool,
    covered: usize,
}

impl Open {
    /// Returns the state behind a word in which these bytes begin an XZERO.
    fn after(word: u64, begins: u8) -> Open {
        let is_open = begins >> 7 != 0;
        let high = (word >> 56) as usize & 0x3f;
        Open { is_open, covered: if is_open { (high << 8) + 1 } else { 0 } }
    }
}

#[inline]
fn word(block: &[u8; BLOCK_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(block[at * WORD_BYTES..][..WORD_BYTES].try_into().expect("eight bytes"))
}

/// Returns how many registers a block covers.
#[inline]
fn covered_by_block(block: &[u8; BLOCK_BYTES], begins: u64, mut is_open: bool) -> usize {
    let (mut sums, mut covered_high) = (0, 0);
    for half in 0..2 {
        // No byte of a sum overflows with four words.
        let mut highs = 0;
        for at in half * 4..half * 4 + 4 {
            let begins = (begins >> (at * 8)) as u8;
            let (pairs, high) = lengths(word(block, at), begins, is_open);
            (sums, highs, is_open) = (sums + pairs, highs + high, begins >> 7 != 0);
        }
        covered_high += sum_of_pairs(pairs(highs));
    }
    sum_of_pairs(sums) + (covered_high << 8)
}

/// Returns how many registers a word covers.
#[inline]
fn covered_by(word: u64, begins: u8, is_open: bool) -> usize {
    let (sums, highs) = lengths(word, begins, is_open);
    sum_of_pairs(sums) + (sum_of_bytes(highs) << 8)
}

/// Returns the bytes that look like the first one of an XZERO: bit n is byte n.
#[inline]
fn looks(word: u64) -> u8 {
    let looks = (word >> 6) & !(word >> 7) & LOW;
    (looks.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Returns the bytes that begin an XZERO, of those that look like its first byte: of a row of such bytes the first, the
/// third and so on, since each takes the one behind it.
#[inline]
fn begins(looks: u64, open: Open) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let looks = looks & !u64::from(open.is_open);
    let firsts = looks & !(looks << 1);
    // The carry of the addition runs through a row to its end.
    let rows_from_even = looks & !looks.wrapping_add(firsts & EVEN);
    (rows_from_even & EVEN) | (looks & !rows_from_even & !EVEN)
}

/// Returns how many registers the bytes of a word cover: an XZERO covers one by its first byte, and 256 for each of the
/// number that is in the second result, byte by byte, 63 at most; by its second byte it covers the rest. The first
/// result is in pairs of bytes, 319 at most each.
#[inline]
fn lengths(word: u64, begins: u8, is_open: bool) -> (u64, u64) {
    let xzeros = BYTES[usize::from(begins)];
    let seconds = (xzeros << 8) | if is_open { 0xff } else { 0 };
    // The bits of a byte that are a length: 0x3f of a ZERO, 0x03 of a VAL, none of an XZERO, all of its second byte.
    let vals = (word >> 7) & LOW;
    let of_lengths = (((LOW * 0x3f) ^ (vals * 0x3c)) & !xzeros) | seconds;
    let lengths = (word & of_lengths) + (LOW & !seconds);
    (pairs(lengths), word & xzeros & (LOW * 0x3f))
}

/// Returns the sums of neighbouring bytes.
#[inline]
fn pairs(word: u64) -> u64 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    (word & EVEN) + ((word >> 8) & EVEN)
}

#[inline]
fn sum_of_pairs(pairs: u64) -> usize {
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
}

/// Adds the bytes of a word. The sum must be 255 at most; a word has four XZEROs at most, so their numbers add up to
/// less.
#[inline]
fn sum_of_bytes(word: u64) -> usize {
    (word.wrapping_mul(LOW) >> 56) as usize
}

/// Bytes of ones for each bit.
static BYTES: [u64; 256] = {
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut bit = 0;
        while bit < WORD_BYTES {
            if (bits >> bit) & 1 == 1 {
                table[bits] |= 0xff << (8 * bit);
            }
            bit += 1;
        }
        bits += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyperloglog::layout::REGISTERS;
    use crate::hyperloglog::sparse;

    /// Returns where all runs begin.
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
            // Three kinds of runs: as in a HyperLogLog that is not broken; XZEROs whose second bytes look like some;
            // the longest ones.
            let real = (0..len).map(|n| if n % 3 == 2 { 0x80 | random() } else { [0x40, random()][n % 3] });
            check(&real.collect::<Vec<_>>());
            check(&(0..len).map(|_| 0x40 | random() & 0x41).collect::<Vec<_>>());
            check(&vec![0x7f; len]);
            check(&vec![0x3f; len]);
            check(&vec![0xff; len]);
        }
    }
}
