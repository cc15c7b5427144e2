//! The network of a group: a network namespace for each node and a bridge between them, all inside namespaces of this
//! process alone, which end with it. Where this process may not make them, a group is on the loopback, with a relay for
//! each direction of connecting if the system's nodes may know each other by different addresses.
//!
//! In namespaces a direction is cut by a wrong hardware address for the receiver: packets leave and nobody takes them,
//! as when a cable is pulled. A relay stalls the connections that one node has made to the other.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::system::Member;
use crate::port::free_port;
use crate::repl::network::{Flow, Relay};

/// The variable in the environment of the program that runs in namespaces of its own.
const INSIDE: &str = "HAYPILE_CHAOS_NAMESPACES";
/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:99";
const BRIDGE: &str = "chaos";
/// The ports of nodes with an address of their own.
const PORTS: (u16, u16) = (6379, 6380);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The loopback interface, of which nothing can be cut.
    Loopback,
    Relays,
    Namespaces,
}

/// An end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(usize),
    Clients,
}

/// Starts this program anew in network and mount namespaces of its own, if it may make them and is not there yet.
/// Returns only if it stays where it is: in them, or without them.
pub fn enter() -> Result<Option<Network>> {
    if std::env::var_os(INSIDE).is_some() {
        prepare()?;
        return Ok(Some(Network::Namespaces));
    }
    let unshare = ["--net", "--mount", "--propagation", "private"];
    let mut probe = Command::new("unshare");
    probe.args(unshare).args(["ip", "link", "add", BRIDGE, "type", "bridge"]);
    let may = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return Ok(None);
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
        if self != Network::Namespaces {
            let (client_port, peer_port) = (free_port()?, free_port()?);
            return Ok(Member { number, ip: Ipv4Addr::LOCALHOST, client_port, peer_port });
        }
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
}

/// The links between the nodes of one group.
pub struct Links {
    network: Network,
    /// The relays by who connects and to whom.
    relays: BTreeMap<(usize, usize), Relay>,
}

impl Links {
    /// Makes the links between nodes at their places.
    pub fn new(network: Network, members: &[Member]) -> Result<Links> {
        let mut relays = BTreeMap::new();
        let pairs = members.iter().flat_map(|from| members.iter().map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| network == Network::Relays && from != to) {
            let relay = Relay::start()?;
            relay.lead_to(to.peer_port);
            relays.insert((from.number, to.number), relay);
        }
        Ok(Links { network, relays })
    }

    pub fn can_cut(&self) -> bool {
        self.network != Network::Loopback
    }

    /// Returns a member as a node is to know it.
    pub fn seen_by(&self, node: usize, mut member: Member) -> Member {
        if let Some(relay) = self.relays.get(&(node, member.number)) {
            member.peer_port = relay.port();
        }
        member
    }

    /// Returns the words before a command line that runs at a node's place.
    pub fn prefix(&self, number: usize) -> Vec<String> {
        match self.network {
            Network::Loopback | Network::Relays => Vec::new(),
            Network::Namespaces => vec!["nsenter".into(), format!("--net=/run/netns/node{number}")],
        }
    }

    /// Makes all wait that a node sends, by a queue of the kernel's in namespaces; returns whether that could be done.
    pub fn slow_down(&self, node: usize, delay: Duration) -> Result<bool> {
        let milliseconds = delay.as_millis();
        match self.network {
            Network::Loopback => return Ok(false),
            Network::Relays => {
                self.relays.iter().filter(|((from, _), _)| *from == node).for_each(|(_, relay)| relay.slow_down(delay));
            }
            Network::Namespaces if delay.is_zero() => {
                // The node may have no queue to take away.
                let _ = run("tc", &format!("-n node{node} qdisc del dev eth0 root"));
            }
            Network::Namespaces => {
                let queue = format!("-n node{node} qdisc replace dev eth0 root netem delay {milliseconds}ms");
                return Ok(run("tc", &queue).is_ok());
            }
        }
        Ok(true)
    }

    /// Swallows all packets in one direction, or lets them pass again. Relays do not lie between nodes and clients.
    pub fn set_cut(&self, from: Place, to: Place, cut: bool) -> Result<()> {
        if self.network == Network::Namespaces {
            return set_neighbour(from, to, cut);
        }
        ensure!(self.can_cut(), "nothing can be cut on the loopback");
        if let (Place::Node(from), Place::Node(to)) = (from, to)
            && let Some(relay) = self.relays.get(&(from, to))
        {
            relay.set(if cut { Flow::Stalled } else { Flow::Open });
        }
        Ok(())
    }
}

/// Gives the receiver an address that nobody has, or has its own one found again.
fn set_neighbour(from: Place, to: Place, cut: bool) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Sends a byte to a node as another one knows it; returns whether it arrives within a while.
    fn arrives(links: &Links, listener: &TcpListener, from: usize, to: Member) -> bool {
        let port = links.seen_by(from, to).peer_port;
        let mut sender = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a relay listens");
        sender.write_all(b"x").expect("a relay takes it");
        for _ in 0..40 {
            if let Ok((mut receiver, _)) = listener.accept() {
                receiver.set_nonblocking(false).expect("it can be set");
                return receiver.read_exact(&mut [0]).is_ok();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    #[test]
    fn relays_cut_one_direction() {
        let listeners = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free"));
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).expect("it can be set"));
        let port = |number: usize| listeners[number].local_addr().expect("it is bound").port();
        let member = |number| Member { number, ip: Ipv4Addr::LOCALHOST, client_port: 1, peer_port: port(number) };
        let members = [member(0), member(1)];
        let links = Links::new(Network::Relays, &members).expect("ports are free");
        assert_eq!(links.seen_by(1, members[1]), members[1]);
        assert!(arrives(&links, &listeners[1], 0, members[1]) && arrives(&links, &listeners[0], 1, members[0]));
        links.set_cut(Place::Node(0), Place::Node(1), true).expect("it can be cut");
        assert!(!arrives(&links, &listeners[1], 0, members[1]) && arrives(&links, &listeners[0], 1, members[0]));
        links.set_cut(Place::Node(0), Place::Node(1), false).expect("it can be healed");
        assert!(arrives(&links, &listeners[1], 0, members[1]));
    }
}
