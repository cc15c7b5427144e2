//! DEBUG RELOAD and DEBUG LOADAOF: their options. What they do is the engine's.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Host, Reload};
use haypile_resp::Reply;

/// NOSAVE leaves what is only in the log there. NOFLUSH and MERGE let what is there stay beside what is loaded, which
/// is the same here.
pub(crate) fn reload(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let mut how = Reload::Base;
    for at in 2..args.len() {
        if args.is(at, "NOSAVE") {
            how = Reload::Log;
        } else if !args.is(at, "NOFLUSH") && !args.is(at, "MERGE") {
            return Err(Error::text("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."));
        }
    }
    host.reload(how).map(|()| Reply::ok())
}

pub(crate) fn load_log(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    host.reload(Reload::Log).map(|()| Reply::ok())
}
