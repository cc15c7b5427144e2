//! The arguments of generated commands: few keys so that commands meet, numbers at the edges, values around chunk
//! sizes, deadlines that no test can run into. Everything comes from the seed, nothing from the clock.

use crate::random::Random;

/// Keys that all cases share: plain, empty, binary, long, and some with the special characters of glob patterns.
const KEYS: &[&[u8]] =
    &[b"a", b"b", b"c", b"k1", b"k2", b"k[3]", b"k*", b"", b"\x00\xff\r\n", b"{tag}x", b"a-b\\", b"K1"];

/// Numbers as text, at the ends of parsers and ranges.
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "10",
    "100",
    "-2",
    "-3",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775806",
    "-9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
];

/// Arguments that are no canonical integer.
const ODD: &[&[u8]] = &[
    b"",
    b"abc",
    b"1.5",
    b"1e3",
    b" 1",
    b"1 ",
    b"+1",
    b"-0",
    b"007",
    b"0x10",
    b"1\x00",
    b"inf",
    b"nan",
    b"-",
    b"\xff",
    b"*",
    b"99999999999999999999999999",
];

/// Numbers with a fraction or an exponent, at the ends of 80 bits, and other forms that C's parser takes.
const FLOATS: &[&str] = &[
    "0.1",
    "0.5",
    "-0.3",
    "10.50",
    "1.",
    ".5",
    "5e3",
    "-2.5E-3",
    "1e-17",
    "4.9e-18",
    "1e-30",
    "1e17",
    "1e21",
    "-1e300",
    "1e4900",
    "9e4931",
    "1e5000",
    "-1e5000",
    "1e-4950",
    "1e-5000",
    "3.14159265358979323846264338",
    "0.30000000000000000004",
    "18446744073709551615.5",
    "36893488147419103233",
    "0x1.8p3",
    "0X10",
    "0x",
    "infinity",
    "-Inf",
    "NaN",
    "nan(1)",
    "1e",
    "1e+",
    ".",
    "1_000",
    "-0.0",
];

/// Deadlines far from any test: seconds in the past, in the future, and at the ends of arithmetic in milliseconds.
const PAST_S: &[i64] = &[1, 1000, 1_500_000_000];
const FUTURE_S: &[i64] = &[4_102_444_800, 4_102_444_801, 32_503_680_000, 9_223_372_036_854_774];
const EDGE_S: &[i64] =
    &[0, -1, -1000, 9_223_372_036_854_775, 9_223_372_036_854_776, -9_223_372_036_854_776, i64::MAX, i64::MIN];

/// Sizes around those of packed values and of chunks, 16 KiB to 1 MiB.
const EDGE_SIZES: &[u64] =
    &[4095, 4096, 8192, 16383, 16384, 16385, 32768, 65535, 65536, 65537, 131_072, 262_145, 1_048_577];

/// The offsets that fail whatever the value is. No offset between [`OFFSET_MAX`] and these is made, because a command
/// that succeeds there makes a value of hundreds of megabytes.
const FAILING_OFFSETS: &[&str] =
    &["-1", "-100", "536870912", "536870911", "4294967296", "9223372036854775807", "-9223372036854775808", "x", ""];
const OFFSET_MAX: u64 = 3 << 20;

/// The source of arguments for one case.
pub struct Arguments {
    pub random: Random,
    /// Whether this case may make values beyond a few hundred bytes.
    pub large: bool,
}

impl Arguments {
    pub fn key(&mut self) -> Vec<u8> {
        match self.random.below(100) {
            0 => vec![b'L'; 300],
            1..=4 => {
                let number = self.random.below(40);
                format!("key:{number}").into_bytes()
            }
            // The first few keys come more often, so that commands meet.
            5..=60 => KEYS[self.random.below(4) as usize].to_vec(),
            _ => self.random.pick(KEYS).to_vec(),
        }
    }

    pub fn value(&mut self) -> Vec<u8> {
        match self.random.below(100) {
            0..=29 => self.number(),
            30..=34 => self.float(),
            35..=39 => self.random.pick(ODD).to_vec(),
            40..=44 => Vec::new(),
            45..=84 => {
                let length = self.random.below(24);
                self.bytes(length)
            }
            85..=93 if self.large => {
                let length = self.size();
                self.bytes(length)
            }
            _ => {
                let length = self.random.below(600);
                self.bytes(length)
            }
        }
    }

    /// Returns a length at or near a size where representations change.
    fn size(&mut self) -> u64 {
        let edge = *self.random.pick(EDGE_SIZES);
        match self.random.below(3) {
            0 => edge,
            1 => self.random.below(40_000),
            _ => edge + self.random.below(5000),
        }
    }

    pub fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        if self.random.percent(50) {
            self.random.fill(&mut bytes);
        } else {
            let first = self.random.below(26) as u8;
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = b'a' + (first + (i % 26) as u8) % 26;
            }
        }
        bytes
    }

    /// Returns an integer, now and then an argument that is none.
    pub fn number(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 => self.random.pick(ODD).to_vec(),
            1..=4 => self.random.pick(INTEGERS).as_bytes().to_vec(),
            _ => {
                let number = self.random.below(2000) as i64 - 1000;
                number.to_string().into_bytes()
            }
        }
    }

    /// Returns a number as INCRBYFLOAT reads it, now and then an argument that is none.
    pub fn float(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0..=1 => self.number(),
            2..=5 => self.random.pick(FLOATS).as_bytes().to_vec(),
            _ => {
                let (whole, digits) = (self.random.below(2000) as i64 - 1000, self.random.below(12) as usize + 1);
                let fraction = self.random.below(10u64.pow(digits as u32));
                format!("{whole}.{fraction:0digits$}").into_bytes()
            }
        }
    }

    /// Returns a count of random elements: small, zero, or refused; never so large that a reply is huge.
    pub fn sample_count(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 => self.odd(),
            1 => self
                .random
                .pick(&["-9223372036854775808", "9223372036854775808", "9223372036854775807"])
                .as_bytes()
                .to_vec(),
            2..=5 => self.random.between(0, 90).to_string().into_bytes(),
            _ => format!("-{}", self.random.between(1, 90)).into_bytes(),
        }
    }

    pub fn odd(&mut self) -> Vec<u8> {
        self.random.pick(ODD).to_vec()
    }

    /// Returns an offset for SETRANGE.
    pub fn write_offset(&mut self) -> Vec<u8> {
        if self.random.percent(20) {
            return self.random.pick(FAILING_OFFSETS).as_bytes().to_vec();
        }
        let bound = if self.large { *self.random.pick(&[100, 20_000, 300_000, OFFSET_MAX]) } else { 60 };
        self.random.below(bound).to_string().into_bytes()
    }

    /// Returns an index for GETRANGE.
    pub fn index(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0..=2 => self.number(),
            3..=6 => {
                let number = self.random.below(40) as i64 - 20;
                number.to_string().into_bytes()
            }
            _ => {
                let edge = *self.random.pick(EDGE_SIZES) as i64 + self.random.below(3) as i64 - 1;
                let number = if self.random.percent(30) { -edge } else { edge };
                number.to_string().into_bytes()
            }
        }
    }

    /// Returns a time to live in `unit_ms` milliseconds. Times that succeed and leave the key alive are minutes to
    /// weeks away, and spread so wide that two of them are hardly ever equal.
    pub fn ttl(&mut self, unit_ms: i64) -> Vec<u8> {
        match self.random.below(20) {
            0 => self.random.pick(ODD).to_vec(),
            1..=2 => self.random.pick(EDGE_S).to_string().into_bytes(),
            3 => b"-10".to_vec(),
            _ => {
                let ms = self.random.between(300_000, 3_000_000_000) as i64;
                (ms / unit_ms).to_string().into_bytes()
            }
        }
    }

    /// Returns a point in time in units of `unit_ms` milliseconds.
    pub fn deadline(&mut self, unit_ms: i64) -> Vec<u8> {
        let seconds = match self.random.below(20) {
            0 => return self.random.pick(ODD).to_vec(),
            1..=2 => return self.random.pick(EDGE_S).to_string().into_bytes(),
            3..=6 => *self.random.pick(PAST_S),
            _ => *self.random.pick(FUTURE_S),
        };
        let shift = if unit_ms == 1 { self.random.below(3) as i64 } else { 0 };
        (seconds * (1000 / unit_ms) + shift).to_string().into_bytes()
    }

    pub fn database(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => self.number(),
            1 => b"15".to_vec(),
            2 => b"16".to_vec(),
            _ => self.random.below(3).to_string().into_bytes(),
        }
    }

    /// Returns a glob pattern, with the corners of Redis's matcher.
    pub fn pattern(&mut self) -> Vec<u8> {
        const PATTERNS: &[&[u8]] = &[
            b"*", b"**", b"?", b"a", b"k?", b"k*", b"K*", b"k[12]", b"k[^1]", b"k[1-3]", b"k[3-1]", b"k\\[3]", b"k\\*",
            b"[a-c]", b"[", b"[a", b"k[", b"k[\\1]", b"\\", b"a-b\\\\", b"", b"*[0-9]*", b"key:?", b"key:*", b"*\xff*",
            b"{tag}*", b"*a*b*", b"[^]*", b"k[]*",
        ];
        self.random.pick(PATTERNS).to_vec()
    }

    /// Returns `word` in a random mixture of cases, one time in six; else in upper or lower case.
    pub fn word(&mut self, word: &str) -> Vec<u8> {
        match self.random.below(6) {
            0 => {
                let flip = |byte: u8, up: bool| if up { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
                word.bytes().map(|b| flip(b, self.random.percent(50))).collect()
            }
            1..=2 => word.to_ascii_lowercase().into_bytes(),
            _ => word.to_ascii_uppercase().into_bytes(),
        }
    }
}
