//! etcd, and its own client as the load: `etcd-load` is a Go program that is built when the bench begins.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Options;
use super::cases::{Figures, KEYS, Load, Op, Seen};
use super::group::{Group, free_ports};
use crate::server::{Template, Workplace};

/// The sources of `etcd-load`.
const SOURCES: [(&str, &str); 3] = [
    ("main.go", include_str!("etcd-load/main.go")),
    ("go.mod", include_str!("etcd-load/go.mod")),
    ("go.sum", include_str!("etcd-load/go.sum")),
];

/// The program `etcd-load`, removed when the value is dropped.
pub struct Client {
    program: PathBuf,
    _place: Workplace,
}

impl Client {
    /// Builds the program; the first build fetches etcd's client.
    pub fn build() -> Result<Client> {
        let place = Workplace::new("etcd-load", None)?;
        for (name, text) in SOURCES {
            fs::write(place.data().join(name), text).with_context(|| format!("writing {name}"))?;
        }
        let program = place.file("etcd-load");
        let built = Command::new("go")
            .args(["build", "-buildvcs=false", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(place.data())
            .env("CGO_ENABLED", "0")
            .output()
            .context("starting go, which builds etcd's client")?;
        ensure!(built.status.success(), "go build: {}", String::from_utf8_lossy(&built.stderr));
        Ok(Client { program, _place: place })
    }

    fn start(&self, arguments: &[String]) -> Result<Running> {
        // setpriv replaces itself by the client, which then dies with this program, however that ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting etcd-load")?;
        let (input, output) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("a pipe")?);
        Ok(Running { child, input, lines: BufReader::new(output) })
    }
}

/// A client that runs; it is killed when the value is dropped.
pub struct Running {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("reading from etcd-load")?;
        ensure!(line.ends_with('\n'), "etcd-load has ended; its error is above");
        Ok(line.trim_end().to_string())
    }

    fn wait(mut self) -> Result<()> {
        let status = self.child.wait().context("waiting for etcd-load")?;
        ensure!(status.success(), "etcd-load: {status}");
        Ok(())
    }

    /// Waits for the next acknowledgement that was long in coming; returns when it came, since 1970.
    pub fn acknowledged_after_a_gap(&mut self) -> Result<Duration> {
        Ok(Duration::from_nanos(self.line()?.parse().context("a time")?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already, which is just as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the version of the installed server.
pub fn version() -> Result<String> {
    let output = Command::new("etcd").arg("--version").output().context("starting etcd, which must be installed")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
    Ok(version.with_context(|| format!("no version: {text}"))?.to_string())
}

fn endpoint(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Starts three servers, and waits until they agree on a leader.
pub fn start(client: &Client, dir: &Path) -> Result<Group> {
    let (ports, peers) = (free_ports(3)?, free_ports(3)?);
    let members: Vec<_> = peers.iter().zip(1..).map(|(peer, id)| format!("n{id}={}", endpoint(*peer))).collect();
    let members = members.join(",");
    let node = |((&port, &peer), id): ((&u16, &u16), u32)| {
        // The quota's default of 2 GB would end a long round. Times are etcd's defaults.
        let template = Template::parse(&format!(
            "etcd --name n{id} --data-dir {{dir}} --listen-client-urls http://127.0.0.1:{{port}} \
             --advertise-client-urls http://127.0.0.1:{{port}} --listen-peer-urls {peer} \
             --initial-advertise-peer-urls {peer} --initial-cluster {members} --initial-cluster-state new \
             --quota-backend-bytes 8589934592 --logger zap --log-level warn",
            peer = endpoint(peer),
        ))?;
        Ok((port, template))
    };
    let nodes = ports.iter().zip(&peers).zip(1..).map(node).collect::<Result<Vec<_>>>()?;
    let mut group = Group::spawn("bench-etcd", dir, &nodes)?;
    let found = wait_for_leader(client, &group);
    group.check_running()?;
    group.leader = found?;
    Ok(group)
}

fn endpoints(group: &Group) -> String {
    group.nodes.iter().map(|node| endpoint(node.port())).collect::<Vec<_>>().join(",")
}

/// Waits until all members agree on a leader; returns its place.
pub fn wait_for_leader(client: &Client, group: &Group) -> Result<usize> {
    let mut running = client.start(&["leader".into(), endpoints(group)])?;
    let leader = running.line()?.parse().context("the place of a leader")?;
    running.wait()?;
    Ok(leader)
}

/// Starts a client that writes one value after the other, each until it is acknowledged, to any node of a group.
pub fn retry(client: &Client, group: &Group) -> Result<Running> {
    client.start(&["retry".into(), endpoints(group)])
}

/// Measures a load on servers of its own. The clients talk to the leader, which is etcd's quickest way.
pub fn measure(options: &Options, client: &Client, load: Load) -> Result<Figures> {
    ensure!(load.pipeline == 1, "etcd's client has no pipeline");
    let group = start(client, &options.dir)?;
    let arguments = |mode: &str, connections: usize| -> Vec<String> {
        let leader = endpoint(group.leader_port());
        vec![mode.into(), leader, connections.to_string(), load.value_bytes.to_string(), KEYS.to_string()]
    };
    if load.op == Op::Get {
        client.start(&arguments("fill", 50))?.wait()?;
    }
    let mut words = arguments(if load.op == Op::Put { "put" } else { "get" }, load.connections);
    words.extend([options.warm(), options.window].map(|time| time.as_secs_f64().to_string()));
    let mut running = client.start(&words)?;
    let ready = running.line()?;
    ensure!(ready == "ready", "etcd-load is not ready: {ready}");
    let before = group.read_cpu();
    writeln!(running.input, "go").context("telling etcd-load to begin")?;
    let line = running.line()?;
    let cost = group.cost_since(before);
    running.wait()?;
    Ok(seen(&line)?.at_cost(cost))
}

/// Reads the line of figures: requests, seconds, p50 and p99 in microseconds, CPU seconds.
fn seen(line: &str) -> Result<Seen> {
    let figures: Vec<f64> = line.split(' ').map(|figure| figure.parse().unwrap_or(f64::NAN)).collect();
    let [requests, seconds, p50_us, p99_us, cpu_seconds] = figures[..] else {
        anyhow::bail!("no line of figures: {line}");
    };
    ensure!(figures.iter().all(|figure| figure.is_finite()), "no line of figures: {line}");
    Ok(Seen { requests: requests as u64, time: Duration::from_secs_f64(seconds), p50_us, p99_us, cpu_seconds })
}

#[cfg(test)]
mod tests {
    use super::super::cases::Cost;
    use super::*;

    #[test]
    fn figures_are_read_by_their_place() {
        let seen = seen("1000 0.5 2000 9000 0.25").expect("five figures");
        let figures = seen.at_cost(Cost { servers: 1.5, leader: 1.0, others: 0.25 });
        assert_eq!((figures.rate, figures.p50_ms, figures.p99_ms), (2000.0, 2.0, 9.0));
        assert_eq!((figures.cpu_us, figures.leader_cpu_us, figures.client_cpu_us), (1500.0, 1000.0, 250.0));
        assert_eq!(figures.others, 0.0, "nothing but servers and client worked");
        assert!(super::seen("1000 0.5").is_err() && super::seen("a b c d e").is_err());
    }
}
