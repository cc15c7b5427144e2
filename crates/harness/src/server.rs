//! A server process under test: started in a directory of its own on a free loopback port, waited for, stopped by pid.
//!
//! The server's command line is a template, so that any server that speaks RESP can stand in for ours. Its output goes
//! to a file beside its data directory. A [`Server`] that is dropped is killed, and so is one whose starting thread
//! ends; nothing else on the machine is touched.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::port::free_port;
use crate::quoted;

/// The interval between two checks of a starting or stopping process.
const POLL: Duration = Duration::from_millis(5);
/// The time without a reply after which a server has failed.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for a start: a replay of a few gigabytes.
const START_MAX: Duration = Duration::from_secs(120);
/// The longest wait for a clean stop.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A command line with `{port}` and `{dir}`, which each start fills in.
#[derive(Clone, Debug)]
pub struct Template {
    arguments: Vec<String>,
}

impl Template {
    /// Reads a command line; quotes as in redis-cli (double only).
    pub fn parse(line: &str) -> Result<Template> {
        let arguments =
            quoted::split(line).filter(|a| !a.is_empty()).ok_or_else(|| anyhow!("not a command line: {line:?}"))?;
        let arguments = arguments.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect::<Vec<_>>();
        for mark in ["{port}", "{dir}"] {
            let there = arguments.iter().any(|a| a.contains(mark));
            ensure!(there, "the command line has no {mark}: {line}");
        }
        Ok(Template { arguments })
    }

    /// Returns our server: `binary server --bind 127.0.0.1 --port {port} --dir {dir}` and more directives, separated by
    /// spaces.
    pub fn haypile(binary: &Path, directives: &str) -> Result<Template> {
        let binary = quoted::quote(binary.as_os_str().as_encoded_bytes());
        Template::parse(&format!("{binary} server --bind 127.0.0.1 --port {{port}} --dir {{dir}} {directives}"))
    }

    /// Returns redis-server as the tests use it, without files, and more directives.
    pub fn redis(directives: &str) -> Result<Template> {
        Template::parse(&format!(
            "redis-server --bind 127.0.0.1 --port {{port}} --dir {{dir}} --save \"\" {directives}"
        ))
    }

    /// Returns this command line with more arguments.
    pub fn with(&self, directives: &str) -> Result<Template> {
        let more = quoted::split(directives).ok_or_else(|| anyhow!("unbalanced quotes: {directives}"))?;
        let mut template = self.clone();
        template.arguments.extend(more.iter().map(|a| String::from_utf8_lossy(a).into_owned()));
        Ok(template)
    }

    /// Returns this command line confined to one core.
    pub fn pinned_to(&self, cpu: u32) -> Template {
        let mut arguments = vec!["taskset".to_string(), "-c".to_string(), cpu.to_string()];
        arguments.extend(self.arguments.iter().cloned());
        Template { arguments }
    }

    /// Returns this command line run by another one, which becomes the server's process.
    pub fn behind(&self, line: &str) -> Result<Template> {
        let words = quoted::split(line).ok_or_else(|| anyhow!("unbalanced quotes: {line}"))?;
        let words = words.iter().map(|a| String::from_utf8_lossy(a).into_owned());
        Ok(Template { arguments: words.chain(self.arguments.iter().cloned()).collect() })
    }

    /// Runs our binary's `check` on a data directory without a running server; returns false if the server is not ours:
    /// its command line has no word `server`.
    pub fn check(&self, dir: &Path) -> Result<bool> {
        let is_ours = |pair: &&[String]| pair[1] == "server";
        let Some([binary, _]) = self.arguments.windows(2).find(is_ours) else { return Ok(false) };
        check(binary, dir).map(|()| true)
    }

    /// Returns the words of the command line for a port and a directory.
    pub fn filled(&self, port: u16, dir: &Path) -> Vec<String> {
        let dir = dir.display().to_string();
        let fill = |a: &String| a.replace("{port}", &port.to_string()).replace("{dir}", &dir);
        self.arguments.iter().map(fill).collect()
    }
}

/// Runs the `check` of a binary of ours on a data directory without a running server.
pub fn check(binary: &str, dir: &Path) -> Result<()> {
    let output = Command::new(binary).arg("check").arg(dir).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {binary} check"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (lines, errors) = (said(&output.stdout), said(&output.stderr));
    ensure!(output.status.success(), "haypile check {}: {}\n{lines}{errors}", dir.display(), output.status);
    Ok(())
}

/// Returns the server's binary: `HAYPILE_BIN`, else `haypile` beside this program (a test's own file is one folder
/// deeper).
pub fn haypile_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HAYPILE_BIN") {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "HAYPILE_BIN names {}, which is not a file", path.display());
        return Ok(path);
    }
    let own = std::env::current_exe().context("where this program lies")?;
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("haypile"));
    beside
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| anyhow!("no haypile beside {}: build it (make build), or name it in HAYPILE_BIN", own.display()))
}

/// A directory of this process, removed when the value is dropped, unless it is kept.
#[derive(Debug)]
pub struct Workplace {
    path: PathBuf,
    kept: bool,
}

impl Workplace {
    /// Makes a directory below `parent` if one is given, else below the system's directory for temporary files.
    pub fn new(name: &str, parent: Option<&Path>) -> Result<Workplace> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("haypile-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("data")).with_context(|| format!("making {}", path.display()))?;
        Ok(Workplace { path, kept: false })
    }

    /// Uses `path`, made if it is missing, and keeps it.
    pub fn at(path: &Path) -> Result<Workplace> {
        fs::create_dir_all(path.join("data")).with_context(|| format!("making {}", path.display()))?;
        Ok(Workplace { path: path.to_owned(), kept: true })
    }

    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Returns the path of another file of this directory, beside the data.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Leaves the directory where it is, so that a failure can be examined.
    pub fn keep(&mut self) -> &Path {
        self.kept = true;
        &self.path
    }

    /// Returns the output of servers in this directory.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log()).unwrap_or_default()).into_owned()
    }

    /// Returns the last lines of output of servers in this directory.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing depends on the removal: a directory that stays is only untidy.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The cost of a start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Seconds from the start of the process to the first PONG.
    pub seconds: f64,
    /// The number of PINGs that were answered by -LOADING.
    pub loading_replies: u64,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts the process and does not wait for it to answer.
    pub fn spawn(template: &Template, place: &Workplace) -> Result<Server> {
        Server::spawn_at(template, place, free_port()?)
    }

    /// Starts the process on a port that others know it by, and does not wait for it to answer.
    pub fn spawn_at(template: &Template, place: &Workplace, port: u16) -> Result<Server> {
        let arguments = template.filled(port, &place.data());
        let log = File::options().create(true).append(true).open(place.log())?;
        // setpriv replaces itself by the server, which then dies with this program, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", arguments.join(" ")))?;
        Ok(Server { child, port })
    }

    /// Starts the process and waits until it answers PING.
    pub fn start(template: &Template, place: &Workplace) -> Result<(Server, Start)> {
        Server::start_at(template, place, free_port()?)
    }

    /// Starts the process on a port that others know it by, and waits until it answers PING.
    pub fn start_at(template: &Template, place: &Workplace, port: u16) -> Result<(Server, Start)> {
        let mut server = Server::spawn_at(template, place, port)?;
        match server.wait_ready() {
            Ok(start) => Ok((server, start)),
            Err(error) => Err(error.context(format!("its last lines:\n{}", place.log_tail()))),
        }
    }

    /// Waits for PONG, through refused connections and -LOADING.
    pub fn wait_ready(&mut self) -> Result<Start> {
        let begin = Instant::now();
        let mut start = Start::default();
        let mut connection: Option<Client> = None;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended while it started: {status}");
            }
            connection = connection.or_else(|| Client::connect(self.port, REPLY_TIMEOUT).ok());
            if let Some(client) = &mut connection {
                let reply = match client.command("PING") {
                    Ok(reply) => reply,
                    // Another process may have had the port before, or none listens yet: not ours.
                    Err(_) if begin.elapsed() < START_MAX => {
                        connection = None;
                        sleep(POLL);
                        continue;
                    }
                    Err(error) => return Err(error).context("PING while the server starts"),
                };
                match (reply.error(), reply.bytes()) {
                    (None, Some(b"PONG")) => {
                        start.seconds = begin.elapsed().as_secs_f64();
                        return Ok(start);
                    }
                    (Some(text), _) if text.starts_with("LOADING") => start.loading_replies += 1,
                    _ => bail!("PING was answered by {reply}"),
                }
            }
            ensure!(begin.elapsed() < START_MAX, "no answer to PING within {} s", START_MAX.as_secs());
            sleep(POLL);
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> Result<Client> {
        Client::connect(self.port, REPLY_TIMEOUT).context("connecting to the server")
    }

    /// Returns the status of a process that has ended by itself.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks the process to stop, and does not wait.
    pub fn terminate(&mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("sending SIGTERM")
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill().context("sending SIGKILL")?;
        Ok(self.child.wait()?)
    }

    /// Waits for a process that was asked to stop; kills it when it does not stop, which is an error.
    pub fn wait_ended(&mut self) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if begin.elapsed() > STOP_MAX {
                self.kill()?;
                bail!("the server did not stop within {} s of SIGTERM", STOP_MAX.as_secs());
            }
            sleep(POLL);
        }
    }

    /// Stops the server cleanly: SIGTERM, and an exit status of success.
    pub fn stop(mut self) -> Result<()> {
        self.terminate()?;
        let status = self.wait_ended()?;
        ensure!(status.success(), "the server stopped with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already, which is just as well.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_needs_its_two_marks() {
        assert!(Template::parse("x --port {port}").is_err());
        let template = Template::parse("x --port {port} --dir \"{dir}/a b\"").expect("it has both marks");
        let filled = template.with("--more 1").expect("no quotes").filled(7, Path::new("/d"));
        assert_eq!(filled, ["x", "--port", "7", "--dir", "/d/a b", "--more", "1"]);
    }

    #[test]
    fn a_workplace_goes_away_unless_it_is_kept() {
        let place = Workplace::new("test", None).expect("the temporary directory is writable");
        let path = place.data();
        assert!(path.is_dir());
        drop(place);
        assert!(!path.exists());
    }
}
