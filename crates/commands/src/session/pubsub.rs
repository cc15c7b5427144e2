//! Publish and subscribe.
//!
//! Owns the replies: one for each channel named, of the form of a message. Who is subscribed, and how a message reaches
//! clients of other event loops, belongs to the engine, behind [`Host`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Channels, Host, SessionChange};
use crate::server::introspect::help;
use crate::table::{Arity, Body, Command, Flag, Group, Keys, Subscribes};
use haypile_config::glob;
use haypile_resp::{Reply, write};
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) const COMMANDS: &[Command] =
    &[SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, SSUBSCRIBE, SUNSUBSCRIBE, PUBLISH, SPUBLISH, PUBSUB];

const SUBSCRIBE: Command = Command {
    name: "subscribe",
    since: "2.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Has the messages of channels sent to the connection.",
    syntax: "channel...",
    complexity: "O(N) where N is the number of channels to subscribe to.",
    body: Body::Act(subscribe),
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    runs_while_bound: true,
    subscribes: Some(Subscribes { kind: Channels::Plain, ends: false }),
    ..Command::USUAL
};

fn subscribe(host: &mut dyn Host, args: Args) -> Result<Answer> {
    subscribe_all(host, args, Channels::Plain, "subscribe")
}

/// A name that is given twice is subscribed to once.
fn subscribe_all(host: &mut dyn Host, args: Args, kind: Channels, word: &'static str) -> Result<Answer> {
    let (mut count, mut begun, mut acts) = (host.subscription_count(kind), HashSet::new(), Vec::new());
    let replies = args.iter_from(1).map(|name| {
        if !host.is_subscribed(kind, name) && begun.insert(name) {
            count += 1;
            acts.push(SessionChange::Subscribe(kind, name.into()).into());
        }
        changed(word, Reply::bulk(name.to_vec()), count)
    });
    let reply = Reply::Several(replies.collect());
    Ok(Answer { reply, acts })
}

fn changed(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), name, Reply::Integer(count as i64)])
}

const UNSUBSCRIBE: Command = Command {
    name: "unsubscribe",
    since: "2.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Ends subscriptions to channels, or all of them.",
    syntax: "[channel...]",
    complexity: "O(N) where N is the number of clients already subscribed to a channel.",
    body: Body::Act(unsubscribe),
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    runs_while_bound: true,
    subscribes: Some(Subscribes { kind: Channels::Plain, ends: true }),
    ..Command::USUAL
};

fn unsubscribe(host: &mut dyn Host, args: Args) -> Result<Answer> {
    unsubscribe_all(host, args, Channels::Plain, "unsubscribe")
}

/// Ends the subscriptions that are named or, without names, all of the kind; who has none hears that once.
fn unsubscribe_all(host: &mut dyn Host, args: Args, kind: Channels, word: &'static str) -> Result<Answer> {
    let names: Vec<Arc<[u8]>> =
        if args.len() > 1 { args.iter_from(1).map(Arc::from).collect() } else { host.subscriptions(kind) };
    if names.is_empty() {
        return Ok(changed(word, Reply::Null, host.subscription_count(kind)).into());
    }
    let (mut count, mut ended, mut acts) = (host.subscription_count(kind), HashSet::new(), Vec::new());
    let replies = names.iter().map(|name| {
        if host.is_subscribed(kind, name) && ended.insert(name) {
            count -= 1;
            acts.push(SessionChange::Unsubscribe(kind, name.clone()).into());
        }
        changed(word, Reply::bulk(name.to_vec()), count)
    });
    let reply = Reply::Several(replies.collect());
    Ok(Answer { reply, acts })
}

const PSUBSCRIBE: Command = Command {
    name: "psubscribe",
    since: "2.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Has the messages of all channels whose names match patterns sent to the connection.",
    syntax: "pattern=(pattern)...",
    complexity: "O(N) where N is the number of patterns the client is already subscribed to.",
    body: Body::Act(psubscribe),
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    runs_while_bound: true,
    subscribes: Some(Subscribes { kind: Channels::Pattern, ends: false }),
    ..Command::USUAL
};

fn psubscribe(host: &mut dyn Host, args: Args) -> Result<Answer> {
    subscribe_all(host, args, Channels::Pattern, "psubscribe")
}

const PUNSUBSCRIBE: Command = Command {
    name: "punsubscribe",
    since: "2.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Ends subscriptions to patterns, or all of them.",
    syntax: "[pattern...]",
    complexity: "O(N+M) where N is the number of patterns the client is already subscribed and M is the number of total patterns subscribed in the system (by any client).",
    body: Body::Act(punsubscribe),
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    runs_while_bound: true,
    subscribes: Some(Subscribes { kind: Channels::Pattern, ends: true }),
    ..Command::USUAL
};

fn punsubscribe(host: &mut dyn Host, args: Args) -> Result<Answer> {
    unsubscribe_all(host, args, Channels::Pattern, "punsubscribe")
}

const SSUBSCRIBE: Command = Command {
    name: "ssubscribe",
    since: "7.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::channels(true),
    summary: "Has the messages of shard channels sent to the connection.",
    syntax: "shardchannel...",
    complexity: "O(N) where N is the number of shard channels to subscribe to.",
    body: Body::Act(ssubscribe),
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    runs_while_bound: true,
    subscribes: Some(Subscribes { kind: Channels::Shard, ends: false }),
    ..Command::USUAL
};

fn ssubscribe(host: &mut dyn Host, args: Args) -> Result<Answer> {
    // Redis lets only the two older ones into a transaction.
    if host.is_in_block() {
        return Err(Error::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    subscribe_all(host, args, Channels::Shard, "ssubscribe")
}

const SUNSUBSCRIBE: Command = Command {
    name: "sunsubscribe",
    since: "7.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(1),
    keys: Keys::channels(true),
    summary: "Ends subscriptions to shard channels, or all of them.",
    syntax: "[shardchannel...]",
    complexity: "O(N) where N is the number of clients already subscribed to a shard channel.",
    body: Body::Act(sunsubscribe),
    flags: &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
    runs_while_bound: true,
    subscribes: Some(Subscribes { kind: Channels::Shard, ends: true }),
    ..Command::USUAL
};

fn sunsubscribe(host: &mut dyn Host, args: Args) -> Result<Answer> {
    unsubscribe_all(host, args, Channels::Shard, "sunsubscribe")
}

const PUBLISH: Command = Command {
    name: "publish",
    since: "2.0.0",
    group: Group::Pubsub,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Sends a message to all who are subscribed to a channel.",
    syntax: "channel message",
    complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
    body: Body::Act(publish),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast, Flag::MayReplicate],
    publishes: true,
    ..Command::USUAL
};

fn publish(host: &mut dyn Host, args: Args) -> Result<Answer> {
    publish_to(host, args, Channels::Plain)
}

/// Answers how many times the message is delivered: a client that is subscribed several ways gets it as often. Those of
/// replicas do not count.
fn publish_to(host: &mut dyn Host, args: Args, kind: Channels) -> Result<Answer> {
    let (channel, message) = (args.get(1), args.get(2));
    let audience = host.audience(kind, channel)?;
    let reply = Reply::Integer(audience.count as i64);
    if audience.count == 0 && !audience.replicas {
        return Ok(reply.into());
    }
    let mut payload = Vec::with_capacity(message.len() + 16);
    write::bulk(&mut payload, message);
    Ok(Answer::with(reply, Act::Publish { kind, channel: channel.into(), payload, audience }))
}

const SPUBLISH: Command = Command {
    name: "spublish",
    since: "7.0.0",
    group: Group::Pubsub,
    arity: Arity::exactly(3),
    keys: Keys::channels(false),
    summary: "Sends a message to all who are subscribed to a shard channel.",
    syntax: "shardchannel message",
    complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
    body: Body::Act(spublish),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast, Flag::MayReplicate],
    publishes: true,
    ..Command::USUAL
};

fn spublish(host: &mut dyn Host, args: Args) -> Result<Answer> {
    publish_to(host, args, Channels::Shard)
}

const PUBSUB: Command = Command {
    name: "pubsub",
    since: "2.8.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for questions about channels and their subscribers.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        PUBSUB_CHANNELS,
        PUBSUB_NUMSUB,
        PUBSUB_NUMPAT,
        PUBSUB_SHARDCHANNELS,
        PUBSUB_SHARDNUMSUB,
        PUBSUB_HELP,
    ],
    ..Command::USUAL
};

const PUBSUB_CHANNELS: Command = Command {
    name: "channels",
    since: "2.8.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns the channels that have subscribers.",
    syntax: "[pattern]",
    complexity: "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)",
    body: Body::Host(pubsub_channels),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn pubsub_channels(host: &mut dyn Host, args: Args) -> Result<Reply> {
    channels(host, args, Channels::Plain)
}

fn channels(host: &mut dyn Host, args: Args, kind: Channels) -> Result<Reply> {
    if args.len() > 3 {
        return Err(args.wrong_subcommand());
    }
    let names = host.channels(kind)?;
    let asked = names.iter().filter(|name| args.opt(2).is_none_or(|pattern| glob::matches(pattern, name, false)));
    Ok(Reply::array(asked.map(|name| Reply::bulk(name.to_vec()))))
}

const PUBSUB_NUMSUB: Command = Command {
    name: "numsub",
    since: "2.8.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns how many subscribers channels have, those of patterns not counted.",
    syntax: "[channel...]",
    complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
    body: Body::Host(pubsub_numsub),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn pubsub_numsub(host: &mut dyn Host, args: Args) -> Result<Reply> {
    Ok(subscribers(host, args, Channels::Plain))
}

/// Names and numbers in turn, in RESP3 too.
fn subscribers(host: &mut dyn Host, args: Args, kind: Channels) -> Reply {
    let of = |name: &[u8]| [Reply::bulk(name.to_vec()), Reply::Integer(host.subscribers(kind, name) as i64)];
    Reply::array(args.iter_from(2).flat_map(of))
}

const PUBSUB_NUMPAT: Command = Command {
    name: "numpat",
    since: "2.8.0",
    group: Group::Pubsub,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the number of patterns with a subscriber.",
    syntax: "",
    body: Body::Host(pubsub_numpat),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn pubsub_numpat(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(Reply::Integer(host.patterns() as i64))
}

const PUBSUB_SHARDCHANNELS: Command = Command {
    name: "shardchannels",
    since: "7.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns the shard channels that have subscribers.",
    syntax: "[pattern]",
    complexity: "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).",
    body: Body::Host(pubsub_shardchannels),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn pubsub_shardchannels(host: &mut dyn Host, args: Args) -> Result<Reply> {
    channels(host, args, Channels::Shard)
}

const PUBSUB_SHARDNUMSUB: Command = Command {
    name: "shardnumsub",
    since: "7.0.0",
    group: Group::Pubsub,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns how many subscribers shard channels have.",
    syntax: "[shardchannel...]",
    complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
    body: Body::Host(pubsub_shardnumsub),
    flags: &[Flag::Pubsub, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn pubsub_shardnumsub(host: &mut dyn Host, args: Args) -> Result<Reply> {
    Ok(subscribers(host, args, Channels::Shard))
}

const PUBSUB_HELP: Command = Command {
    name: "help",
    since: "6.2.0",
    group: Group::Pubsub,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of PUBSUB.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};
