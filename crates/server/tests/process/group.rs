//! Three servers that are a Raft group.

use super::{Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;

/// The directives with which elections are short.
pub const QUICK: [&str; 4] = ["--raft-election-timeout", "1500", "--raft-heartbeat-interval", "100"];

pub struct Group {
    pub dirs: Vec<TempDir>,
    pub ports: Vec<u16>,
    /// The ports by which they know each other.
    pub known_by: Vec<u16>,
    pub servers: Vec<Option<Server>>,
    /// The directives of servers that are begun from now on.
    pub more: Vec<&'static str>,
}

impl Group {
    /// Starts three servers, and waits until all know the leader and it hears of all.
    pub fn start(more: &[&'static str]) -> Group {
        let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
        Group::start_behind(ports.clone(), ports, more)
    }

    /// Starts servers at these ports that know each other by others, where something is in between.
    pub fn start_behind(ports: Vec<u16>, known_by: Vec<u16>, more: &[&'static str]) -> Group {
        let dirs: Vec<_> = (0..3).map(|_| TempDir::new()).collect();
        let mut group = Group { dirs, ports, known_by, servers: (0..3).map(|_| None).collect(), more: more.to_vec() };
        (0..3).for_each(|at| group.begin(at));
        // Two of them may elect a leader before the third one is there.
        wait_until("all know the leader, and it hears of all", || {
            let leader = group.leader();
            let (id, page) = ((leader + 1).to_string(), group.client(leader).ask("INFO raft"));
            let knows = |at: usize| raft(&mut group.client(at), "leader_id") == id;
            page.matches(",active=1,").count() == 2 && (0..3).all(knows)
        });
        group
    }

    pub fn begin(&mut self, at: usize) {
        let peers: Vec<_> = (1..4).zip(&self.known_by).map(|(id, port)| format!("{id}@127.0.0.1:{port}")).collect();
        let (id, peers) = ((at + 1).to_string(), peers.join(","));
        let mut words = vec!["--raft-node-id", &id, "--raft-peers", &peers];
        words.extend(QUICK);
        words.extend(&self.more);
        self.servers[at] = Some(Server::start_at(self.dirs[at].path(), self.ports[at], &words));
    }

    pub fn client(&self, at: usize) -> Client<TcpStream> {
        self.servers[at].as_ref().expect("it is up").client()
    }

    pub fn kill(&mut self, at: usize) {
        self.servers[at].take().expect("it is up").kill();
    }

    pub fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|at| self.servers[*at].is_some())
    }

    /// Waits until one of the servers that are up leads, and returns it.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("one leads", || {
            leader = self.up().find(|at| raft(&mut self.client(*at), "role") == "leader");
            leader.is_some()
        });
        leader.expect("it was found")
    }

    /// Has the leader hand over to another member, and waits until that one leads. A hand-over that takes long is given
    /// up, and begun again.
    pub fn hand_over(&self, leader: usize, to: usize) {
        let order = format!("RAFT.TRANSFER-LEADER {}", to + 1);
        let answer = self.client(leader).ask(&order);
        let given_up = "-ERR the other member did not take over\r\n";
        assert!(answer == "+OK\r\n" || answer == given_up, "{answer}");
        wait_until("the other member leads", || {
            let leads = raft(&mut self.client(to), "role") == "leader";
            if !leads && answer == given_up {
                self.client(leader).try_ask(&order);
            }
            leads
        });
    }

    /// Waits until all that are up have all that the leader has.
    pub fn settle(&self) {
        let leader = self.leader();
        let entries = |at: usize| {
            let mut client = self.client(at);
            [raft(&mut client, "commit_entry"), raft(&mut client, "last_entry")]
        };
        wait_until("all have the same", || {
            let [commit, last] = entries(leader);
            commit == last && self.up().all(|at| entries(at) == [commit.clone(), last.clone()])
        });
    }

    pub fn digests(&self) -> Vec<String> {
        self.up().map(|at| self.client(at).ask("DEBUG DIGEST")).collect()
    }
}

/// Returns a field of INFO raft.
pub fn raft(client: &mut Client<TcpStream>, name: &str) -> String {
    let page = client.ask("INFO raft");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("raft_{name}:")));
    line.unwrap_or_default().to_owned()
}
