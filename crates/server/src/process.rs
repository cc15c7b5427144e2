//! The duties of a server process towards the operating system and its supervisors: the background, a pid file, the
//! news that it is ready. No part of serving.

use haypile_config::{Config, Supervised};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The environment variable of the process that goes on in the background.
const DAEMON: &str = "HAYPILE_DAEMON";

/// Tells whether this process is to end now, because another one goes on in the background. Forking is no option for a
/// process that may not use unsafe code; the program starts itself again, in a session of its own.
pub fn daemonize(arguments: &[OsString]) -> Result<bool, String> {
    if std::env::var_os(DAEMON).is_some() {
        // The process may be the leader of its session already, if it was started that way; that is as good.
        let _ = rustix::process::setsid();
        return Ok(false);
    }
    let program = std::env::current_exe().map_err(|error| format!("Can't tell the path of this program: {error}"))?;
    Command::new(program)
        .args(arguments)
        .env(DAEMON, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("Can't go to the background: {error}"))?;
    Ok(true)
}

/// The niceness of threads that give way.
const GIVES_WAY: i32 = 15;

/// The niceness of threads that give way, and on which another server waits that will not do so for ever.
const GIVES_WAY_A_LITTLE: i32 = 5;

/// Has this thread give way to all others: it copies files, while event loops have clients that wait.
pub fn give_way() {
    // Where it may not be changed, it works as the others do.
    let _ = rustix::process::setpriority_process(None, GIVES_WAY);
}

/// Has this thread give way to event loops, though not so far that it hardly gets on where all cores are busy.
pub fn give_way_a_little() {
    let _ = rustix::process::setpriority_process(None, GIVES_WAY_A_LITTLE);
}

/// Returns the time since the machine began, in which it may have slept.
pub fn time_since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the CPU time that this thread has taken.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The mode of files that are created where no configuration says otherwise: their owner's only.
pub const FILE_MODE: u32 = 0o600;

/// Creates files with this mode from now on, and directories with that of `directory_mode`. The mask is the process's,
/// so RocksDB goes by it as well. To be called before there are other threads.
pub fn set_file_mode(mode: u32) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777 & !directory_mode(mode)));
}

/// Returns the mode of a directory with files of this mode: users who may read these may enter it.
pub fn directory_mode(file_mode: u32) -> u32 {
    file_mode | (file_mode & 0o444) >> 2
}

/// The mode of the pid file: a supervisor is seldom the server's user.
const PID_FILE_MODE: u32 = 0o644;

/// A pid file, removed when this is dropped.
pub struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes the file where the configuration says, as Redis does, for everybody to read; a failure stops nothing.
    pub fn write(config: &Config) -> PidFile {
        let Some(path) = config.pidfile.clone() else { return PidFile(None) };
        let written = std::fs::write(&path, format!("{}\n", std::process::id()));
        match written.and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(PID_FILE_MODE))) {
            Ok(()) => PidFile(Some(path)),
            Err(error) => {
                tracing::warn!("the pid file {} cannot be written: {error}", path.display());
                PidFile(None)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The file may have been removed meanwhile.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Tells the supervisor that the server is ready.
pub fn tell_ready(config: &Config) {
    let socket = std::env::var_os("NOTIFY_SOCKET");
    match config.supervised {
        Supervised::Systemd | Supervised::Auto if socket.is_some() => {
            let path = socket.unwrap_or_default();
            if let Err(error) = notify(Path::new(&path), b"STATUS=Ready to accept connections\nREADY=1\n") {
                tracing::warn!("systemd cannot be told that the server is ready: {error}");
            }
        }
        Supervised::Systemd => tracing::warn!("systemd supervision requested, but NOTIFY_SOCKET is not set"),
        Supervised::Upstart | Supervised::Auto if std::env::var_os("UPSTART_JOB").is_some() => {
            // Upstart waits until the process stops itself, and lets it go on.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        }
        Supervised::Upstart => tracing::warn!("upstart supervision requested, but UPSTART_JOB is not set"),
        Supervised::Auto | Supervised::No => {}
    }
}

/// Tells systemd that the stop has begun and is meant; the start has decided whether systemd is told at all.
pub fn tell_stopping(config: &Config) {
    if let (Supervised::Systemd | Supervised::Auto, Some(path)) = (config.supervised, std::env::var_os("NOTIFY_SOCKET"))
    {
        // Systemd sees the end of the process in any case.
        let _ = notify(Path::new(&path), b"STOPPING=1\n");
    }
}

fn notify(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    let socket = UnixDatagram::unbound()?;
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => socket.send_to_addr(text, &std::os::unix::net::SocketAddr::from_abstract_name(name)?)?,
        _ => socket.send_to(text, path)?,
    };
    Ok(())
}

/// Ends the process at a panic, which is a bug of ours and may leave locks held: as after a kill, the next start
/// replays the log.
pub fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        tracing::error!("{panic}: the server ends here; what was acknowledged is in the log");
        std::process::abort();
    }));
}
