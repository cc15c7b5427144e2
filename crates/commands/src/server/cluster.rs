//! The commands of a cluster: CLUSTER, READONLY, READWRITE and ASKING.
//!
//! A consensus group is a cluster of one shard: its leader is the master and has all slots, the other members are its
//! replicas. Owns what these commands answer, in Redis's forms; who the nodes are is the engine's, behind
//! [`Cluster`](crate::host::Cluster). A server that is in no group answers that it has no cluster.

use crate::args::Args;
use crate::elements::Collected;
use crate::error::{Error, Result};
use crate::host::{Answer, ClusterFacts, ClusterNode, Host, SessionChange};
use crate::server::introspect;
use crate::table::{Arity, Body, Category, Command, Deprecated, Flag, Group, HostFn, Keys};
use haypile_resp::Reply;
use haypile_store::row::SLOTS;
use haypile_store::{ScanPosition, Slot, Txn, slot_of};
use haypile_types::key;
use sha1::{Digest, Sha1};

pub(crate) const COMMANDS: &[Command] = &[CLUSTER, READONLY, READWRITE, ASKING];

/// The cluster that the server is a node of.
///
/// # Errors
/// It is in none.
fn cluster(host: &dyn Host) -> Result<ClusterFacts> {
    host.cluster().ok_or(Error::text("ERR This instance has cluster support disabled"))
}

fn readonly(host: &mut dyn Host, _args: Args) -> Result<Answer> {
    cluster(host).map(|_| Answer::ok(SessionChange::ReadsHere(true)))
}

fn readwrite(host: &mut dyn Host, _args: Args) -> Result<Answer> {
    cluster(host).map(|_| Answer::ok(SessionChange::ReadsHere(false)))
}

/// Accepts what needs nothing to be done: no slot is ever on its way, and what a member has to know is on its disk.
fn accepted(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    cluster(host).map(|_| Reply::ok())
}

/// The common fields of the three commands about a client's way through a cluster.
const OF_CONNECTIONS: Command = Command {
    since: "3.0.0",
    group: Group::Cluster,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    body: Body::Host(accepted),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Connection],
    ..Command::USUAL
};

const READONLY: Command = Command {
    name: "readonly",
    summary: "In a cluster, lets the client read from a replica.",
    body: Body::Act(readonly),
    ..OF_CONNECTIONS
};

const READWRITE: Command = Command {
    name: "readwrite",
    summary: "In a cluster, ends what READONLY began.",
    body: Body::Act(readwrite),
    ..OF_CONNECTIONS
};

const ASKING: Command = Command {
    name: "asking",
    summary: "In a cluster, lets the next command use a slot that is on its way here.",
    flags: &[Flag::Fast],
    ..OF_CONNECTIONS
};

const CLUSTER: Command = Command {
    name: "cluster",
    since: "3.0.0",
    group: Group::Cluster,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about the cluster.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        Command {
            arity: Arity::at_least(3),
            syntax: "slot:integer...",
            complexity: OF_SLOTS,
            ..changes("addslots", "Makes slots this node's.", slots_are_fixed)
        },
        Command {
            since: "7.0.0",
            arity: Arity::at_least(4),
            syntax: "start-slot_end-slot=(start-slot:integer end-slot:integer)...",
            complexity: OF_RANGES,
            ..changes("addslotsrange", "Makes ranges of slots this node's.", slots_are_fixed)
        },
        Command { tips: VARIES, ..changes("bumpepoch", "Moves the epoch of the configuration on.", epoch_is_fixed) },
        Command {
            arity: Arity::exactly(3),
            syntax: "node-id",
            complexity: "O(N) where N is the number of failure reports",
            flags: &[Flag::Admin, Flag::Stale],
            tips: VARIES,
            ..asks("count-failure-reports", "Returns how many nodes say that a node has failed.", count_failure_reports)
        },
        Command {
            arity: Arity::exactly(3),
            syntax: "slot:integer",
            rests_on_rows: true,
            ..asks("countkeysinslot", "Returns how many keys a slot has here.", count_keys_in_slot)
        },
        Command {
            arity: Arity::at_least(3),
            syntax: "slot:integer...",
            complexity: OF_SLOTS,
            ..changes("delslots", "Forgets whose slots are.", slots_are_fixed)
        },
        Command {
            since: "7.0.0",
            arity: Arity::at_least(4),
            syntax: "start-slot_end-slot=(start-slot:integer end-slot:integer)...",
            complexity: OF_RANGES,
            ..changes("delslotsrange", "Forgets whose ranges of slots are.", slots_are_fixed)
        },
        Command {
            arity: Arity::at_least(2),
            syntax: "[options=(FORCE | TAKEOVER)]",
            ..changes("failover", "Has this replica take the place of its master.", leader_is_elected)
        },
        changes("flushslots", "Forgets all of this node's slots.", slots_are_fixed),
        Command {
            arity: Arity::exactly(3),
            syntax: "node-id",
            ..changes("forget", "Forgets a node.", members_are_agreed)
        },
        Command {
            arity: Arity::exactly(4),
            syntax: "slot:integer count",
            complexity: "O(log(N)) where N is the number of requested keys",
            tips: VARIES,
            rests_on_rows: true,
            ..asks("getkeysinslot", "Returns keys of a slot.", get_keys_in_slot)
        },
        Command {
            since: "5.0.0",
            flags: &[Flag::Loading, Flag::Stale],
            ..asks("help", "Lists the subcommands of CLUSTER.", help)
        },
        Command { tips: VARIES, ..asks("info", "Returns facts about the cluster as this node sees it.", info) },
        Command {
            arity: Arity::exactly(3),
            syntax: "key:string",
            complexity: "O(N) where N is the number of bytes in the key",
            ..asks("keyslot", "Returns the slot of a key.", key_slot)
        },
        Command {
            since: "7.0.0",
            complexity: OF_ALL_NODES,
            tips: VARIES,
            ..asks("links", "Returns the connections between this node and others.", links)
        },
        Command {
            arity: Arity::at_least(4),
            syntax: "ip port:integer [cluster_bus_port:integer@4.0.0]",
            history: &[("4.0.0", "Added the optional `cluster_bus_port` argument.")],
            ..changes("meet", "Introduces another node.", members_are_agreed)
        },
        asks("myid", "Returns the name of this node.", my_id),
        Command { since: "7.2.0", ..asks("myshardid", "Returns the name of this node's shard.", my_shard_id) },
        Command {
            complexity: OF_ALL_NODES,
            tips: VARIES,
            ..asks("nodes", "Returns the nodes as this node sees them.", nodes)
        },
        Command { since: "5.0.0", ..REPLICAS },
        Command {
            arity: Arity::exactly(3),
            syntax: "node-id",
            ..changes("replicate", "Makes this node a replica of another.", members_are_agreed)
        },
        Command {
            arity: Arity::at_least(2),
            syntax: "[hard_soft=(HARD | SOFT)]",
            complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
            flags: &[Flag::Admin, Flag::Noscript, Flag::Stale],
            ..asks("reset", "Has this node forget the cluster.", members_are_agreed)
        },
        changes("saveconfig", "Writes the state of the cluster to the disk.", accepted),
        Command {
            arity: Arity::exactly(3),
            syntax: "config-epoch:integer",
            ..changes("set-config-epoch", "Sets the epoch of the configuration of a new node.", epoch_is_fixed)
        },
        Command {
            arity: Arity::at_least(4),
            syntax: "slot:integer subcommand=(IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE)",
            ..changes("setslot", "Says whose a slot is, or where it is on its way to.", slots_are_fixed)
        },
        Command {
            since: "7.0.0",
            complexity: "O(N) where N is the total number of cluster nodes",
            flags: &[Flag::Loading, Flag::Stale],
            tips: VARIES,
            ..asks("shards", "Returns the shards, with their slots and nodes.", shards)
        },
        Command {
            name: "slaves",
            summary: "Returns the replicas of a node: the name of CLUSTER REPLICAS until Redis 5.",
            deprecated: Some(Deprecated { since: "5.0.0", instead: "`CLUSTER REPLICAS`" }),
            ..REPLICAS
        },
        Command {
            complexity: OF_ALL_NODES,
            flags: &[Flag::Loading, Flag::Stale],
            tips: VARIES,
            history: &[("4.0.0", "Added node IDs."), ("7.0.0", "Added additional networking metadata field.")],
            deprecated: Some(Deprecated { since: "7.0.0", instead: "`CLUSTER SHARDS`" }),
            ..asks("slots", "Returns which nodes have which slots.", slots)
        },
    ],
    ..Command::USUAL
};

const REPLICAS: Command = Command {
    arity: Arity::exactly(3),
    syntax: "node-id",
    flags: &[Flag::Admin, Flag::Stale],
    tips: VARIES,
    ..asks("replicas", "Returns the replicas of a node.", replicas)
};

const VARIES: &[&str] = &["nondeterministic_output"];
const OF_SLOTS: &str = "O(N) where N is the total number of hash slot arguments";
const OF_RANGES: &str = "O(N) where N is the total number of the slots between the start slot and end slot arguments.";
const OF_ALL_NODES: &str = "O(N) where N is the total number of Cluster nodes";

/// A subcommand that only asks.
const fn asks(name: &'static str, summary: &'static str, answer: HostFn) -> Command {
    Command {
        name,
        since: "3.0.0",
        group: Group::Cluster,
        arity: Arity::exactly(2),
        keys: Keys::NONE,
        summary,
        body: Body::Host(answer),
        flags: &[Flag::Stale],
        ..Command::USUAL
    }
}

/// A subcommand that changes what the node of a Redis Cluster knows.
const fn changes(name: &'static str, summary: &'static str, answer: HostFn) -> Command {
    Command { flags: &[Flag::NoAsyncLoading, Flag::Admin, Flag::Stale], ..asks(name, summary, answer) }
}

fn slots_are_fixed(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    cluster(host)?;
    Err(Error::text("ERR a Raft group has all slots, which are its leader's: slots are not assigned"))
}

fn epoch_is_fixed(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    cluster(host)?;
    Err(Error::text("ERR the epoch is the term of the Raft group, which its elections change"))
}

fn members_are_agreed(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    cluster(host)?;
    Err(Error::text("ERR a Raft group agrees on its members: use RAFT.NODE"))
}

fn leader_is_elected(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    cluster(host)?;
    Err(Error::text("ERR a Raft group elects its leader: use RAFT.TRANSFER-LEADER"))
}

fn help(host: &mut dyn Host, args: Args) -> Result<Reply> {
    cluster(host)?;
    introspect::help(host, args)
}

impl ClusterFacts {
    /// Returns the name of a node: 40 hex digits that rest on the shard's name and the node's number alone, so that
    /// all nodes give it the same one for ever.
    fn name_of(&self, node: &ClusterNode) -> String {
        let hash = Sha1::digest(format!("node {} of {}", node.id, self.shard));
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn leader(&self) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.is_leader)
    }

    fn replicas(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.iter().filter(|node| !node.is_leader)
    }

    /// Returns the name of this node.
    fn own_name(&self) -> String {
        self.nodes.iter().find(|node| node.is_self).map_or_else(String::new, |node| self.name_of(node))
    }

    /// Finds the node of a name.
    ///
    /// # Errors
    /// There is none.
    fn find(&self, name: &[u8]) -> Result<&ClusterNode> {
        let found = self.nodes.iter().find(|node| self.name_of(node).as_bytes() == name);
        found.ok_or_else(|| Error::quoting("ERR Unknown node ", name, ""))
    }

    /// Returns a node's line of CLUSTER NODES, without its end.
    fn line(&self, node: &ClusterNode) -> String {
        let ClusterNode { host, port, is_self, is_leader, is_linked, .. } = node;
        let myself = if *is_self { "myself," } else { "" };
        let role = if *is_leader { "master" } else { "slave" };
        let (fails, link) = if *is_linked { ("", "connected") } else { (",fail?", "disconnected") };
        let master = self.leader().filter(|_| !is_leader).map_or_else(|| "-".to_owned(), |leader| self.name_of(leader));
        let slots = if *is_leader { " 0-16383" } else { "" };
        // Members have no bus: they talk by the port of clients.
        let place = format!("{host}:{port}@{port}");
        format!("{} {place} {myself}{role}{fails} {master} 0 0 {} {link}{slots}", self.name_of(node), self.epoch)
    }
}

fn info(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let cluster = cluster(host)?;
    let (assigned, size) = if cluster.leader().is_some() { (SLOTS, 1) } else { (0, 0) };
    let (state, served) = if cluster.is_up { ("ok", assigned) } else { ("fail", 0) };
    let text = format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\ncluster_slots_ok:{served}\r\n\
         cluster_slots_pfail:{missed}\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{nodes}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
        missed = assigned - served,
        nodes = cluster.nodes.len(),
        epoch = cluster.epoch,
    );
    Ok(Reply::Verbatim("txt", text.into_bytes().into()))
}

fn nodes(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let cluster = cluster(host)?;
    let text: String = cluster.nodes.iter().map(|node| cluster.line(node) + "\n").collect();
    Ok(Reply::Verbatim("txt", text.into_bytes().into()))
}

fn replicas(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let cluster = cluster(host)?;
    if !cluster.find(args.get(2))?.is_leader {
        return Err(Error::text("ERR The specified node is not a master"));
    }
    Ok(Reply::array(cluster.replicas().map(|node| Reply::bulk(cluster.line(node)))))
}

/// Answers the range of all slots with its nodes, the leader first; nothing before there was a leader. A replica that
/// has failed is left out, as in Redis.
fn slots(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let cluster = cluster(host)?;
    let Some(leader) = cluster.leader() else { return Ok(Reply::Array(Vec::new())) };
    let node = |node: &ClusterNode| {
        let (host, port) = (Reply::bulk(node.host.clone()), Reply::Integer(node.port.into()));
        Reply::array([host, port, Reply::bulk(cluster.name_of(node)), Reply::Map(Vec::new())])
    };
    let replicas = cluster.replicas().filter(|replica| replica.is_linked);
    let nodes = std::iter::once(leader).chain(replicas).map(node);
    let range = [0, SLOTS as i64 - 1].map(Reply::Integer);
    Ok(Reply::array([Reply::array(range.into_iter().chain(nodes))]))
}

/// Answers one shard, which has no slots before there was a leader.
fn shards(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let cluster = cluster(host)?;
    let leader = cluster.leader();
    let slots = leader.map_or(Vec::new(), |_| vec![Reply::Integer(0), Reply::Integer(SLOTS as i64 - 1)]);
    let node = |node: &ClusterNode| {
        let pairs = [
            ("id", Reply::bulk(cluster.name_of(node))),
            ("port", Reply::Integer(node.port.into())),
            ("ip", Reply::bulk(node.host.clone())),
            ("endpoint", Reply::bulk(node.host.clone())),
            ("role", Reply::bulk(if node.is_leader { "master" } else { "replica" })),
            ("replication-offset", Reply::Integer(node.offset as i64)),
            ("health", Reply::bulk(if node.is_linked { "online" } else { "fail" })),
        ];
        Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
    };
    let nodes = leader.into_iter().chain(cluster.replicas()).map(node);
    let pairs = [("slots", Reply::Array(slots)), ("nodes", Reply::array(nodes))];
    Ok(Reply::array([Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())]))
}

fn my_id(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::bulk(cluster(host)?.own_name()))
}

fn my_shard_id(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::bulk(cluster(host)?.shard))
}

/// Answers no links: members have no bus.
fn links(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    cluster(host).map(|_| Reply::Array(Vec::new()))
}

/// Answers none: a group has its leader and its quorum, and no reports.
fn count_failure_reports(host: &mut dyn Host, args: Args) -> Result<Reply> {
    cluster(host)?.find(args.get(2)).map(|_| Reply::Integer(0))
}

fn key_slot(host: &mut dyn Host, args: Args) -> Result<Reply> {
    cluster(host).map(|_| Reply::Integer(slot_of(args.get(2)).0.into()))
}

/// Keys of a slot that are read in one step.
const SLOT_STEP: usize = 1000;

/// Looks at the names of the keys of a slot in the selected database, until `each` says no.
fn visit_slot(txn: &mut Txn, slot: Slot, mut each: impl FnMut(&[u8]) -> Result<bool>) -> Result<()> {
    let space = txn.space(txn.database());
    let mut next = Some(ScanPosition { slot, hash: 0 });
    while let Some(from) = next.filter(|from| from.slot == slot) {
        let (keys, after) = txn.scan_keys(space, from, SLOT_STEP)?;
        for (name, row) in keys {
            if slot_of(&name) != slot {
                return Ok(());
            }
            let is_there = !key::Entry::parse(row)?.header.is_expired(txn.now_ms());
            if is_there && !each(&name)? {
                return Ok(());
            }
        }
        next = after;
    }
    Ok(())
}

/// Parses a number of a slot that exists.
fn parse_slot(number: i64, error: &'static str) -> Result<Slot> {
    let slot = u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS);
    slot.map(Slot).ok_or(Error::text(error))
}

fn count_keys_in_slot(host: &mut dyn Host, args: Args) -> Result<Reply> {
    cluster(host)?;
    let slot = parse_slot(args.int(2)?, "ERR Invalid slot")?;
    host.in_transaction(&mut |txn| {
        let mut count = 0;
        visit_slot(txn, slot, |_| {
            count += 1;
            Ok(true)
        })?;
        Ok(Reply::Integer(count))
    })
}

fn get_keys_in_slot(host: &mut dyn Host, args: Args) -> Result<Reply> {
    const WRONG: &str = "ERR Invalid slot or number of keys";
    cluster(host)?;
    let (slot, count) = (args.int(2)?, args.int(3)?);
    let (slot, count) = (parse_slot(slot, WRONG)?, usize::try_from(count).map_err(|_| Error::text(WRONG))?);
    host.in_transaction(&mut |txn| {
        let (mut names, mut left) = (Collected::new(txn), count);
        visit_slot(txn, slot, |name| {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            names.push(name)?;
            Ok(left > 0)
        })?;
        Ok(names.into_reply())
    })
}
