//! The network of a group: a network namespace for each node and a bridge between them, all inside namespaces of this
//! process alone, which end with it. A group without them is on the loopback, where nothing can be cut.
//!
//! A direction is cut by a wrong hardware address for the receiver: packets leave and nobody takes them, as when a
//! cable is pulled.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::system::Member;
use crate::port::free_port;

/// Set in the environment of the program that runs in namespaces of its own.
const INSIDE: &str = "HAYPILE_CHAOS_NAMESPACES";
/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:99";
const BRIDGE: &str = "chaos";
/// The ports of nodes with an address of their own.
const PORTS: (u16, u16) = (6379, 6380);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Loopback,
    Namespaces,
}

/// An end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(usize),
    Clients,
}

/// Starts this program anew in network and mount namespaces of its own, if it may make them and is not there yet.
/// Returns only if it stays where it is.
pub fn enter() -> Result<Network> {
    if std::env::var_os(INSIDE).is_some() {
        prepare()?;
        return Ok(Network::Namespaces);
    }
    let unshare = ["--net", "--mount", "--propagation", "private"];
    let mut probe = Command::new("unshare");
    probe.args(unshare).args(["ip", "link", "add", BRIDGE, "type", "bridge"]);
    let may = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return Ok(Network::Loopback);
    }
    let own = std::env::current_exe().context("where this program lies")?;
    let error =
        Command::new("unshare").args(unshare).arg(own).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
    Err(error).context("starting in namespaces of its own")
}

/// Makes the bridge, and a place for names of namespaces that nobody else sees.
fn prepare() -> Result<()> {
    std::fs::create_dir_all("/run/netns").context("making /run/netns")?;
    run("mount", "-t tmpfs tmpfs /run/netns")?;
    run("ip", "link set lo up")?;
    run("ip", &format!("link add {BRIDGE} type bridge"))?;
    run("ip", &format!("addr add {}/24 dev {BRIDGE}", address(Place::Clients)))?;
    run("ip", &format!("link set {BRIDGE} up"))
}

fn address(place: Place) -> Ipv4Addr {
    match place {
        Place::Node(number) => Ipv4Addr::new(10, 77, 0, 1 + number as u8),
        Place::Clients => Ipv4Addr::new(10, 77, 0, 254),
    }
}

fn run(program: &str, arguments: &str) -> Result<()> {
    let output = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} must be installed"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments}: {error}");
    Ok(())
}

impl Network {
    /// Makes a node's place, if it is not there from an earlier group.
    pub fn member(self, number: usize) -> Result<Member> {
        let Network::Namespaces = self else {
            return Ok(Member { number, ip: Ipv4Addr::LOCALHOST, client_port: free_port()?, peer_port: free_port()? });
        };
        let ip = address(Place::Node(number));
        let (name, link) = (format!("node{number}"), format!("{BRIDGE}{number}"));
        if !std::path::Path::new("/run/netns").join(&name).exists() {
            run("ip", &format!("netns add {name}"))?;
            run("ip", &format!("link add {link} type veth peer name eth0 netns {name}"))?;
            run("ip", &format!("link set {link} master {BRIDGE} up"))?;
            run("ip", &format!("-n {name} addr add {ip}/24 dev eth0"))?;
            run("ip", &format!("-n {name} link set eth0 up"))?;
            run("ip", &format!("-n {name} link set lo up"))?;
        }
        Ok(Member { number, ip, client_port: PORTS.0, peer_port: PORTS.1 })
    }

    /// Returns the words before a command line that runs at a node's place.
    pub fn prefix(self, number: usize) -> Vec<String> {
        match self {
            Network::Loopback => Vec::new(),
            Network::Namespaces => vec!["nsenter".into(), format!("--net=/run/netns/node{number}")],
        }
    }

    /// Swallows all packets in one direction, or lets them pass again.
    pub fn set_cut(self, from: Place, to: Place, cut: bool) -> Result<()> {
        ensure!(self == Network::Namespaces, "nothing can be cut on the loopback");
        let (at, device) = match from {
            Place::Node(number) => (format!("-n node{number} "), "eth0"),
            Place::Clients => (String::new(), BRIDGE),
        };
        let to = address(to);
        if cut {
            run("ip", &format!("{at}neigh replace {to} lladdr {NOBODY} nud permanent dev {device}"))
        } else {
            run("ip", &format!("{at}neigh del {to} dev {device}"))
        }
    }
}
