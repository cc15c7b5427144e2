//! `bit`: operations on 32 bits, as of the library BitOp.

use super::number_argument;
use mlua::{Lua, MultiValue, Result, Table};

/// Makes the library.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    unary(lua, &library, "tobit", |bits| bits)?;
    unary(lua, &library, "bnot", |bits| !bits)?;
    unary(lua, &library, "bswap", u32::swap_bytes)?;
    folding(lua, &library, "band", |a, b| a & b)?;
    folding(lua, &library, "bor", |a, b| a | b)?;
    folding(lua, &library, "bxor", |a, b| a ^ b)?;
    shifting(lua, &library, "lshift", |bits, by| bits << by)?;
    shifting(lua, &library, "rshift", |bits, by| bits >> by)?;
    shifting(lua, &library, "arshift", |bits, by| ((bits as i32) >> by) as u32)?;
    shifting(lua, &library, "rol", u32::rotate_left)?;
    shifting(lua, &library, "ror", u32::rotate_right)?;
    library.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(library)
}

/// The low 32 bits of a number, which is rounded to an integer first.
fn bits(lua: &Lua, args: &MultiValue, number: usize, function: &str) -> Result<u32> {
    /// Added to a double below 2^51, this leaves its integer in the low bits.
    const ROUNDS: f64 = 6_755_399_441_055_744.0;
    Ok((number_argument(lua, args, number, function)? + ROUNDS).to_bits() as u32)
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

fn unary(lua: &Lua, library: &Table, name: &'static str, of: fn(u32) -> u32) -> Result<()> {
    let function = move |lua: &Lua, args: MultiValue| Ok(signed(of(bits(lua, &args, 1, name)?)));
    library.raw_set(name, lua.create_function(function)?)
}

fn folding(lua: &Lua, library: &Table, name: &'static str, of: fn(u32, u32) -> u32) -> Result<()> {
    let function = move |lua: &Lua, args: MultiValue| {
        let mut result = bits(lua, &args, 1, name)?;
        for number in 2..=args.len() {
            result = of(result, bits(lua, &args, number, name)?);
        }
        Ok(signed(result))
    };
    library.raw_set(name, lua.create_function(function)?)
}

fn shifting(lua: &Lua, library: &Table, name: &'static str, of: fn(u32, u32) -> u32) -> Result<()> {
    let function = move |lua: &Lua, args: MultiValue| {
        let (value, by) = (bits(lua, &args, 1, name)?, bits(lua, &args, 2, name)?);
        Ok(signed(of(value, by & 31)))
    };
    library.raw_set(name, lua.create_function(function)?)
}

/// The lowest digits of a number, eight or as many as the second argument says; capital ones if that is negative.
fn to_hex(lua: &Lua, args: MultiValue) -> Result<String> {
    let value = bits(lua, &args, 1, "tohex")?;
    let digits = if args.len() < 2 { 8 } else { bits(lua, &args, 2, "tohex")? as i32 };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let count = (digits.unsigned_abs() as usize).min(8);
    Ok(text[8 - count..].to_owned())
}
