//! A node's process: started at its place in the network, stopped and continued, killed by its id.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A running process, which is killed when it is dropped or when the thread that has started it ends.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub is_frozen: bool,
}

impl Process {
    /// Starts a command line with these variables; its output goes to the end of a file.
    pub fn start(words: &[String], variables: &[(String, String)], log: &Path) -> Result<Process> {
        let log = File::options().create(true).append(true).open(log).context("the file for a node's output")?;
        // setpriv replaces itself by the node, which then dies with this program, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(words).envs(variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {}", words.join(" ")))?;
        Ok(Process { child, is_frozen: false })
    }

    /// Returns the status of a process that has ended by itself.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Stops the process where it is, or lets it go on.
    pub fn freeze(&mut self, frozen: bool) -> Result<()> {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.child), signal).context("SIGSTOP or SIGCONT")?;
        self.is_frozen = frozen;
        Ok(())
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("sending SIGKILL")?;
        self.child.wait().map(drop).context("waiting for a killed process")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already, which is just as well.
        let _ = self.kill();
    }
}
