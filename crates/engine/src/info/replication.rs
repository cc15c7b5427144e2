//! The section `replication`: fields of every server, those of a replica, and a line for each replica.
//!
//! An offset is an index of the log.

use super::field::{Field, constant, counter, gauge, real, text};
use crate::run::engine::Engine;
use crate::run::replication::facts::{Downstream, DownstreamState, Link, Upstream};
use haypile_commands::host::Role;
use haypile_config::OnLateReplicas;
use std::time::{Duration, Instant};

pub(super) const FIELDS: &[Field] = &[
    text("role", |engine| if is_slave(engine) { "slave".into() } else { "master".into() }, "`master` or `slave`."),
    gauge(
        "connected_slaves",
        connected,
        "Connected replicas; of the leader of a Raft group, members that it hears of.",
    ),
    text(
        "master_failover_state",
        |engine| engine.failover_step().name().into(),
        "`no-failover`, `waiting-for-sync`, or `failover-in-progress`.",
    ),
    text(
        "master_replid",
        |engine| engine.store().map_or_else(|| "0".repeat(40), |store| store.history().to_string()),
        "The history of the data: a new one begins when a stop was not clean, and when a replica becomes a master.",
    ),
    text(
        "master_replid2",
        |engine| before(engine).map_or_else(|| "0".repeat(40), |(history, _)| history),
        "The history before that one; zeros if there was none.",
    ),
    gauge(
        "master_repl_offset",
        |engine| engine.store().map_or(0, |store| store.log().last().0),
        "The last record of the log.",
    ),
    text(
        "second_repl_offset",
        |engine| before(engine).map_or_else(|| "-1".into(), |(_, after)| (after + 1).to_string()),
        "The first record that the history before does not have; -1 if there was none.",
    ),
    constant("repl_backlog_active", "1", "The log is always there."),
    gauge(
        "repl_backlog_size",
        |engine| engine.store().map_or(0, |store| store.log().stats().bytes),
        "Bytes of the log on disk.",
    ),
    gauge(
        "repl_backlog_first_byte_offset",
        |engine| engine.store().map_or(0, |store| store.log().stats().first.0),
        "The oldest record that the log has.",
    ),
    gauge(
        "repl_backlog_histlen",
        |engine| {
            engine.store().map_or(0, |store| (store.log().last().0 + 1).saturating_sub(store.log().stats().first.0))
        },
        "Records that the log has.",
    ),
];

/// The fields of a replica.
pub(super) const OF_REPLICA: &[Field] = &[
    text(
        "master_host",
        |engine| of(engine, |master| master.master.host.clone()),
        "The master's address, as REPLICAOF gave it.",
    ),
    text("master_port", |engine| of(engine, |master| master.master.port.to_string()), "Its port."),
    text(
        "master_link_status",
        |engine| of(engine, |master| if master.link == Link::Connected { "up" } else { "down" }.into()),
        "`up` while records come.",
    ),
    gauge(
        "master_link_up",
        |engine| engine.upstream().is_some_and(|master| master.link == Link::Connected).into(),
        "1 while records come, as a number.",
    ),
    text(
        "master_last_io_seconds_ago",
        |engine| of(engine, |master| master.heard.map_or_else(|| "-1".into(), |at| at.elapsed().as_secs().to_string())),
        "Seconds since the master was heard of; -1 if it never was.",
    ),
    gauge(
        "master_sync_in_progress",
        |engine| engine.upstream().is_some_and(|master| matches!(master.link, Link::Copy { .. })).into(),
        "1 while a copy of the master's data is fetched.",
    ),
    gauge("master_sync_total_bytes", |engine| copied(engine).1, "Bytes of that copy; 0 if there is none."),
    gauge(
        "master_sync_read_bytes",
        |engine| copied(engine).0,
        "Bytes of it that are here, with those that were here before a break.",
    ),
    gauge(
        "master_sync_left_bytes",
        |engine| {
            let (done, total) = copied(engine);
            total.saturating_sub(done)
        },
        "Bytes of it that are to come.",
    ),
    real(
        "master_sync_perc",
        |engine| match copied(engine) {
            (_, 0) => 0.0,
            (done, total) => done as f64 / total as f64 * 100.0,
        },
        2,
        "Percent of it that are here; 0 if there is none.",
    ),
    real(
        "master_sync_last_io_seconds_ago",
        |engine| {
            let copying = engine.upstream().filter(|master| matches!(master.link, Link::Copy { .. }));
            copying.and_then(|master| master.heard).map_or(-1.0, |heard| heard.elapsed().as_secs() as f64)
        },
        0,
        "Seconds since some of it has come; -1 while none is fetched.",
    ),
    text(
        "master_link_down_since_seconds",
        |engine| {
            of(engine, |master| master.down_since.map_or(-1, |since| since.elapsed().as_secs() as i64).to_string())
        },
        "Seconds since the connection was lost; -1 if it is there.",
    ),
    text(
        "master_link_error",
        |engine| {
            of(engine, |master| match &master.link {
                Link::Connect(Some(why)) => why.replace(['\r', '\n'], " "),
                _ => master.held.clone().unwrap_or_default(),
            })
        },
        "Why the last connection ended, while there is none; or why a record has to wait, where the disk is full.",
    ),
    text(
        "master_protocol",
        |engine| of(engine, |master| if master.origin.is_some() { "psync" } else { "haypile" }.into()),
        "`haypile`, or `psync` where the master is a Redis.",
    ),
    text(
        "master_stream_id",
        |engine| {
            of(engine, |master| {
                master.origin.map_or_else(String::new, |origin| origin.stream.escape_ascii().to_string())
            })
        },
        "The replication id of a master that is a Redis.",
    ),
    gauge(
        "master_commands_skipped",
        |engine| engine.upstream().map_or(0, |master| master.skipped),
        "Commands and blocks of a Redis that were left out because they were refused (`replica-refused-commands skip`).",
    ),
    gauge("slave_read_repl_offset", offset, "The last record that has come; of a Redis, as `slave_repl_offset`."),
    gauge("slave_repl_offset", offset, "The last record that was applied; where the master is a Redis, its offset."),
    gauge(
        "slave_lag_records",
        |engine| engine.upstream().map_or(0, |master| master.master_last.0.saturating_sub(last(engine))),
        "Records that the master has said to have and that have not come.",
    ),
    real(
        "slave_lag_seconds",
        |engine| engine.upstream().and_then(|master| master.lag()).map_or(-1.0, |lag| lag.as_secs_f64()),
        3,
        "Seconds since this replica had all that its master had said to have; -1 if it never had.",
    ),
    real(
        "master_clock_skew_seconds",
        |engine| {
            let skew_ms = engine.upstream().and_then(|master| master.clock_skew_ms);
            skew_ms.unwrap_or(0) as f64 / 1000.0
        },
        3,
        "Seconds by which this server's clock is ahead of its master's: keys are absent here so much earlier. 0 if it is not known.",
    ),
    gauge(
        "slave_priority",
        |engine| engine.settings.config().replication.priority.into(),
        "`replica-priority`, for Sentinel.",
    ),
    constant("slave_read_only", "1", "A replica takes no writes."),
    gauge(
        "replica_announced",
        |engine| engine.settings.config().replication.announced.into(),
        "`replica-announced`, for Sentinel.",
    ),
];

/// The fields of a server with `replicas-to-ack`.
pub(super) const OF_ACKNOWLEDGED: &[Field] = &[
    gauge(
        "replicas_to_ack",
        |engine| engine.settings.config().replication.replicas_to_ack.into(),
        "`replicas-to-ack`.",
    ),
    text(
        "replicas_to_ack_state",
        |engine| match engine.confirmations().late {
            None => "in-time".into(),
            Some(OnLateReplicas::Refuse) => "refuse".into(),
            Some(OnLateReplicas::GoOn) => "go-on".into(),
        },
        "`in-time`, or what is done because replicas have not acknowledged in time: `refuse` or `go-on`.",
    ),
    gauge(
        "replicas_to_ack_index",
        |engine| engine.store().map_or(0, |store| store.log().confirmed_by_others().0),
        "The last record that so many replicas have acknowledged; on a replica, as its master says.",
    ),
    real(
        "replicas_to_ack_waiting_seconds",
        |engine| engine.confirmations().waiting.as_secs_f64(),
        3,
        "Seconds since the oldest record was written that so many have not acknowledged.",
    ),
    counter(
        "replicas_to_ack_timeouts",
        |engine| engine.confirmations().times_late,
        "How often replicas have not acknowledged in time.",
    ),
];

/// Whether the fields of a server with `replicas-to-ack` are shown.
pub(super) fn asks_replicas(engine: &Engine) -> bool {
    engine.settings.config().replication.replicas_to_ack > 0
}

/// The names of lines that depend on what there is: section, name and meaning.
pub(super) const PATTERNS: &[(&str, &str, &str)] = &[
    ("replication", "min_slaves_good_slaves", "Replicas that count for `min-replicas-to-write`, where that is set."),
    (
        "replication",
        "slaveN",
        "A connected replica: its address, its state (`wait_bgsave`, `send_bulk`, `online`), the last record that it has applied, and the \
     seconds since it acknowledged something; the records, and about the bytes, of the log that it has not applied; and about how many \
     milliseconds ago the oldest of these was written, -1 while it gets a copy.",
    ),
];

fn is_slave(engine: &Engine) -> bool {
    engine.role_in_group().map_or_else(|| engine.upstream().is_some(), |role| matches!(role, Role::Replica { .. }))
}

/// Appends what a member of a group has in the place of master and replicas. `INFO raft` has more.
fn lines_of_member(role: &Role, out: &mut String) {
    match role {
        Role::Replica { host, port, state, offset } => {
            super::field(out, "master_host", host);
            super::field(out, "master_port", &port.to_string());
            super::field(out, "master_link_status", if *state == "connected" { "up" } else { "down" });
            super::field(out, "slave_repl_offset", &offset.to_string());
            super::field(out, "slave_read_only", "1");
        }
        Role::Master { replicas, .. } => {
            for (number, (host, port, offset)) in replicas.iter().enumerate() {
                let text = format!("ip={host},port={port},state=online,offset={offset},lag=0");
                super::field(out, &format!("slave{number}"), &text);
            }
        }
    }
}

/// Appends what depends on the role, and a line for each replica.
pub(super) fn lines(engine: &Engine, out: &mut String) {
    if let Some(role) = engine.role_in_group() {
        lines_of_member(&role, out);
    }
    if engine.upstream().is_some() {
        OF_REPLICA.iter().for_each(|known| super::field(out, known.name, &known.value(engine)));
    }
    if asks_replicas(engine) {
        OF_ACKNOWLEDGED.iter().for_each(|known| super::field(out, known.name, &known.value(engine)));
    }
    let config = engine.settings.config();
    if config.replication.min_replicas > 0 && config.replication.max_lag_s > 0 {
        let lag_max = Duration::from_secs(config.replication.max_lag_s.into());
        super::field(out, "min_slaves_good_slaves", &engine.replication.good_replicas(lag_max).to_string());
    }
    // Behind the members of a group, those that follow it.
    for (number, replica) in (members(engine)..).zip(&engine.replication.downstream()) {
        let state = match replica.state {
            DownstreamState::WaitCopy => "wait_bgsave",
            DownstreamState::SendCopy => "send_bulk",
            DownstreamState::Online => "online",
        };
        let (host, port, offset) = (&replica.host, replica.port, replica.applied);
        let lag = Instant::now().saturating_duration_since(replica.acknowledged).as_secs();
        let (records, bytes) = behind(engine, replica);
        let ms = replica.lag().map_or(-1, |lag| lag.as_millis() as i64);
        let text = format!(
            "ip={host},port={port},state={state},offset={offset},lag={lag},lag_records={records},lag_bytes={bytes},lag_ms={ms}"
        );
        super::field(out, &format!("slave{number}"), &text);
    }
}

/// Returns the records of the log that a replica has not applied, and about how many bytes these are.
pub(super) fn behind(engine: &Engine, replica: &Downstream) -> (u64, u64) {
    engine.store().map_or((0, 0), |store| {
        let log = store.log();
        (log.last().0.saturating_sub(replica.applied.0), log.bytes_after(replica.applied))
    })
}

fn connected(engine: &Engine) -> u64 {
    members(engine) + engine.replication.downstream().len() as u64
}

/// Returns how many members of its group a leader hears of.
fn members(engine: &Engine) -> u64 {
    match engine.role_in_group() {
        Some(Role::Master { replicas, .. }) => replicas.len() as u64,
        Some(Role::Replica { .. }) | None => 0,
    }
}

fn of(engine: &Engine, value: impl Fn(&Upstream) -> String) -> String {
    engine.upstream().as_ref().map_or_else(String::new, value)
}

/// Returns how far this replica is, in the numbers of its master.
fn offset(engine: &Engine) -> u64 {
    let origin = engine.upstream().and_then(|master| master.origin);
    origin.map_or_else(|| last(engine), |origin| origin.offset)
}

fn last(engine: &Engine) -> u64 {
    engine.store().map_or(0, |store| store.log().last().0)
}

/// Returns the bytes of the copy that is fetched, if one is: those that are here, and all.
fn copied(engine: &Engine) -> (u64, u64) {
    match engine.upstream().map(|master| master.link) {
        Some(Link::Copy { done, total }) => (done, total),
        _ => (0, 0),
    }
}

/// Returns the history before the present one, and the last index that both share.
fn before(engine: &Engine) -> Option<(String, u64)> {
    let (parent, fork) = engine.store()?.log().histories().newest()?.parent()?;
    Some((parent.to_string(), fork.0))
}
