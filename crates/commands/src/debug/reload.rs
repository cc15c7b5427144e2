//! DEBUG RELOAD and DEBUG LOADAOF: their options. What they do is the engine's.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host, Reload};

/// NOSAVE leaves what is only in the log there. NOFLUSH and MERGE let what is there stay beside what is loaded, which
/// is the same here.
pub(crate) fn reload(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let mut how = Reload::Base;
    for at in 2..args.len() {
        if args.is(at, "NOSAVE") {
            how = Reload::Log;
        } else if !args.is(at, "NOFLUSH") && !args.is(at, "MERGE") {
            return Err(Error::text("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."));
        }
    }
    Ok(Answer::ok(Act::Reload(how)))
}

pub(crate) fn load_log(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::Reload(Reload::Log)))
}
