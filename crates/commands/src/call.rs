//! A command inside something larger.
//!
//! Owns [`call`], which a block between MULTI and EXEC goes through for each of its commands, and a single command on the
//! I/O pool too. The transaction, and whom the reply is for, belong to the [`Host`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::lookup::Entry;
use crate::table::{Body, Control, Tried};
use haypile_resp::Reply;

/// Runs one command in the transaction that `host` is part of. A command that waits does not wait here: it answers what
/// it answers where its time is over.
///
/// # Errors
/// [`Error::Stop`] where the store stopped the command: the transaction as a whole cannot go on. Any other error is the
/// command's reply.
/// Invariant: a command that fails with such an error leaves nothing in the transaction.
pub fn call(host: &mut dyn Host, entry: &Entry, args: Args) -> Result<Reply> {
    let mut before = None;
    host.in_transaction(&mut |txn| {
        before = Some(txn.savepoint());
        Ok(Reply::None)
    })?;
    let reply = match entry.command.body {
        Body::Txn(run) => host.in_transaction(&mut |txn| run(txn, args)),
        Body::Wait(run) => host.in_transaction(&mut |txn| run(txn, args).map(Tried::at_once)),
        Body::Host(run) => run(host, args),
        // EXEC has ended all watching, as in Redis.
        Body::Engine(Control::Unwatch) => Ok(Reply::ok()),
        Body::Engine(_) | Body::Container | Body::Migrate(_) => {
            unreachable!("{} is refused where it would become part of something larger", entry.full_name)
        }
    };
    if let Err(error) = &reply
        && !matches!(error, Error::Stop(_))
    {
        host.in_transaction(&mut |txn| {
            before.take().into_iter().for_each(|before| txn.rollback(before));
            Ok(Reply::None)
        })?;
    }
    reply
}
