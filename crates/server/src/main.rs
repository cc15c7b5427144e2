//! The binary `haypile`: parses the command line and runs the subcommand.
//!
//! Owns the allocator and the exit codes: 0 for a clean end, 1 for a failure (`check`: defects), 2 for a command line
//! that makes no sense (`check`: a directory that cannot be read). Read `run` next, the life of a server from its start
//! to its stop.

mod run;

mod allocator;
mod backups;
mod banner;
mod datadir;
mod open_files;
mod process;
mod secrets;
mod storage;

mod listen;
mod listening;
mod mailbox;
mod metrics;

mod event_loop;
mod output;
mod socket;
mod stream;
mod tls;
mod unbuffered;

mod archive;
mod changes;
mod check;
mod export;
mod import;
mod logging;
mod print_log;
mod progress;
mod raft;
mod remote;
mod replication;

use haypile_config::cli::{Cli, LogOf};
use std::io::Write;
use std::process::ExitCode;

/// The allocator of RocksDB's C++, too: the symbols of the system's allocator are replaced.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = match secrets::arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let done = match Cli::parse(arguments.iter().cloned()) {
        Ok(Cli::Server(line)) => run::server(&line, &arguments),
        Ok(Cli::Check { dir }) => return check::run(&dir, &mut std::io::stdout().lock()),
        Ok(Cli::CheckArchive(what)) => return archive::check::run(&what, &mut std::io::stdout().lock()),
        Ok(Cli::Backup(what)) => archive::ask::run(&what),
        Ok(Cli::Backups(what)) => archive::list::run(&what, &mut std::io::stdout().lock()),
        Ok(Cli::Restore(what)) => archive::restore::run(&what),
        Ok(Cli::Import(what)) => import::run(&what),
        Ok(Cli::Export(what)) => export::run(&what),
        Ok(Cli::Log(LogOf::Directory { dir, json })) => print_log::print(&dir, json, &mut std::io::stdout().lock()),
        Ok(Cli::Log(LogOf::Server(what))) => changes::follow::run(&what, &mut std::io::stdout().lock()),
        Ok(Cli::Text(text)) => std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()),
        Err(usage) => {
            eprint!("{usage}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
