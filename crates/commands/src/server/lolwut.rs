//! LOLWUT: a drawing, and the version below it.

use crate::REDIS_VERSION;
use crate::args::Args;
use crate::error::Result;
use crate::host::Host;
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::Reply;
use std::fmt::Write;

pub(crate) const COMMANDS: &[Command] = &[LOLWUT];

const LOLWUT: Command = Command {
    name: "lolwut",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Draws something, and says which version of Redis the server behaves as.",
    syntax: "[VERSION version:integer]",
    complexity: "",
    body: Body::Host(lolwut),
    flags: &[Flag::Readonly, Flag::Fast],
    ..Command::USUAL
};

/// The pika, which sits on top of the pile, in the middle.
const PIKA: [&str; 3] = ["(\\_/)", "(o.o)", "(\")(\")"];

/// Rows of the pile, and what its hay looks like.
const ROWS: usize = 7;
const HAY: &[u8] = b"/\\|_-~,'";

/// Draws the pile, for every version, each time with other hay. Arguments behind the version have no effect, but those
/// that versions 5 and 6 have in Redis are to be integers.
fn lolwut(host: &mut dyn Host, args: Args) -> Result<Reply> {
    if args.is(1, "version") && args.len() >= 3 {
        let measures = match args.int(2)? {
            5 => 3,
            6 => 2,
            _ => 0,
        };
        (3..args.len()).take(measures).try_for_each(|at| args.int(at).map(drop))?;
    }
    Ok(Reply::Verbatim("txt", drawing(host.now_us()).into()))
}

fn drawing(mut seed: u64) -> String {
    let width = 4 * ROWS + 1;
    let mut text = String::new();
    let mut line = |content: &str| writeln!(text, "{}", format!("{content:^width$}").trim_end()).expect("it fits");
    PIKA.iter().for_each(|part| line(part));
    for row in 1..=ROWS {
        let stalks = (0..4 * row - 1).map(|_| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            HAY[(seed >> 33) as usize % HAY.len()] as char
        });
        line(&stalks.collect::<String>());
    }
    write!(text, "\nRedis ver. {REDIS_VERSION}\n").expect("a String takes any text");
    text
}
