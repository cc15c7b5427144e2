//! LATENCY: what took long, as events and as the distribution of each command's times.
//!
//! Owns the replies, the graph and the report in words. What is measured belongs to the engine, behind [`Host`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, CommandTimes, Host, LatencyEvent, LatencySample};
use crate::lookup::Entry;
use crate::server::introspect::help;
use crate::table::{Arity, Body, Command, Flag, Group};
use haypile_resp::Reply;
use std::fmt::Write;

pub(crate) const COMMANDS: &[Command] = &[LATENCY];

const LATENCY: Command = Command {
    name: "latency",
    since: "2.8.13",
    group: Group::Server,
    arity: Arity::at_least(2),
    summary: "A container for commands about what took long.",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[DOCTOR, GRAPH, HELP, HISTOGRAM, HISTORY, LATEST, RESET],
    ..Command::USUAL
};

/// The common fields of the subcommands of LATENCY.
const ASKS: Command = Command {
    since: "2.8.13",
    group: Group::Server,
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Command::USUAL
};

const DOCTOR: Command = Command {
    name: "doctor",
    arity: Arity::exactly(2),
    summary: "Tells in words what took long, and what may help.",
    body: Body::Host(doctor),
    ..ASKS
};

const GRAPH: Command = Command {
    name: "graph",
    arity: Arity::exactly(3),
    summary: "Draws the samples of an event.",
    syntax: "event",
    body: Body::Host(graph),
    ..ASKS
};

const HELP: Command = Command {
    name: "help",
    arity: Arity::exactly(2),
    summary: "Lists the subcommands of LATENCY.",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    tips: &[],
    ..ASKS
};

const HISTOGRAM: Command = Command {
    name: "histogram",
    since: "7.0.0",
    arity: Arity::at_least(2),
    summary: "Returns how many calls of commands took how long.",
    syntax: "[command...]",
    complexity: "O(N) where N is the number of commands with latency information being retrieved.",
    body: Body::Host(histogram),
    ..ASKS
};

const HISTORY: Command = Command {
    name: "history",
    arity: Arity::exactly(3),
    summary: "Returns the samples of an event.",
    syntax: "event",
    body: Body::Host(history),
    ..ASKS
};

const LATEST: Command = Command {
    name: "latest",
    arity: Arity::exactly(2),
    summary: "Returns the last and the worst sample of each event.",
    body: Body::Host(latest),
    ..ASKS
};

const RESET: Command = Command {
    name: "reset",
    arity: Arity::at_least(2),
    summary: "Forgets the samples of events, or of all.",
    syntax: "[event...]",
    body: Body::Act(reset),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..ASKS
};

fn latest(host: &mut dyn Host, _: Args) -> Result<Reply> {
    let event = |event: &LatencyEvent| {
        let last = event.samples.last()?;
        let numbers = [last.time_s, last.ms, event.max_ms].map(|number| Reply::Integer(number as i64));
        Some(Reply::array(std::iter::once(Reply::bulk(event.name)).chain(numbers)))
    };
    Ok(Reply::array(host.latency_events().iter().filter_map(event)))
}

fn history(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let samples = find(host, args.get(2)).map(|event| event.samples).unwrap_or_default();
    let sample = |sample: LatencySample| {
        Reply::Array(vec![Reply::Integer(sample.time_s as i64), Reply::Integer(sample.ms as i64)])
    };
    Ok(Reply::array(samples.into_iter().map(sample)))
}

/// Finds an event by its name, compared letter by letter, as in Redis.
fn find(host: &dyn Host, name: &[u8]) -> Option<LatencyEvent> {
    host.latency_events().into_iter().find(|event| event.name.as_bytes() == name)
}

fn reset(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let names: Vec<&[u8]> = args.iter_from(2).collect();
    let is_named = |event: &LatencyEvent| names.is_empty() || names.contains(&event.name.as_bytes());
    let count = host.latency_events().into_iter().filter(is_named).count();
    let names = names.into_iter().map(<[u8]>::to_vec).collect();
    Ok(Answer::with(Reply::Integer(count as i64), Act::ResetLatency(names)))
}

/// The histograms of the commands that are named, with the subcommands of a container, or of all; those that were never
/// called are left out.
fn histogram(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let table = host.table();
    let mut asked: Vec<&Entry> = Vec::new();
    if args.len() == 2 {
        asked.extend(table.iter().map(|(_, entry)| entry));
    } else {
        asked.extend(args.iter_from(2).filter_map(|name| table.find_full(name)));
    }
    let with_subcommands = asked.iter().flat_map(|entry| std::iter::once(*entry).chain(table.subcommands(entry)));
    let times = with_subcommands.filter_map(|entry| {
        let times = host.command_times(entry.id)?;
        Some((Reply::bulk(entry.full_name.clone()), distribution(times)))
    });
    Ok(Reply::Map(times.collect()))
}

fn distribution(times: CommandTimes) -> Reply {
    let until = |(us, calls): (u64, u64)| (Reply::Integer(us as i64), Reply::Integer(calls as i64));
    Reply::Map(vec![
        (Reply::bulk("calls"), Reply::Integer(times.calls as i64)),
        (Reply::bulk("histogram_usec"), Reply::Map(times.until_us.into_iter().map(until).collect())),
    ])
}

fn graph(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let Some(event) = find(host, args.get(2)) else {
        return Err(Error::quoting("ERR No samples available for event '", args.get(2), "'"));
    };
    let text = drawn(&event, host.now_us() / 1_000_000);
    Ok(Reply::Verbatim("txt", text.into()))
}

/// Columns beside each other; the rest follows below.
const COLUMNS: usize = 80;

/// Rows of a graph, and the heights that each can show.
const ROWS: usize = 4;
const HEIGHTS: [char; 3] = ['_', 'o', '#'];

/// Draws a graph: one column for each sample, from the lowest to the highest, with its age below.
fn drawn(event: &LatencyEvent, now_s: u64) -> String {
    let ms = || event.samples.iter().map(|sample| sample.ms);
    let (high, low) = (ms().max().unwrap_or(0), ms().min().unwrap_or(0));
    let mut text = format!("{} - high {high} ms, low {low} ms (all time high {} ms)\n", event.name, event.max_ms);
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    let steps = ROWS * HEIGHTS.len();
    let step = |sample: &LatencySample| {
        ((sample.ms - low) as usize)
            .saturating_mul(steps)
            .checked_div((high - low) as usize)
            .unwrap_or(0)
            .min(steps - 1)
    };
    for samples in event.samples.chunks(COLUMNS) {
        for row in (0..ROWS).rev() {
            text.extend(samples.iter().map(|sample| match step(sample).checked_sub(row * HEIGHTS.len()) {
                None => ' ',
                Some(within) => HEIGHTS.get(within).copied().unwrap_or('|'),
            }));
            text.push('\n');
        }
        text.push_str(&" ".repeat(samples.len()));
        text.push('\n');
        let ages: Vec<String> = samples.iter().map(|sample| age(now_s.saturating_sub(sample.time_s))).collect();
        for line in 0..ages.iter().map(String::len).max().unwrap_or(0) {
            text.extend(ages.iter().map(|age| age.as_bytes().get(line).map_or(' ', |byte| char::from(*byte))));
            text.push('\n');
        }
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Advice against an event, by the first word or words of its name.
const ADVICE: &[(&str, &str)] = &[
    ("command", "SLOWLOG GET shows which commands took long, INFO slowlog what they waited for."),
    (
        "fast-command",
        "Commands that never take long by themselves waited or were interrupted: look at the load of the machine.",
    ),
    (
        "disk-read",
        "Rows were read from the disk: a larger maxmemory keeps more of them in memory, a faster disk helps the rest.",
    ),
    (
        "command-queue",
        "Commands waited for a thread of the I/O pool, or for one that runs exclusively (FLUSHALL, SWAPDB): see io-pool.",
    ),
    ("key-lock", "Clients work on the same keys at the same time as commands that take long."),
    ("long-command", "Commands look at much data: SCAN instead of KEYS, fewer keys in one command."),
    (
        "write-stall",
        "Writes come faster than they can be flushed: INFO store and INFO rocksdb show how far the disk is behind.",
    ),
    (
        "log-",
        "The disk takes long to make writes durable: other programs may use it, or it is slow; durability os does not wait for it.",
    ),
    ("flush", "Flushes take long: INFO rocksdb shows whether compactions lag behind."),
    ("expire-cycle", "Many keys expire at the same time: spread their deadlines."),
];

fn doctor(host: &mut dyn Host, _: Args) -> Result<Reply> {
    let events = host.latency_events();
    let threshold = host.config_get(&[b"latency-monitor-threshold"]).pop().map_or(String::new(), |(_, value)| value);
    Ok(Reply::Verbatim("txt", report(&events, &threshold).into()))
}

fn report(events: &[LatencyEvent], threshold_ms: &str) -> String {
    if events.is_empty() {
        return match threshold_ms {
            "0" => "Nothing is watched: CONFIG SET latency-monitor-threshold <milliseconds> has events kept that take \
                    as long or longer.\n"
                .into(),
            _ => format!("Nothing took {threshold_ms} milliseconds or longer.\n"),
        };
    }
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("a string takes all that is written to it");
    line("What took long:");
    line("");
    for (number, event) in events.iter().enumerate() {
        let samples = &event.samples;
        let count = samples.len() as f64;
        let average = samples.iter().map(|sample| sample.ms as f64).sum::<f64>() / count;
        let deviation = samples.iter().map(|sample| (sample.ms as f64 - average).abs()).sum::<f64>() / count;
        let seconds = samples.last().map_or(0, |last| last.time_s - samples[0].time_s);
        line(&format!(
            "{}. {}: {count} samples in {seconds} seconds, {average:.0} ms on average (mean deviation {deviation:.0} \
             ms), {} ms at worst.",
            number + 1,
            event.name,
            event.max_ms,
        ));
    }
    line("");
    line("What may help:");
    line("");
    for (name, advice) in ADVICE {
        let is_about =
            |event: &LatencyEvent| event.name == *name || name.ends_with('-') && event.name.starts_with(name);
        if events.iter().any(is_about) {
            line(&format!("- {advice}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(samples: &[(u64, u64)]) -> LatencyEvent {
        LatencyEvent {
            name: "command",
            max_ms: 60,
            samples: samples.iter().map(|&(time_s, ms)| LatencySample { time_s, ms }).collect(),
        }
    }

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        // As redis-server 7.0 draws these samples.
        let expected = format!(
            "command - high 50 ms, low 2 ms (all time high 60 ms)\n{}\n # \n | \no| \n||_\n   \n210\nsss\n",
            "-".repeat(80)
        );
        assert_eq!(drawn(&event(&[(10, 20), (11, 50), (12, 2)]), 12), expected);
    }

    #[test]
    fn a_graph_of_one_sample_is_flat_and_many_samples_are_wrapped() {
        assert!(drawn(&event(&[(0, 5)]), 90_000).ends_with("\n \n \n \n_\n \n1\nd\n"));
        let many: Vec<(u64, u64)> = (0..100).map(|at| (at, at)).collect();
        let text = drawn(&event(&many), 100);
        assert_eq!(text.lines().map(str::len).max(), Some(80));
        assert_eq!(text.lines().filter(|line| line.len() == 20).count(), 4 + 1 + 3);
    }

    #[test]
    fn the_report_names_events_and_what_helps() {
        let text = report(&[event(&[(10, 20), (14, 40)])], "10");
        assert!(
            text.contains("1. command: 2 samples in 4 seconds, 30 ms on average (mean deviation 10 ms), 60 ms"),
            "{text}"
        );
        assert!(text.contains("SLOWLOG GET"), "{text}");
        assert!(report(&[], "0").contains("latency-monitor-threshold"));
        assert!(report(&[], "25").contains("25 milliseconds"));
    }
}
