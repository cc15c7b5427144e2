//! /metrics: the numbers of INFO and the distributions behind them in the text format 0.0.4 of Prometheus.
//!
//! Owns the names and the text. Who serves it, and to whom, is the server's affair.

use super::field::{Field, Source};
use super::figures::{Grows, figure};
use super::keyspace::{self, TYPES};
use super::{TABLE, clients, commands, persistence, replication, together};
use crate::clients::statistics::Wait;
use crate::clients::statistics::counters::Distribution;
use crate::run::engine::Engine;
use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The metrics that are no field of INFO, or one line of several numbers there.
pub(super) const FAMILIES: &[(&str, Kind, &str)] = &[
    ("haypile_info", Kind::Gauge, "Always 1; the labels tell the versions and the run."),
    ("haypile_db_keys", Kind::Gauge, "Keys of a database."),
    ("haypile_db_expires", Kind::Gauge, "Keys of a database that have a deadline."),
    ("haypile_db_type_keys", Kind::Gauge, "Keys of a database by type."),
    ("haypile_command_calls_total", Kind::Counter, "Calls of a command that ran."),
    ("haypile_command_rejected_total", Kind::Counter, "Calls that were refused before they ran."),
    ("haypile_command_failed_total", Kind::Counter, "Calls that ran and were answered by an error."),
    (
        "haypile_command_run_seconds_total",
        Kind::Counter,
        "Time until the replies were made, with all waits but the log.",
    ),
    (
        "haypile_command_seconds",
        Kind::Histogram,
        "Time of a call until its reply may leave, the wait for the log included.",
    ),
    ("haypile_wait_seconds", Kind::Histogram, "What commands waited for, and how long."),
    ("haypile_reply_seconds", Kind::Histogram, "From the read of a request to the write of its reply."),
    ("haypile_replica_lag_records", Kind::Gauge, "Records of the log that a replica has not applied."),
    ("haypile_replica_lag_bytes", Kind::Gauge, "About how many bytes of the log a replica has not applied."),
    (
        "haypile_replica_lag_seconds",
        Kind::Gauge,
        "About how long ago the oldest record was written that a replica has not applied; none while it gets a copy.",
    ),
    ("haypile_replica_silence_seconds", Kind::Gauge, "Time since a replica acknowledged something."),
    ("haypile_user_limit", Kind::Gauge, "A limit of a user's rules."),
    ("haypile_user_connections", Kind::Gauge, "Connections of a user that has limits."),
    ("haypile_user_memory_bytes", Kind::Gauge, "Bytes that the connections of a user with `memory=` take."),
    ("haypile_user_calls_total", Kind::Counter, "Calls of a user that has limits."),
    ("haypile_user_bytes_total", Kind::Counter, "Bytes of requests and replies of a user that has limits."),
    ("haypile_user_delayed_calls_total", Kind::Counter, "Calls that waited for `rate=` or `bandwidth=`."),
    ("haypile_user_delay_microseconds_total", Kind::Counter, "The time that they waited."),
    ("haypile_user_refused_calls_total", Kind::Counter, "Calls that were refused for `rate=` or `bandwidth=`."),
    ("haypile_user_refused_connections_total", Kind::Counter, "Logins and calls that were refused for `connections=`."),
    ("haypile_user_closed_clients_total", Kind::Counter, "Clients that were closed for `memory=`."),
    ("haypile_errors_total", Kind::Counter, "Error replies by their first word."),
];

/// Bounds of the buckets: powers of two of nanoseconds, from a microsecond to 17 seconds.
const POWERS: std::ops::RangeInclusive<u32> = 10..=34;

/// The metric of a field, if it is a number that may change.
pub(super) fn name_of(field: &Field) -> Option<String> {
    match field.source {
        Source::Counter(_) | Source::RealCounter(..) => {
            Some(format!("haypile_{}_total", field.name.strip_prefix("total_").unwrap_or(field.name)))
        }
        Source::Gauge(_) | Source::Real(..) => Some(format!("haypile_{}", field.name)),
        Source::Text(_) | Source::Constant(_) => None,
    }
}

pub(super) fn figure_name(name: &str, grows: Grows) -> String {
    if grows == Grows::Yes { format!("haypile_{name}_total") } else { format!("haypile_{name}") }
}

/// The whole page.
pub(crate) fn page(engine: &Engine) -> String {
    let mut page = Page(String::with_capacity(64 << 10));
    let loading = if engine.store().is_none() { persistence::LOADING } else { &[] };
    let of_replica = if engine.is_replica() { replication::OF_REPLICA } else { &[] };
    let of_acknowledged = if replication::asks_replicas(engine) { replication::OF_ACKNOWLEDGED } else { &[] };
    let fields = TABLE.iter().flat_map(|section| section.fields).chain(loading).chain(of_replica);
    for field in fields.chain(of_acknowledged) {
        let Some(name) = name_of(field) else { continue };
        let grows = matches!(field.source, Source::Counter(_) | Source::RealCounter(..));
        page.head(&name, if grows { Kind::Counter } else { Kind::Gauge }, field.about);
        page.sample(&name, &[], &field.value(engine));
    }
    for (_, name, value) in engine.figures() {
        let Some((_, grows, about)) = figure(name) else { continue };
        let metric = figure_name(name, *grows);
        page.head(&metric, if *grows == Grows::Yes { Kind::Counter } else { Kind::Gauge }, about);
        page.sample(&metric, &[], &value.to_string());
    }
    for (name, kind, about) in FAMILIES {
        page.head(name, *kind, about);
        family(engine, name, &mut page);
    }
    page.0
}

fn family(engine: &Engine, name: &str, page: &mut Page) {
    match name {
        "haypile_info" => {
            let labels = [
                ("version", engine.process.version),
                ("redis_version", haypile_commands::REDIS_VERSION),
                ("run_id", &engine.run_id),
            ];
            page.sample(name, &labels, "1");
        }
        "haypile_replica_lag_seconds" => {
            for replica in engine.replication.downstream() {
                if let Some(lag) = replica.lag() {
                    let label = ("replica", &*format!("{}:{}", replica.host, replica.port));
                    page.sample(name, &[label], &format!("{:.3}", lag.as_secs_f64()));
                }
            }
        }
        "haypile_replica_lag_records" | "haypile_replica_lag_bytes" | "haypile_replica_silence_seconds" => {
            for replica in engine.replication.downstream() {
                let (records, bytes) = replication::behind(engine, &replica);
                let value = match name {
                    "haypile_replica_lag_records" => records.to_string(),
                    "haypile_replica_lag_bytes" => bytes.to_string(),
                    _ => format!("{:.3}", replica.acknowledged.elapsed().as_secs_f64()),
                };
                page.sample(name, &[("replica", &format!("{}:{}", replica.host, replica.port))], &value);
            }
        }
        "haypile_user_limit" => {
            for (user, _) in engine.accounts.limited() {
                let shown = user.name().escape_ascii().to_string();
                for limit in user.limits().text().split(' ').filter_map(|limit| limit.split_once('=')) {
                    page.sample(name, &[("user", &shown), ("limit", limit.0)], limit.1);
                }
            }
        }
        "haypile_db_keys" | "haypile_db_expires" | "haypile_db_type_keys" => {
            for database in keyspace::databases(engine, None) {
                let db = format!("db{}", database.number);
                match name {
                    "haypile_db_keys" => page.sample(name, &[("db", &db)], &database.keys.to_string()),
                    "haypile_db_expires" => page.sample(name, &[("db", &db)], &database.expires.to_string()),
                    _ => {
                        for ((kind, _), count) in TYPES.iter().zip(&database.types) {
                            page.sample(name, &[("db", &db), ("type", kind)], &count.to_string());
                        }
                    }
                }
            }
        }
        "haypile_wait_seconds" => {
            for wait in Wait::ALL {
                let all = together(engine, |loop_| &loop_.waits_ns[wait as usize]);
                page.histogram(name, ("for", wait.name()), &all, 1);
            }
        }
        "haypile_reply_seconds" => {
            page.histogram(name, ("way", "inline"), &together(engine, |loop_| &loop_.inline_us), 1000);
            page.histogram(name, ("way", "waited"), &together(engine, |loop_| &loop_.waited_us), 1000);
        }
        "haypile_errors_total" => {
            for (kind, count) in engine.statistics.errors.counts() {
                page.sample(name, &[("kind", &kind)], &count.to_string());
            }
        }
        _ => match clients::NUMBERS.iter().find(|number| number.metric == name) {
            Some(number) => {
                for (user, usage) in engine.accounts.limited() {
                    let value = (number.value)(&usage).to_string();
                    page.sample(name, &[("user", &user.name().escape_ascii().to_string())], &value);
                }
            }
            None => of_commands(engine, name, page),
        },
    }
}

fn of_commands(engine: &Engine, name: &str, page: &mut Page) {
    for entry in commands::entries(engine) {
        let totals = commands::totals(engine, entry.id);
        if totals.calls + totals.rejected + totals.failed == 0 {
            continue;
        }
        let label = ("command", entry.full_name.as_str());
        match name {
            "haypile_command_calls_total" => page.sample(name, &[label], &totals.calls.to_string()),
            "haypile_command_rejected_total" => page.sample(name, &[label], &totals.rejected.to_string()),
            "haypile_command_failed_total" => page.sample(name, &[label], &totals.failed.to_string()),
            "haypile_command_run_seconds_total" => page.sample(name, &[label], &seconds(totals.ns)),
            "haypile_command_seconds" => {
                if let Some(all) = commands::distribution(engine, entry.id) {
                    page.histogram(name, label, &all, 1);
                }
            }
            _ => unreachable!("{name} is a family of the table"),
        }
    }
}

/// Returns nanoseconds as seconds, with up to nine decimals and no zeros at their end.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: Kind, about: &str) {
        self.line(format_args!("# HELP {name} {}", about.replace('\\', "\\\\").replace('\n', "\\n")));
        self.line(format_args!("# TYPE {name} {}", kind.name()));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        if labels.is_empty() {
            return self.line(format_args!("{name} {value}"));
        }
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
    }

    /// `all` is in units of `unit_ns` nanoseconds; a bucket ends below a power of two of them.
    fn histogram(&mut self, name: &str, label: (&str, &str), all: &Distribution, unit_ns: u64) {
        let bucket = format!("{name}_bucket");
        let first = if unit_ns == 1 { *POWERS.start() } else { 3 };
        for power in (first..=*POWERS.end()).take(25) {
            let bound = seconds(((1u64 << power) - 1) * unit_ns);
            self.sample(&bucket, &[label, ("le", &bound)], &all.below(1 << power).to_string());
        }
        self.sample(&bucket, &[label, ("le", "+Inf")], &all.total().to_string());
        self.sample(&format!("{name}_sum"), &[label], &seconds(all.sum().saturating_mul(unit_ns)));
        self.sample(&format!("{name}_count"), &[label], &all.total().to_string());
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes all that is written to it");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_labels_are_written_as_prometheus_reads_them() {
        assert_eq!(
            [seconds(0), seconds(1_023), seconds(1_500_000_000), seconds(20_000_000_000)],
            ["0", "0.000001023", "1.5", "20"]
        );
        let mut page = Page(String::new());
        page.sample("a", &[("kind", "x\"\\\n")], "1");
        assert_eq!(page.0, "a{kind=\"x\\\"\\\\\\n\"} 1\n");
    }

    #[test]
    fn buckets_of_a_histogram_add_up() {
        let histogram = crate::clients::statistics::counters::Histogram::default();
        [5, 2000, 3000, 1 << 40].iter().for_each(|ns| histogram.add(*ns, 1));
        let mut all = Distribution::default();
        all.add(&histogram);
        let mut page = Page(String::new());
        page.histogram("h", ("command", "get"), &all, 1);
        assert!(page.0.starts_with("h_bucket{command=\"get\",le=\"0.000001023\"} 1\n"), "{}", page.0);
        assert!(page.0.contains("le=\"0.000002047\"} 2\n") && page.0.contains("le=\"0.000004095\"} 3\n"), "{}", page.0);
        assert!(
            page.0.ends_with("le=\"+Inf\"} 4\nh_sum{command=\"get\"} 1099.511632781\nh_count{command=\"get\"} 4\n"),
            "{}",
            page.0
        );
    }
}
