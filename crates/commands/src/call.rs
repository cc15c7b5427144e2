//! A command inside something larger.
//!
//! Owns [`call`], by which a block between MULTI and EXEC runs each of its commands, and the I/O pool a single one.
//! The transaction, and whom the reply is for, belong to the [`Host`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Answer, Host};
use crate::lookup::Entry;
use crate::statement;
use crate::table::{Body, Control};
use haypile_resp::Reply;

/// Runs one command in the transaction that `host` is part of. A command that waits does not wait here: it answers what
/// it answers where its time is over.
///
/// # Errors
/// [`Error::Stop`] where the store stopped the command: the transaction as a whole cannot go on. Any other error is the
/// command's reply.
/// Invariant: a command that fails with such an error leaves nothing in the transaction.
pub fn call(host: &mut dyn Host, entry: &Entry, args: Args) -> Result<Answer> {
    let mut before = None;
    host.in_transaction(&mut |txn| {
        before = Some(txn.savepoint());
        Ok(Reply::None)
    })?;
    let answer = match entry.command.body {
        Body::Txn(run) => host
            .in_transaction(&mut |txn| {
                let (before, database) = (statement::begin(txn, entry, args)?, txn.database());
                let reply = run(txn, args)?;
                statement::end(txn, before, database, entry, args);
                Ok(reply)
            })
            .map(Answer::from),
        Body::Wait(run) => host
            .in_transaction(&mut |txn| {
                let before = statement::begin(txn, entry, args)?;
                let tried = run(txn, args)?;
                statement::end_waiting(txn, before);
                Ok(tried.at_once())
            })
            .map(Answer::from),
        Body::Host(_) | Body::Act(_) => call_host(host, entry, args),
        // EXEC has ended all watching, as in Redis.
        Body::Engine(Control::Unwatch) => Ok(Reply::ok().into()),
        Body::Engine(_) | Body::Container | Body::Migrate(_) | Body::Script(_) => {
            unreachable!("{} is refused where it would become part of something larger", entry.full_name)
        }
    };
    if let Err(error) = &answer
        && !matches!(error, Error::Stop(_))
    {
        host.in_transaction(&mut |txn| {
            before.take().into_iter().for_each(|before| txn.rollback(before));
            Ok(Reply::None)
        })?;
    }
    answer
}

/// Runs a command that runs over the connection and the server, whether or not there is a transaction.
pub fn call_host(host: &mut dyn Host, entry: &Entry, args: Args) -> Result<Answer> {
    match entry.command.body {
        Body::Host(run) => run(host, args).map(Answer::from),
        Body::Act(run) => run(host, args),
        _ => unreachable!("{} does not run over the connection", entry.full_name),
    }
}
