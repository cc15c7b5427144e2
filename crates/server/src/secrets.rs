//! Passwords on the command line. Every user of the machine can read the arguments of a process, so one that gets a
//! password that way starts itself anew, as the same process: with arguments without the password, and all of them in a
//! file without a name that only this process has. They stay visible for the instant before that.

use haypile_config::cli::secrets::hidden;
use rustix::fs::MemfdFlags;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The last argument of a process that has been started anew: the number of the file descriptor follows.
const FROM: &[u8] = b"--arguments-from-descriptor=";

/// Returns the arguments of this process after the name of the program, with all secrets; they are hidden when this
/// returns.
///
/// # Errors
/// A text for people.
pub fn arguments() -> Result<Vec<OsString>, String> {
    let seen: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(descriptor) = seen.last().and_then(|last| last.as_bytes().strip_prefix(FROM)) {
        return take(descriptor).map_err(|error| format!("The arguments cannot be read: {error}"));
    }
    if let Some(shown) = hidden(&seen) {
        let why = start_anew(&seen, &shown);
        eprintln!("The password stays visible in the command line of this process: {why}");
    }
    Ok(seen)
}

/// Becomes the same program with the arguments `shown`; returns why it could not.
fn start_anew(arguments: &[OsString], shown: &[OsString]) -> std::io::Error {
    let become_it = || -> std::io::Result<std::io::Error> {
        let program = std::env::current_exe()?;
        // The file is made without CLOEXEC, so that the new program has it.
        let mut file = File::from(rustix::fs::memfd_create(c"arguments", MemfdFlags::empty())?);
        file.write_all(&arguments.join(OsStr::new("\0")).into_vec())?;
        let mut from = FROM.to_vec();
        write!(from, "{}", file.as_raw_fd())?;
        let mut command = Command::new(program);
        command.args(shown).arg(OsString::from_vec(from));
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        Ok(command.exec())
    };
    become_it().unwrap_or_else(|error| error)
}

/// Reads the arguments that `start_anew` has left, and empties the file.
fn take(descriptor: &[u8]) -> std::io::Result<Vec<OsString>> {
    let path = [b"/proc/self/fd/", descriptor].concat();
    let mut file = File::options().read(true).write(true).open(OsStr::from_bytes(&path))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    file.set_len(0)?;
    // No argument of a process has a NUL.
    Ok(bytes.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect())
}
