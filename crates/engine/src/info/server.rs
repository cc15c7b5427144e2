//! The section `server`: what runs here, and since when.

use super::field::{Field, constant, gauge, text};
use haypile_commands::REDIS_VERSION;
use haypile_config::Supervised;

pub(super) const FIELDS: &[Field] = &[
    text("redis_version", |_| REDIS_VERSION.into(), "The version of Redis whose behaviour this is."),
    constant("redis_git_sha1", "00000000", "This is no build of Redis."),
    constant("redis_git_dirty", "0", "This is no build of Redis."),
    constant("redis_build_id", "0", "This is no build of Redis."),
    text(
        "redis_mode",
        |engine| if engine.group.is_member() { "cluster" } else { "standalone" }.into(),
        "`cluster` of a member of a Raft group, whose clients are those of a Redis Cluster; else `standalone`.",
    ),
    text("haypile_version", |engine| engine.process.version.into(), "The version of the server."),
    text("os", |_| os(), "Name, release and machine of the operating system."),
    text("arch_bits", |_| usize::BITS.to_string(), "Bits of an address."),
    constant(
        "monotonic_clock",
        "processor ticks, or clock_gettime where they are not steady",
        "How commands are timed.",
    ),
    constant("multiplexing_api", "epoll", "How event loops wait."),
    constant("atomicvar_api", "rust", "Atomic numbers are the language's."),
    constant("gcc_version", "0.0.0", "It is not compiled by GCC."),
    gauge("process_id", |_| u64::from(std::process::id()), "The process."),
    text(
        "process_supervised",
        |engine| supervised(engine.settings.config().supervised).into(),
        "Who is told of start and stop.",
    ),
    text("run_id", |engine| engine.run_id.clone(), "Names this run of the process."),
    gauge("tcp_port", |engine| u64::from(engine.settings.config().port), "The port for clients."),
    text("server_time_usec", |engine| (engine.now_ms() * 1000).to_string(), "The clock, in microseconds since 1970."),
    gauge("uptime_in_seconds", |engine| engine.started.elapsed().as_secs(), "Since the process started."),
    gauge("uptime_in_days", |engine| engine.started.elapsed().as_secs() / 86_400, "Since the process started."),
    constant("hz", "10", "How often a second event loops look after what nobody asks for."),
    constant("configured_hz", "10", "The directive `hz` has no effect."),
    text(
        "lru_clock",
        |engine| ((engine.now_ms() / 1000) & 0xff_ffff).to_string(),
        "The lower 24 bits of the seconds since 1970.",
    ),
    text("executable", |engine| engine.process.executable.display().to_string(), "The program's file."),
    text(
        "config_file",
        |engine| engine.process.config_file.as_ref().map_or(String::new(), |path| path.display().to_string()),
        "The configuration's file, if there is one.",
    ),
    constant("io_threads_active", "0", "Event loops read and write themselves: `workers`."),
    gauge("workers", |engine| engine.workers() as u64, "Event loops."),
    gauge("io_pool_threads", |engine| engine.pool.threads() as u64, "Threads that may wait for the disk."),
];

fn supervised(by: Supervised) -> &'static str {
    match by {
        Supervised::No => "no",
        Supervised::Upstart => "upstart",
        Supervised::Systemd => "systemd",
        Supervised::Auto => "unknown",
    }
}

fn os() -> String {
    let fact = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", fact("ostype").trim(), fact("osrelease").trim(), std::env::consts::ARCH)
}
