//! CLIENT TRACKING and its relatives: client-side caching, as a client asks for it.
//!
//! Owns the options and replies. Who is told of which key belongs to the engine, behind [`Host`].

use crate::args::Args;
use crate::error::{Error, Result, as_text};
use crate::host::{Answer, Host, SessionChange, TrackingMode, TrackingOptions};
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(super) const TRACKING: Command = Command {
    name: "tracking",
    since: "6.0.0",
    group: Group::Connection,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Begins or ends to tell the client of keys that change after it has read them.",
    syntax: "status=(ON | OFF) [REDIRECT client-id:integer] [PREFIX prefix*] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    complexity: "O(1). Some options may introduce additional complexity.",
    body: Body::Act(tracking),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    begins_at_leader: true,
    ..Command::USUAL
};

/// The options of one call.
#[derive(Default)]
struct Given {
    redirect: u64,
    prefixes: Vec<Vec<u8>>,
    bcast: bool,
    optin: bool,
    optout: bool,
    noloop: bool,
}

fn tracking(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let given = given(host, args)?;
    if args.is(2, "OFF") {
        return Ok(Answer::ok(SessionChange::Track(None)));
    }
    if !args.is(2, "ON") {
        return Err(Error::Syntax);
    }
    let before = host.tracking();
    let Given { redirect, prefixes, bcast, optin, optout, noloop } = given;
    if !bcast && !prefixes.is_empty() {
        return Err(Error::text("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if before.is_some_and(|before| (before.mode == TrackingMode::Broadcast) != bcast) {
        return Err(Error::text(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        ));
    }
    if bcast && (optin || optout) {
        return Err(Error::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if optin && optout {
        return Err(Error::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    let switches = |before: &TrackingOptions| {
        optin && before.mode == TrackingMode::OptOut || optout && before.mode == TrackingMode::OptIn
    };
    if before.is_some_and(switches) {
        return Err(Error::text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        ));
    }
    let mode = match (bcast, optin, optout) {
        (true, ..) => TrackingMode::Broadcast,
        (_, true, _) => TrackingMode::OptIn,
        (_, _, true) => TrackingMode::OptOut,
        _ => TrackingMode::Default,
    };
    let prefixes = match bcast {
        true => joined(before.map_or(&[], |before| &before.prefixes[..]), prefixes)?,
        false => Vec::new(),
    };
    Ok(Answer::ok(SessionChange::Track(Some(TrackingOptions { redirect, mode, prefixes, noloop }))))
}

fn given(host: &dyn Host, args: Args) -> Result<Given> {
    let mut given = Given::default();
    let mut at = 3;
    while at < args.len() {
        let has_value = at + 1 < args.len();
        if args.is(at, "REDIRECT") && has_value {
            at += 1;
            if given.redirect != 0 {
                return Err(Error::text("ERR A client can only redirect to a single other client"));
            }
            let id = u64::try_from(args.int(at)?).ok().filter(|&id| id != 0 && host.has_client(id));
            given.redirect = id.ok_or(Error::text("ERR The client ID you want redirect to does not exist"))?;
        } else if args.is(at, "BCAST") {
            given.bcast = true;
        } else if args.is(at, "OPTIN") {
            given.optin = true;
        } else if args.is(at, "OPTOUT") {
            given.optout = true;
        } else if args.is(at, "NOLOOP") {
            given.noloop = true;
        } else if args.is(at, "PREFIX") && has_value {
            at += 1;
            given.prefixes.push(args.get(at).to_vec());
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    Ok(given)
}

/// Returns the prefixes that a client had, and more of them, in order. None may be the beginning of another: a key
/// would be told twice. Without more of them it is the empty one that is added, whatever there is: every key is told.
fn joined(had: &[Vec<u8>], more: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let refused = |one: &[u8], which: &str, other: &[u8]| {
        let text = [
            b"ERR Prefix '",
            as_text(one),
            b"' overlaps with ",
            which.as_bytes(),
            b" '",
            as_text(other),
            b"'. Prefixes for a single client must not overlap.",
        ];
        Error::Quoting(text.concat())
    };
    let mut sorted: Vec<(&[u8], usize)> = more.iter().zip(0..).map(|(one, at)| (&one[..], at)).collect();
    sorted.sort_unstable();
    // The one that Redis would find first, as far as those next to each other in order are looked at.
    let among_more = sorted
        .windows(2)
        .filter(|pair| pair[1].0.starts_with(pair[0].0))
        .map(|pair| (pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1)))
        .min();
    for (at, one) in more.iter().enumerate() {
        if let Some(other) = overlapping(had, one) {
            return Err(refused(one, "an existing prefix", other));
        }
        if let Some((_, other)) = among_more.filter(|pair| pair.0 == at) {
            return Err(refused(one, "another provided prefix", &more[other]));
        }
    }
    let mut all = [had, &more[..]].concat();
    if more.is_empty() {
        all.push(Vec::new());
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Returns one of these prefixes, which are in order and do not overlap, but for the empty one, that overlaps with
/// another one.
fn overlapping<'p>(prefixes: &'p [Vec<u8>], one: &[u8]) -> Option<&'p [u8]> {
    if let Some(empty) = prefixes.first().filter(|first| first.is_empty()) {
        return Some(empty);
    }
    // In order, the beginnings of a text stand before it, with nothing in between but what begins so, too.
    let behind = prefixes.partition_point(|prefix| &prefix[..] <= one);
    let before = behind.checked_sub(1).map(|at| &prefixes[at][..]).filter(|prefix| one.starts_with(prefix));
    before.or_else(|| prefixes.get(behind).map(|prefix| &prefix[..]).filter(|prefix| prefix.starts_with(one)))
}

pub(super) const CACHING: Command = Command {
    name: "caching",
    since: "6.0.0",
    group: Group::Connection,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Says whether the keys of the next command are tracked.",
    syntax: "mode=(YES | NO)",
    body: Body::Act(caching),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn caching(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let mode = host.tracking().map(|options| options.mode);
    if mode.is_none() {
        return Err(Error::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    }
    match mode {
        Some(TrackingMode::OptIn) if args.is(2, "YES") => Ok(Answer::ok(SessionChange::CacheNext)),
        Some(TrackingMode::OptOut) if args.is(2, "NO") => Ok(Answer::ok(SessionChange::CacheNext)),
        _ if args.is(2, "YES") => {
            Err(Error::text("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."))
        }
        _ if args.is(2, "NO") => {
            Err(Error::text("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."))
        }
        _ => Err(Error::Syntax),
    }
}

pub(super) const GETREDIR: Command = Command {
    name: "getredir",
    since: "6.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the client that gets this connection's tracking messages, or -1.",
    syntax: "",
    body: Body::Host(getredir),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn getredir(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(Reply::Integer(redirect(host)))
}

/// Returns -1 where the client does not track, 0 where it gets its messages itself.
fn redirect(host: &dyn Host) -> i64 {
    host.tracking().map_or(-1, |options| options.redirect as i64)
}

pub(super) const TRACKINGINFO: Command = Command {
    name: "trackinginfo",
    since: "6.2.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Describes the connection's tracking.",
    syntax: "",
    body: Body::Host(trackinginfo),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn trackinginfo(host: &mut dyn Host, _: Args) -> Result<Reply> {
    let options = host.tracking();
    let mut flags = vec![if options.is_some() { "on" } else { "off" }];
    let mut prefixes: &[Vec<u8>] = &[];
    if let Some(options) = options {
        flags.extend(match (options.mode, host.caches_next()) {
            (TrackingMode::Default, _) => &[][..],
            (TrackingMode::Broadcast, _) => &["bcast"],
            (TrackingMode::OptIn, false) => &["optin"],
            (TrackingMode::OptIn, true) => &["optin", "caching-yes"],
            (TrackingMode::OptOut, false) => &["optout"],
            (TrackingMode::OptOut, true) => &["optout", "caching-no"],
        });
        flags.extend(options.noloop.then_some("noloop"));
        flags.extend(host.redirect_is_broken().then_some("broken_redirect"));
        prefixes = &options.prefixes;
    }
    Ok(Reply::Map(vec![
        (Reply::bulk("flags"), Reply::Set(flags.into_iter().map(Reply::bulk).collect())),
        (Reply::bulk("redirect"), Reply::Integer(redirect(host))),
        (Reply::bulk("prefixes"), Reply::array(prefixes.iter().map(|prefix| Reply::bulk(prefix.clone())))),
    ]))
}
