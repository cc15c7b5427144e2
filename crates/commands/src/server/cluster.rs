//! The commands of a cluster, which this server is no part of: each says so, once its arguments have the right number.
//!
//! Owns their entries, so that clients that ask COMMAND find them. READONLY, READWRITE and ASKING belong to it.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::table::{Arity, Body, Category, Command, Deprecated, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[CLUSTER, READONLY, READWRITE, ASKING];

fn disabled(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Err(Error::text("ERR This instance has cluster support disabled"))
}

/// The common fields of the three commands about a client's way through a cluster.
const OF_CONNECTIONS: Command = Command {
    since: "3.0.0",
    group: Group::Cluster,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    body: Body::Host(disabled),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Connection],
    ..Command::USUAL
};

const READONLY: Command =
    Command { name: "readonly", summary: "In a cluster, lets the client read from a replica.", ..OF_CONNECTIONS };

const READWRITE: Command =
    Command { name: "readwrite", summary: "In a cluster, ends what READONLY began.", ..OF_CONNECTIONS };

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
            ..changes("addslots", "Makes slots this node's.")
        },
        Command {
            since: "7.0.0",
            arity: Arity::at_least(4),
            syntax: "start-slot_end-slot=(start-slot:integer end-slot:integer)...",
            complexity: OF_RANGES,
            ..changes("addslotsrange", "Makes ranges of slots this node's.")
        },
        Command { tips: VARIES, ..changes("bumpepoch", "Moves the epoch of the configuration on.") },
        Command {
            arity: Arity::exactly(3),
            syntax: "node-id",
            complexity: "O(N) where N is the number of failure reports",
            flags: &[Flag::Admin, Flag::Stale],
            tips: VARIES,
            ..asks("count-failure-reports", "Returns how many nodes say that a node has failed.")
        },
        Command {
            arity: Arity::exactly(3),
            syntax: "slot:integer",
            ..asks("countkeysinslot", "Returns how many keys a slot has here.")
        },
        Command {
            arity: Arity::at_least(3),
            syntax: "slot:integer...",
            complexity: OF_SLOTS,
            ..changes("delslots", "Forgets whose slots are.")
        },
        Command {
            since: "7.0.0",
            arity: Arity::at_least(4),
            syntax: "start-slot_end-slot=(start-slot:integer end-slot:integer)...",
            complexity: OF_RANGES,
            ..changes("delslotsrange", "Forgets whose ranges of slots are.")
        },
        Command {
            arity: Arity::at_least(2),
            syntax: "[options=(FORCE | TAKEOVER)]",
            ..changes("failover", "Has this replica take the place of its master.")
        },
        changes("flushslots", "Forgets all of this node's slots."),
        Command { arity: Arity::exactly(3), syntax: "node-id", ..changes("forget", "Forgets a node.") },
        Command {
            arity: Arity::exactly(4),
            syntax: "slot:integer count",
            complexity: "O(log(N)) where N is the number of requested keys",
            tips: VARIES,
            ..asks("getkeysinslot", "Returns keys of a slot.")
        },
        Command {
            since: "5.0.0",
            flags: &[Flag::Loading, Flag::Stale],
            ..asks("help", "Lists the subcommands of CLUSTER.")
        },
        Command { tips: VARIES, ..asks("info", "Returns facts about the cluster as this node sees it.") },
        Command {
            arity: Arity::exactly(3),
            syntax: "key:string",
            complexity: "O(N) where N is the number of bytes in the key",
            ..asks("keyslot", "Returns the slot of a key.")
        },
        Command {
            since: "7.0.0",
            complexity: OF_ALL_NODES,
            tips: VARIES,
            ..asks("links", "Returns the connections between this node and others.")
        },
        Command {
            arity: Arity::at_least(4),
            syntax: "ip port:integer [cluster_bus_port:integer@4.0.0]",
            history: &[("4.0.0", "Added the optional `cluster_bus_port` argument.")],
            ..changes("meet", "Introduces another node.")
        },
        asks("myid", "Returns the name of this node."),
        Command { since: "7.2.0", ..asks("myshardid", "Returns the name of this node's shard.") },
        Command {
            complexity: OF_ALL_NODES,
            tips: VARIES,
            ..asks("nodes", "Returns the nodes as this node sees them.")
        },
        Command { since: "5.0.0", ..REPLICAS },
        Command {
            arity: Arity::exactly(3),
            syntax: "node-id",
            ..changes("replicate", "Makes this node a replica of another.")
        },
        Command {
            arity: Arity::at_least(2),
            syntax: "[hard_soft=(HARD | SOFT)]",
            complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
            flags: &[Flag::Admin, Flag::Noscript, Flag::Stale],
            ..asks("reset", "Has this node forget the cluster.")
        },
        changes("saveconfig", "Writes the state of the cluster to the disk."),
        Command {
            arity: Arity::exactly(3),
            syntax: "config-epoch:integer",
            ..changes("set-config-epoch", "Sets the epoch of the configuration of a new node.")
        },
        Command {
            arity: Arity::at_least(4),
            syntax: "slot:integer subcommand=(IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE)",
            ..changes("setslot", "Says whose a slot is, or where it is on its way to.")
        },
        Command {
            since: "7.0.0",
            complexity: "O(N) where N is the total number of cluster nodes",
            flags: &[Flag::Loading, Flag::Stale],
            tips: VARIES,
            ..asks("shards", "Returns the shards, with their slots and nodes.")
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
            ..asks("slots", "Returns which nodes have which slots.")
        },
    ],
    ..Command::USUAL
};

const REPLICAS: Command = Command {
    arity: Arity::exactly(3),
    syntax: "node-id",
    flags: &[Flag::Admin, Flag::Stale],
    tips: VARIES,
    ..asks("replicas", "Returns the replicas of a node.")
};

const VARIES: &[&str] = &["nondeterministic_output"];
const OF_SLOTS: &str = "O(N) where N is the total number of hash slot arguments";
const OF_RANGES: &str = "O(N) where N is the total number of the slots between the start slot and end slot arguments.";
const OF_ALL_NODES: &str = "O(N) where N is the total number of Cluster nodes";

/// A subcommand that only asks.
const fn asks(name: &'static str, summary: &'static str) -> Command {
    Command {
        name,
        since: "3.0.0",
        group: Group::Cluster,
        arity: Arity::exactly(2),
        keys: Keys::NONE,
        summary,
        body: Body::Host(disabled),
        flags: &[Flag::Stale],
        ..Command::USUAL
    }
}

/// A subcommand that changes what the node knows.
const fn changes(name: &'static str, summary: &'static str) -> Command {
    Command { flags: &[Flag::NoAsyncLoading, Flag::Admin, Flag::Stale], ..asks(name, summary) }
}
