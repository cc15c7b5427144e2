//! Three Sentinels of Redis over a master and two replicas: whatever becomes of the master, another one leads, clients
//! go on, and the former master follows when it is back.

mod process;

use haypile_harness::repl::network::{Flow, Relay};
use process::following::{DEBUG, field, is_equal, print_log, wait_for_link};
use process::{Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Process(command.spawn().expect("the test's tools are installed"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server, which all others reach through a relay, by the relay's port.
struct Member {
    server: Server,
    relay: Relay,
}

impl Member {
    fn start(dir: &Path, master: Option<u16>) -> Member {
        let relay = Relay::start().expect("a port is free");
        let server = Member::serve(dir, &relay, master);
        relay.lead_to(server.port);
        Member { server, relay }
    }

    fn serve(dir: &Path, relay: &Relay, master: Option<u16>) -> Server {
        let (announced, master) = (relay.port().to_string(), master.map(|master| master.to_string()));
        let mut more = [&DEBUG[..], &["--replica-announce-port", &announced]].concat();
        more.extend(master.iter().flat_map(|master| ["--replicaof", "127.0.0.1", master]));
        Server::start(dir, &more)
    }

    fn port(&self) -> u16 {
        self.relay.port()
    }

    /// Starts the server again, as the master that it was: it takes a write before anybody reaches it.
    fn restart(&mut self, dir: &Path) {
        self.server = Member::serve(dir, &self.relay, None);
        assert_eq!(self.server.client().ask("SET beyond the-fork"), "+OK\r\n");
        self.relay.lead_to(self.server.port);
    }
}

/// Builds the program of go-redis, which the first build fetches.
fn go_redis() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-redis-sentinel");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".").env("CGO_ENABLED", "0");
    let built = build.current_dir(Path::new(&here).join("../harness/tests/data/go-redis")).output();
    let built = built.expect("go must be installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Starts a Sentinel that watches the master at this port, with the configuration that we give to others but for
/// addresses and times.
fn sentinel(dir: &Path, port: u16, master: u16) -> Process {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
    let given = std::fs::read_to_string(Path::new(&here).join("../../deploy/sentinel.conf")).expect("it is there");
    let mut config = format!("dir {}\n{given}", dir.display());
    for (theirs, ours) in [
        ("port 26379", format!("port {port}")),
        ("bind 0.0.0.0", "bind 127.0.0.1".into()),
        ("monitor haypile haypile-1 6379", format!("monitor haypile 127.0.0.1 {master}")),
        ("down-after-milliseconds haypile 5000", "down-after-milliseconds haypile 1500".into()),
        ("failover-timeout haypile 60000", "failover-timeout haypile 4000".into()),
    ] {
        assert!(config.contains(theirs), "{theirs}");
        config = config.replace(theirs, &ours);
    }
    let file = dir.join("sentinel.conf");
    std::fs::write(&file, config).expect("it is ours");
    Process::start(Command::new("redis-server").arg(file).arg("--sentinel"))
}

/// Returns the port of the master, as a Sentinel says.
fn master_port(sentinel: &mut Client<TcpStream>) -> u16 {
    let address = sentinel.ask("SENTINEL get-master-addr-by-name haypile");
    address.lines().nth(4).and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{address}"))
}

/// Whether a server takes writes. Sentinels close all clients of a server that they reconfigure.
fn takes_writes(port: u16) -> bool {
    let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
    listens && Client::at(port).try_ask("SET led x").is_some_and(|reply| reply == "+OK\r\n")
}

/// Whether a server takes the records of the master at this port.
fn follows(server: &Server, master: u16) -> bool {
    server.client().try_ask("INFO replication").is_some_and(|info| {
        info.contains(&format!("master_port:{master}\r\n")) && info.contains("master_link_status:up\r\n")
    })
}

/// Returns the replicas that a Sentinel tells of: the port of each, and its priority.
fn replicas_of(sentinel: &mut Client<TcpStream>) -> Vec<(u16, u32)> {
    let reply = sentinel.ask("SENTINEL replicas haypile");
    let words: Vec<&str> = reply.split("\r\n").filter(|word| !word.starts_with(['$', '*'])).collect();
    let values = |name: &str| -> Vec<u32> {
        let pairs = words.windows(2).filter(|pair| pair[0] == name);
        pairs.filter_map(|pair| pair[1].parse().ok()).collect()
    };
    let ports = values("port").into_iter().map(|port| u16::try_from(port).expect("it is a port"));
    ports.zip(values("slave-priority")).collect()
}

/// Has the Sentinels take another master, which is not to be the replica of the priority 0. Before that they tell
/// nobody of this one while it is not announced.
fn ask_for_another(sentinels: &[u16], members: &[Member], master: u16) {
    let mut sentinels: Vec<Client<TcpStream>> = sentinels.iter().map(|port| Client::at(*port)).collect();
    // Sentinels look each ten seconds.
    let looks_every = |sentinels: &mut [Client<TcpStream>], ms: u32| {
        for sentinel in sentinels {
            assert_eq!(sentinel.ask(&format!("SENTINEL DEBUG info-period {ms}")), "+OK\r\n");
        }
    };
    looks_every(&mut sentinels, 1000);
    let avoided = members.iter().find(|member| member.port() != master).expect("there are three");
    let set = |directive: &str| {
        assert_eq!(avoided.server.client().ask(&format!("CONFIG SET {directive}")), "+OK\r\n");
    };
    let wait_for = |sentinels: &mut [Client<TcpStream>], what: &str, priority: Option<u32>| {
        wait_until(what, || {
            sentinels.iter_mut().all(|sentinel| {
                let known = replicas_of(sentinel);
                let found = known.iter().find(|(port, _)| *port == avoided.port()).map(|(_, priority)| *priority);
                found == priority && known.len() == 1 + usize::from(priority.is_some())
            })
        });
    };
    set("replica-announced no");
    assert_eq!(field(&mut avoided.server.client(), "replica_announced"), "0");
    wait_for(&mut sentinels, "nobody is told of it", None);
    set("replica-announced yes");
    set("replica-priority 0");
    wait_for(&mut sentinels, "its priority is known", Some(0));
    wait_until("it begins", || sentinels[0].ask("SENTINEL failover haypile") == "+OK\r\n");
    wait_until("another one takes writes", || {
        let now = master_port(&mut sentinels[0]);
        now != master && takes_writes(now)
    });
    assert_ne!(master_port(&mut sentinels[0]), avoided.port(), "its priority is 0");
    set("replica-priority 100");
    wait_until("its priority is known", || {
        let knows = |sentinel| replicas_of(sentinel).contains(&(avoided.port(), 100));
        sentinels.iter_mut().all(knows)
    });
    looks_every(&mut sentinels, 10_000);
}

/// The things that become of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Somebody asks the Sentinels for another master.
    Asked,
    Killed,
    /// The process is stopped, and goes on later.
    Stopped,
    /// Nobody reaches it, and nobody is told.
    CutOff,
}

#[test]
fn sentinels_find_another_master_and_clients_go_on() {
    let dirs: Vec<TempDir> = (0..6).map(|_| TempDir::new()).collect();
    let master = Member::start(dirs[0].path(), None);
    let first_port = master.port();
    let replicas = [&dirs[1], &dirs[2]].map(|dir| Member::start(dir.path(), Some(first_port)));
    replicas.iter().for_each(|replica| wait_for_link(&replica.server));
    let mut members: Vec<Member> = std::iter::once(master).chain(replicas).collect();
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let sentinels: Vec<Process> =
        ports.iter().zip(&dirs[3..]).map(|(port, dir)| sentinel(dir.path(), *port, first_port)).collect();
    wait_until("the Sentinels listen", || ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()));
    let mut asked = Client::at(ports[0]);
    wait_until("the Sentinels know all", || {
        let known = asked.ask("SENTINEL master haypile").replace("\r\n", " ");
        ["num-slaves $1 2", "num-other-sentinels $1 2"].iter().all(|fact| known.contains(fact))
    });
    let python = std::env::var("HAYPILE_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_string());
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
    let script = Path::new(&here).join("tests/data/sentinel.py");
    let words: Vec<String> = ports.iter().map(u16::to_string).collect();
    let clients = [
        Process::start(Command::new(python).arg(script).args(&words)),
        Process::start(Command::new(go_redis()).arg("sentinel").args(&words).stderr(Stdio::null())),
    ];
    for end in [End::Asked, End::Killed, End::Stopped, End::CutOff] {
        let before = master_port(&mut asked);
        let at = members.iter().position(|member| member.port() == before).expect("it is one of these");
        match end {
            End::Asked => ask_for_another(&ports, &members, before),
            End::Killed => members[at].server.kill_now(),
            End::Stopped => members[at].server.halt(),
            End::CutOff => members[at].relay.set(Flow::Stalled),
        }
        wait_until("another one takes writes", || {
            let now = master_port(&mut asked);
            now != before && takes_writes(now)
        });
        for library in ["redis-py", "go-redis"] {
            let count = |port| Client::at(port).try_ask(&format!("GET {library}")).unwrap_or_default();
            let earlier = count(master_port(&mut asked));
            wait_until("the client goes on", || count(master_port(&mut asked)) != earlier);
        }
        match end {
            End::Asked => {}
            End::Killed => members[at].restart(dirs[at].path()),
            End::Stopped => members[at].server.signal("CONT"),
            End::CutOff => members[at].relay.set(Flow::Open),
        }
        // The Sentinels may change their minds meanwhile, on a machine that is slow.
        wait_until("the others follow it", || {
            let now = master_port(&mut asked);
            members.iter().filter(|member| member.port() != now).all(|member| follows(&member.server, now))
        });
        if end == End::Killed {
            let tails = std::fs::read_dir(dirs[at].path().join("tails")).expect("it has given up records");
            let printed: Vec<String> = tails.map(|tail| print_log(&tail.expect("readable").path())).collect();
            assert!(printed.iter().any(|tail| tail.contains("beyond\" (")), "{printed:?}");
        }
    }
    drop(clients);
    let now = master_port(&mut asked);
    let leads = members.iter().find(|member| member.port() == now).expect("it is one of these");
    wait_until("both others follow it", || field(&mut leads.server.client(), "connected_slaves") == "2");
    let others = members.iter().filter(|member| member.port() != now);
    others.for_each(|other| is_equal(&leads.server, &other.server));
    drop(sentinels);
    members.into_iter().for_each(|member| member.server.stop());
}
