//! The limit of open files (`ulimit -n`): raised as far as it goes, and a `maxclients` that fits in it.
//!
//! RocksDB keeps all its files open, and the data decides how many they are. So the soft limit becomes the hard one, as
//! no number that the configuration tells is enough for ever. The hard limit is the administrator's and stays.

use haypile_config::{Refused, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that clients leave to the base, the log, event loops and links; half of all where there are few.
const RESERVED: u64 = 512;

/// Raises the limit, lowers `maxclients` where not all of them fit, and refuses each CONFIG SET of more than do. To be
/// called before there are other listeners.
///
/// # Errors
/// A text for people.
pub fn make_room(settings: &Settings) -> Result<(), String> {
    let before = limit();
    let failure = raise(settings.config().maxclients).err();
    let (files, asked) = (limit(), settings.config().maxclients);
    let fit = clients_within(files);
    if fit < asked {
        let needed = files_for(asked);
        let why = failure.map_or_else(|| format!("the hard limit is {files}"), |error| error.to_string());
        settings.set(&[(b"maxclients", fit.to_string().as_bytes())])?;
        tracing::warn!(
            "You requested maxclients of {asked} requiring at least {needed} max file descriptors. Server can't set \
             maximum open files to {needed} because of OS error: {why}. Current maximum open files is {files}. \
             maxclients has been reduced to {fit} to compensate for low ulimit. If you need higher maxclients increase \
             'ulimit -n'."
        );
    } else if before < files {
        tracing::info!("Increased maximum number of open files to {files} (it was originally set to {before}).");
    }
    settings.listen(|changed, _, next| {
        if !changed.iter().any(|directive| directive.name == "maxclients") {
            return Ok(());
        }
        // The hard limit may have been raised meanwhile. Where that fails, the limit of before is what holds.
        let _ = raise(next.maxclients);
        let fit = clients_within(limit());
        if next.maxclients <= fit {
            return Ok(());
        }
        let text =
            format!("The operating system is not able to handle the specified number of clients, try with {fit}");
        Err(Refused { directive: Some("maxclients"), text })
    });
    Ok(())
}

/// Returns the number of files that the process may have open now.
fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard one; where the system does not have so many, as far as so many clients need.
fn raise(clients: u32) -> rustix::io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return Ok(());
    }
    let set = |files| setrlimit(Resource::Nofile, Rlimit { current: files, maximum });
    let needed = files_for(clients);
    match set(maximum) {
        Err(_) if current.is_some_and(|files| files < needed) => set(Some(needed)),
        Err(_) => Ok(()),
        set => set,
    }
}

/// Returns the number of clients that may come in with a limit of open files.
fn clients_within(files: u64) -> u32 {
    let clients = files - RESERVED.min(files.div_ceil(2));
    u32::try_from(clients).unwrap_or(u32::MAX).max(1)
}

/// Returns the lowest limit of open files with which so many clients may come in.
fn files_for(clients: u32) -> u64 {
    u64::from(clients) + RESERVED.min(clients.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_files_go_together() {
        for clients in (2..3000).chain([10_000, u32::MAX]) {
            let files = files_for(clients);
            assert_eq!(clients_within(files), clients);
            assert_eq!(clients_within(files - 1), clients - 1);
        }
        assert_eq!([0, 1, 2].map(clients_within), [1; 3]);
        assert_eq!([200, 1024, 65_536].map(clients_within), [100, 512, 65_024]);
        assert_eq!(clients_within(u64::MAX), u32::MAX);
        assert_eq!(files_for(10_000), 10_512);
    }
}
