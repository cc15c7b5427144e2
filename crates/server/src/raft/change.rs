//! Servers that become members while they run: a server with its data as the first one of a group, or as one more.

use crate::datadir;
use crate::raft::identity::{Identity, check, reads_word, unlike};
use crate::raft::{Raft, lock};
use crate::remote::{Remote, error_in};
use haypile_commands::host::GroupOrder;
use haypile_engine::{Leader, Order};
use haypile_log::{DirectoryId, DiskFiles, History, Index};
use haypile_raft::{Ballot, Members, Vote};
use haypile_resp::Reply;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest time for the answer of a leader that is to take this server, as it waits for its group.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// The longest time to reach a server and to hear what it is: another one, or this one by its own address.
const ASK_MAX: Duration = Duration::from_secs(2);

/// The other servers that are asked, one after the other, until one leads.
const ASKED_MAX: usize = 5;

/// How often the group is asked to take the server: others may come at the same time, one after the other.
const TRIES_MAX: usize = 100;

const TRY_PAUSE: Duration = Duration::from_millis(100);

/// Carries out the orders of a server that is in no group.
pub fn carry_out(raft: &Arc<Raft>) {
    let _one_at_a_time = lock(&raft.entering);
    for mut order in raft.engine.group.take_orders() {
        let done = match &mut order.what {
            _ if raft.is_member() => Err("this server is in a Raft group already".into()),
            GroupOrder::Begin { address } => begin(raft, address),
            GroupOrder::Join { through, address, forces } => join(raft, through, address.as_deref(), *forces),
            _ => Err("this server is in no Raft group".into()),
        };
        if let Err(why) = &done {
            tracing::warn!("the server does not become a member: {why}");
        }
        Order::answer(order, done);
    }
}

impl Raft {
    /// Has the server be in no group any more, by a thread that ends the one of the member, which calls this and has
    /// set `is_leaving`.
    pub fn leave(self: &Arc<Self>, order: Order) {
        let (raft, place) = (self.clone(), self.place());
        let leaves = move || {
            let _one_at_a_time = lock(&raft.entering);
            // Another order may have come before.
            let is_there = lock(&raft.member).as_ref().is_some_and(|now| Arc::ptr_eq(now, &place));
            let left = if is_there { leave(&raft) } else { Err("this server is in no Raft group".into()) };
            if let Err(why) = &left {
                tracing::warn!("the server stays a member: {why}");
            }
            raft.is_leaving.store(false, Ordering::Release);
            order.answer(left);
        };
        match std::thread::Builder::new().name("raft-order".into()).spawn(leaves) {
            Ok(thread) => self.running().others.push(thread),
            // The order is answered as it is dropped.
            Err(error) => {
                tracing::error!("an order cannot be carried out: {error}");
                self.is_leaving.store(false, Ordering::Release);
            }
        }
    }
}

/// Makes the only member of a group a server that is in none.
fn leave(raft: &Arc<Raft>) -> Result<(), String> {
    let dir = raft.engine.settings.config().dir.clone();
    raft.engine.expect_to_leave_group()?;
    raft.end_member();
    // Orders that came since are answered as they are dropped.
    drop(raft.engine.group.take_orders());
    let left = raft.engine.leave_group(&mut || {
        // From here on the directory is no member's: the rest is done as it is opened, now or at the next start.
        let failed = |error| format!("Can't remove {}: {error}", datadir::member_file(&dir).display());
        if let Err(error) = std::fs::remove_file(datadir::member_file(&dir)) {
            return Ok(Err(failed(error)));
        }
        datadir::sync_dir(&dir).map_err(failed)?;
        raft.be_alone();
        Ok(Ok(()))
    });
    if raft.is_member() {
        // The log of the data has led already: the member begins with data that have not.
        raft.engine.rebuild_group(Index(u64::MAX))?;
        raft.start().map_err(|error| error.to_string())?;
        return left;
    }
    // Members that did not know yet may have connected meanwhile.
    raft.end_connections();
    left?;
    tracing::info!("this server is in no group any more");
    raft.replication.start().map_err(|error| error.to_string())
}

fn member_of(address: &str, id: u64) -> Result<Members, String> {
    Members::parse(&format!("{id}@{address}")).map_err(|error| error.to_string())
}

/// Looks whether it is this server that answers at the address which the others are to have for it.
///
/// # Errors
/// Another server answers there. Where nobody does, only the log says so: behind some routers no host can reach its
/// own outer address.
fn check_own(raft: &Raft, address: &str) -> Result<(), String> {
    let asked = raft.ask(address, &[b"INFO", b"server"], ASK_MAX).map(|(_, reply)| reply);
    let run_id = |info: &[u8]| {
        let info = String::from_utf8_lossy(info);
        info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned)
    };
    match asked {
        Ok(Reply::Bulk(info)) if run_id(&info).as_deref() == Some(raft.engine.run_id()) => Ok(()),
        Ok(Reply::Bulk(_)) => {
            Err(format!("another server answers at {address}: give the address at which others reach this one"))
        }
        Ok(reply) => {
            let why = error_in(&reply).unwrap_or_else(|| "no text".into());
            tracing::warn!("whether {address} leads to this server is not known: it answers {why} to INFO");
            Ok(())
        }
        Err(error) => {
            tracing::warn!("this server cannot reach itself at {address}, which others are to use: {error}");
            Ok(())
        }
    }
}

/// Makes the server, with all that it has, the first member of a group.
fn begin(raft: &Arc<Raft>, address: &str) -> Result<(), String> {
    let engine = &*raft.engine;
    let config = engine.settings.config();
    check(&config)?;
    let founding = member_of(address, 1)?;
    check_own(raft, address)?;
    let mut group = History([0; 20]);
    let parts = [DirectoryId::random().0, DirectoryId::random().0].concat();
    group.0.copy_from_slice(&parts[..20]);
    let identity = Identity { id: 1, group, founding };
    // The record says who the members are; and there is one, so that the data have an end.
    engine.found_group(identity.founding.to_string().as_bytes())?;
    engine.become_member(&mut || {
        let made =
            Ballot::open(&DiskFiles, &datadir::ballot_file(&config.dir), group, 1, true).and_then(|mut ballot| {
                ballot.store(Vote { term: 1, vote: 0 })?;
                ballot.fill()
            });
        match made {
            Ok(()) => enter(raft, &identity, &config.dir),
            Err(fault) => Ok(Err(fault.to_string())),
        }
    })?;
    tracing::info!("this server is member 1 of a group of its own, {group}");
    raft.start().map_err(|error| error.to_string())
}

/// Makes the server a member of a group which another server is in. What it has is given up.
fn join(raft: &Arc<Raft>, through: &str, address: Option<&str>, forces: bool) -> Result<(), String> {
    let engine = &*raft.engine;
    let config = engine.settings.config();
    check(&config)?;
    datadir::check_exchange(&config.dir)?;
    if !forces && engine.has_keys() {
        return Err("this server has keys, which would be lost: empty it by FLUSHALL, or say FORCE".into());
    }
    let (mut leader, facts) = find_leader(raft, through)?;
    let reads = reads_word(&config.raft);
    if reads != facts.reads {
        return Err(unlike(&reads, "the group", &facts.reads));
    }
    let own = match address {
        Some(address) => address.to_owned(),
        None => {
            let port = if config.tls.cluster { config.tls.port } else { config.port };
            format!("{}:{port}", leader.local_ip().map_err(|error| error.to_string())?)
        }
    };
    member_of(&own, 1)?;
    check_own(raft, &own)?;
    leader.set_timeout(ANSWER_MAX);
    let mut id = facts.last_id + 1;
    for _ in 0..TRIES_MAX {
        let number = id.to_string();
        member_of(&own, id)?;
        let words: [&[u8]; 4] = [b"RAFT.NODE", b"ADD", number.as_bytes(), own.as_bytes()];
        match error_in(&leader.call(&words).map_err(|error| format!("{through}: {error}"))?) {
            Some(why) if why.contains(&format!("a member {id} already")) => id += 1,
            Some(why) if why.contains("try again") => _ = raft.inbox.wait_for_close(TRY_PAUSE),
            Some(why) => return Err(format!("the group says: {why}")),
            None => {
                let identity = Identity { id, group: facts.group, founding: facts.founding };
                engine.become_member(&mut || match datadir::exchange_for_nothing(&config.dir, config.engine)? {
                    Ok(()) => enter(raft, &identity, &config.dir),
                    Err(why) => Ok(Err(why)),
                })?;
                tracing::info!("this server is member {id} of group {}", identity.group);
                return raft.start().map_err(|error| error.to_string());
            }
        }
    }
    Err("many servers come into the group at the same time: try again".into())
}

/// Notes what the server is from now on, before anything is opened for it.
fn enter(raft: &Raft, identity: &Identity, dir: &Path) -> Result<Result<(), String>, String> {
    identity.keep(dir).map_err(|error| format!("Can't write {}: {error}", datadir::member_file(dir).display()))?;
    raft.become_member(identity);
    raft.engine.set_leader(Leader::Unknown);
    Ok(Ok(()))
}

/// The facts of a group that a server needs to come into it.
struct GroupFacts {
    group: History,
    founding: Members,
    /// The members' word about reads, which is the same on all.
    reads: String,
    /// The highest number of a member.
    last_id: u64,
}

/// The section `raft` of a server's INFO.
pub struct GroupInfo(String);

impl GroupInfo {
    /// Asks the server at this address; returns the connection, too.
    ///
    /// # Errors
    /// A text for people: it does not answer within this time, or refuses to.
    pub fn ask(raft: &Raft, address: &str, timeout: Duration) -> Result<(Remote, GroupInfo), String> {
        let (remote, reply) = raft.ask(address, &[b"RAFT.INFO"], timeout).map_err(|error| error.to_string())?;
        let text = match reply {
            Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
            Reply::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
            reply => {
                let why = error_in(&reply).map(|why| format!("it answers: {why}"));
                return Err(why.unwrap_or_else(|| "it is no server that can be joined".into()));
            }
        };
        Ok((remote, GroupInfo(text)))
    }

    /// Returns the value behind `name`, which ends with a colon; nothing if there is no such line.
    pub fn field(&self, name: &str) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
    }

    /// Returns the numbers and addresses of the members.
    pub fn members(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.lines().filter_map(|line| {
            let (id, rest) = line.strip_prefix("raft_member")?.split_once(":id=")?.1.split_once(",address=")?;
            Some((id.parse().ok()?, rest.split_once(',')?.0))
        })
    }
}

/// Finds the leader of the group that the server at this address is in.
fn find_leader(raft: &Raft, through: &str) -> Result<(Remote, GroupFacts), String> {
    let mut address = through.to_owned();
    for _ in 0..ASKED_MAX {
        let at = |why: String| format!("{address}: {why}");
        let (remote, info) = GroupInfo::ask(raft, &address, ASK_MAX).map_err(at)?;
        if info.field("raft_role:") == "leader" {
            let facts = GroupFacts {
                group: History::parse(info.field("raft_group:")).ok_or_else(|| at("its group has no name".into()))?,
                founding: Members::parse(info.field("raft_founding:")).map_err(|error| at(error.to_string()))?,
                reads: info.field("raft_reads:").to_owned(),
                last_id: info.members().map(|(id, _)| id).max().unwrap_or(0),
            };
            return Ok((remote, facts));
        }
        let leader = info.field("raft_leader_address:");
        if leader.is_empty() {
            return Err(at("it is in no Raft group, or knows no leader".into()));
        }
        leader.clone_into(&mut address);
    }
    Err(format!("{through}: its group has no leader"))
}
