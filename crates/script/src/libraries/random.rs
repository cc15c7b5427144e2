//! `math.random` and `math.randomseed`: the generator of POSIX's lrand48, so that a seed gives the numbers that it
//! gives in Redis.

use super::number_argument;
use crate::failure;
use mlua::{Lua, MultiValue, Result};

/// The multiplier and the increment of the generator, modulo 2^48, and the low bits of a seed.
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const SEED_LOW: u64 = 0x330E;
const MASK: u64 = (1 << 48) - 1;

/// The number that draws are divided by.
const DRAWN_MAX: f64 = i32::MAX as f64;

/// The state of a run's random numbers.
#[derive(Debug, Default)]
pub(crate) struct Random(u64);

impl Random {
    pub fn seed(&mut self, seed: u32) {
        self.0 = u64::from(seed) << 16 | SEED_LOW;
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        let drawn = (self.0 >> 17) % (i32::MAX as u64);
        drawn as f64 / DRAWN_MAX
    }

    /// `math.random`: a number below 1, or an integer from 1 or the first argument to the last one.
    pub fn draw(&mut self, lua: &Lua, args: MultiValue) -> Result<f64> {
        let drawn = self.next();
        let integer = |number| number_argument(lua, &args, number, "random").map(f64::floor);
        match args.len() {
            0 => Ok(drawn),
            1 => match integer(1)? {
                to if to < 1.0 => Err(failure::argument(lua, 1, "random", "interval is empty")),
                to => Ok((drawn * to).floor() + 1.0),
            },
            2 => match (integer(1)?, integer(2)?) {
                (from, to) if from > to => Err(failure::argument(lua, 2, "random", "interval is empty")),
                (from, to) => Ok((drawn * (to - from + 1.0)).floor() + from),
            },
            _ => Err(failure::text(lua, "wrong number of arguments")),
        }
    }
}
