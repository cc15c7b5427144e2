//! The process and its log file.

use super::Row;
use super::kinds::*;
use crate::kind::Kind;
use crate::special::Special;

/// The names and numbers of `crate::config::LogLevel`.
pub(crate) const LOG_LEVELS: &[(&str, u32)] =
    &[("debug", 0), ("verbose", 1), ("notice", 2), ("warning", 3), ("nothing", 4)];
/// The names and numbers of `crate::config::Supervised`.
pub(crate) const SUPERVISED: &[(&str, u32)] = &[("upstart", 1), ("systemd", 2), ("auto", 3), ("no", 0)];
/// The names and numbers of `crate::config::LogFormat`.
pub(crate) const LOG_FORMATS: &[(&str, u32)] = &[("human", 0), ("json", 1)];

const SYSLOG_FACILITIES: &[(&str, u32)] = &[
    ("user", 8),
    ("local0", 0),
    ("local1", 1),
    ("local2", 2),
    ("local3", 3),
    ("local4", 4),
    ("local5", 5),
    ("local6", 6),
    ("local7", 7),
];
const PROTECTED_ACTIONS: &[(&str, u32)] = &[("no", 0), ("yes", 1), ("local", 2)];
const OOM_SCORE_MODES: &[(&str, u32)] = &[("no", 0), ("yes", 1), ("relative", 1), ("absolute", 2)];
const NO_SAVE: u32 = 2;
const SAVE: u32 = 1;
const SHUTDOWN_MODES: &[(&str, u32)] = &[("default", 0), ("save", SAVE), ("nosave", NO_SAVE), ("now", 4), ("force", 8)];

const SHUTDOWN: Kind = Kind::Flags { names: SHUTDOWN_MODES, check: shutdown_modes };

pub(super) const ROWS: &[Row] = &[
    Row::used("dir", Kind::Special(Special::Dir), ".", "Directory of the data; other paths are relative to it.").immutable().protected(),
    Row::used("databases", int(1, INT_MAX), "16", "Number of databases that SELECT can reach.").immutable(),
    Row::used("daemonize", BOOL, "no", "Goes on in the background.").immutable(),
    Row::used("supervised", Kind::Choice(SUPERVISED), "no", "Tells systemd or upstart when the server is ready; `auto` looks at the environment.").immutable(),
    Row::used("pidfile", TEXT, "\"\"", "File to write the process id to; when daemonized without one, /var/run/haypile.pid.").immutable(),
    Row::used("loglevel", Kind::Choice(LOG_LEVELS), "notice", "Least important kind of messages that are logged."),
    Row::used("logfile", TEXT, "\"\"", "File to append the log to; `\"\"` is standard output.").immutable(),
    Row::used("log-format", Kind::Choice(LOG_FORMATS), "human", "Log lines for people, or one JSON object for each.").immutable().ours(),
    Row::used(
        "enable-protected-configs",
        Kind::Choice(PROTECTED_ACTIONS),
        "no",
        "Whether CONFIG SET may change protected directives; `local` means the same as `yes`. Only `dbfilename` is one that it could change.",
    )
    .immutable(),
    Row::used("enable-debug-command", Kind::Choice(PROTECTED_ACTIONS), "no", "Whether DEBUG may be called: by nobody, by all (`yes`), or by clients on the same host (`local`).").immutable(),
    Row::harmless("shutdown-timeout", SECONDS, "10", "How long a shutdown waits for replicas; here it does not, and they go on from where they were."),
    Row::harmless("shutdown-on-sigint", SHUTDOWN, "default", "Whether SIGINT saves; every stop leaves all data on disk."),
    Row::harmless("shutdown-on-sigterm", SHUTDOWN, "default", "Whether SIGTERM saves; every stop leaves all data on disk."),
    Row::harmless("syslog-enabled", BOOL, "no", "Logs to syslog; a supervisor can pass standard output on to it.").immutable(),
    Row::harmless("syslog-ident", TEXT, "redis", "Name in syslog.").immutable(),
    Row::harmless("syslog-facility", Kind::Choice(SYSLOG_FACILITIES), "local0", "Facility in syslog.").immutable(),
    Row::harmless("oom-score-adj", Kind::Choice(OOM_SCORE_MODES), "no", "Adjusts the kernel's order of victims when memory runs out."),
    Row::harmless("oom-score-adj-values", Kind::Special(Special::OomScores), "0 200 800", "Scores for master, replica and children."),
    Row::harmless("always-show-logo", BOOL, "no", "Shows the logo of Redis at the start.").immutable(),
    Row::harmless("set-proc-title", BOOL, "yes", "Changes the title of the process.").immutable(),
    Row::harmless(
        "proc-title-template",
        Kind::Text(proc_title),
        "\"{title} {listen-addr} {server-mode}\"",
        "Template of the title of the process.",
    ),
    Row::harmless("crash-log-enabled", BOOL, "yes", "Writes a crash report on a fatal signal."),
    Row::harmless("crash-memcheck-enabled", BOOL, "yes", "Tests memory after a crash."),
    Row::harmless("use-exit-on-panic", BOOL, "no", "For tests of Redis.").hidden(),
    Row::harmless("enable-debug-assert", BOOL, "no", "For tests of Redis.").immutable().hidden(),
    Row::harmless("watchdog-period", unit(0, INT_MAX, "milliseconds"), "0", "For debugging Redis.").hidden(),
    Row::harmless("ignore-warnings", TEXT, "\"\"", "Warnings of the start to leave out."),
    Row::harmless("disable-thp", BOOL, "yes", "Turns transparent huge pages off for the process.").immutable(),
    Row::harmless("server_cpulist", TEXT, "\"\"", "Cores of the server's threads.").immutable(),
    Row::harmless("bio_cpulist", TEXT, "\"\"", "Cores of background threads.").immutable(),
    Row::harmless("aof_rewrite_cpulist", TEXT, "\"\"", "Cores of the process that rewrites the AOF.").immutable(),
    Row::harmless("bgsave_cpulist", TEXT, "\"\"", "Cores of the process that saves.").immutable(),
    Row::harmless("locale-collate", TEXT, "\"\"", "Locale by which Lua compares strings."),
];

fn shutdown_modes(bits: u32) -> Result<(), &'static str> {
    if bits & SAVE != 0 && bits & NO_SAVE != 0 {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously");
    }
    Ok(())
}

/// Checks that every `{` begins a known variable that ends with `}`, but for `{{`, which stands for itself, and that
/// some text is left for a server that has no other title, mode or unix socket than most.
fn proc_title(template: &[u8]) -> Result<(), &'static str> {
    const EMPTY: [&str; 3] = ["title", "server-mode", "unixsocket"];
    const FILLED: [&str; 4] = ["listen-addr", "port", "tls-port", "config-file"];
    let refused = Err("template format is invalid or contains unknown variables");
    let text = String::from_utf8_lossy(template);
    let (mut rest, mut title) = (&*text, String::new());
    while let Some((before, after)) = rest.split_once('{') {
        title.push_str(before);
        rest = match (after.strip_prefix('{'), after.split_once('}')) {
            (Some(after), _) => {
                title.push('{');
                after
            }
            (None, Some((variable, after))) if EMPTY.contains(&variable) => after,
            (None, Some((variable, after))) if FILLED.contains(&variable) => {
                title.push_str(variable);
                after
            }
            (None, _) => return refused,
        };
    }
    title.push_str(rest);
    if title.trim_matches(' ').is_empty() { refused } else { Ok(()) }
}
