//! `haypile-harness`: reads the command line and runs one of the programs of the library.

mod bench;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use haypile_harness::diff::{self, sequence};
use haypile_harness::raft_chaos::check::porcupine::Checker;
use haypile_harness::raft_chaos::network::{Network, enter};
use haypile_harness::raft_chaos::system::Ability;
use haypile_harness::random::fresh_seed;
use haypile_harness::server::{Template, Workplace, haypile_binary};
use haypile_harness::{crash, damage, hostile, psync, raft_chaos, repl, soak};

/// Proves and measures a Haypile server from outside, over its sockets.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Runs generated commands against redis-server and the server, and compares replies.
    Diff(Diff),
    /// Writes from many connections, kills the server again and again, and verifies every acknowledged write.
    Crash(Crash),
    /// Kills, stops, cuts off and promotes servers that follow each other, and verifies that they agree.
    Repl(Repl),
    /// Follows a redis-server, with kills and cuts, and compares every key.
    Psync(psync::Options),
    /// Disturbs a group of nodes in every way, and checks that what clients heard is linearizable.
    RaftChaos(RaftChaos),
    /// Damages files of a data directory, and compares what comes up with what was acknowledged.
    Damage(Damage),
    /// Measures CPU time per request beside redis-server.
    Bench(bench::Bench),
    /// Mixed load for long, with memory, files and threads of the server watched.
    Soak(Soak),
    /// Attacks a small server from many sides, one after the other, with an innocent client beside.
    Hostile(Hostile),
}

/// The server under test.
#[derive(Args)]
struct Under {
    /// The server's command line with {port} and {dir}; default: the haypile beside this program, or HAYPILE_BIN.
    #[arg(long)]
    server: Option<String>,
    /// Directives added to the command line, as in "--workers 1 --maxmemory 64mb".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
}

impl Under {
    /// Returns the command line, with `directives` of the program before those of the user.
    fn template(&self, directives: &str) -> Result<Template> {
        match &self.server {
            Some(line) => Template::parse(line)?.with(&self.options),
            None => Template::haypile(&haypile_binary()?, directives)?.with(&self.options),
        }
    }
}

#[derive(Args)]
struct Diff {
    #[command(flatten)]
    under: Under,
    /// The reference server: a command line with {port} and {dir}.
    #[arg(long, default_value = "redis-server --bind 127.0.0.1 --port {port} --dir {dir} --save \"\"")]
    base: String,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// The number of the first case.
    #[arg(long, default_value_t = 0)]
    first_case: u64,
    /// The kind of cases: all, or only those of commands, of channels or of blocking.
    #[arg(long, value_enum, default_value_t = diff::Kind::All)]
    kind: diff::Kind,
    /// Ends the run after this number of failing sequences.
    #[arg(long, default_value_t = 1)]
    failures_max: u64,
    /// The directory for failing sequences.
    #[arg(long, default_value = "target/diff")]
    save_to: PathBuf,
    /// Plays the sequences of a file instead.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Prints the table of differences that are allowed, and stops.
    #[arg(long)]
    exceptions: bool,
}

#[derive(Args)]
struct Crash {
    #[command(flatten)]
    under: Under,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Connections that write.
    #[arg(long, default_value_t = 24)]
    writers: u64,
    /// The durability that a reply waits for: os or fsync. Given to our server only, as everything in --base-options.
    #[arg(long, default_value = "os")]
    durability: String,
    /// Directives that make flushes, segments and chunks small, so that kills meet them.
    #[arg(long, default_value = crash::SMALL_STORE, default_value_if("short_disk", "true", crash::short_disk::SMALL_STORE))]
    base_options: String,
    /// Runs on a small disk, a tmpfs, that other files fill and empty again.
    #[arg(long)]
    short_disk: bool,
}

#[derive(Args)]
struct Repl {
    #[command(flatten)]
    under: Under,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Connections that write before a disturbance, and as many behind it.
    #[arg(long, default_value_t = 5)]
    writers: u64,
    /// The durability that a reply waits for: os or fsync.
    #[arg(long, default_value = "os")]
    durability: String,
}

#[derive(Args)]
struct RaftChaos {
    /// The system under test: a group of our servers, etcd as a control, or one server of ours.
    #[arg(long, value_enum, default_value_t = ChaosSystem::Haypile)]
    system: ChaosSystem,
    /// The command line is that of the system `single`; the options are for it and for a group of ours.
    #[command(flatten)]
    under: Under,
    /// The number of nodes; always 1 for the system `single`.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Connections that read and write.
    #[arg(long, default_value_t = 10)]
    clients: u64,
    /// The only scenario to play, by its name.
    #[arg(long)]
    scenario: Option<String>,
    /// Lets a run of ten minutes and more pass that has not played all scenarios which it could.
    #[arg(long)]
    may_miss: bool,
    /// Prints the names of the scenarios, and stops.
    #[arg(long)]
    scenarios: bool,
    /// Checks a history in a file instead, as a failed run leaves one.
    #[arg(long)]
    check: Option<PathBuf>,
    /// Has all sessions lie in this way, which must be found.
    #[arg(long = "break", value_enum)]
    lie: Option<raft_chaos::lies::Lie>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ChaosSystem {
    Haypile,
    Etcd,
    /// Etcd whose nodes answer reads without a quorum, which must be found.
    EtcdSerializable,
    Single,
}

#[derive(Args)]
struct Damage {
    #[command(flatten)]
    under: Under,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The durability that a reply waits for: os or fsync.
    #[arg(long, default_value = "os")]
    durability: String,
}

#[derive(Args)]
struct Soak {
    #[command(flatten)]
    under: Under,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    #[arg(long, default_value_t = 16)]
    clients: u64,
    /// The settings for CONFIG SET, which runs all the time, separated by semicolons.
    #[arg(long, default_value = soak::SETTINGS)]
    settings: String,
}

#[derive(Args)]
struct Hostile {
    #[command(flatten)]
    under: Under,
    /// The duration of each attack, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Attacks, separated by commas; all if not given.
    #[arg(long, value_delimiter = ',')]
    attacks: Vec<String>,
    /// The factor on the usual size of each attack.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Attacks a server with its default settings, of which only waits are judged, instead of a small one.
    #[arg(long)]
    defaults: bool,
    /// Attacks redis-server as well, each time after the server, and prints ratios.
    #[arg(long)]
    compare: bool,
}

fn main() -> ExitCode {
    let result = match Cli::parse().program {
        Program::Diff(arguments) => run_diff(&arguments),
        Program::Crash(arguments) => run_crash(&arguments),
        Program::Repl(arguments) => run_repl(&arguments),
        Program::Psync(options) => psync::run(&options),
        Program::RaftChaos(arguments) => run_raft_chaos(&arguments),
        Program::Damage(arguments) => run_damage(&arguments),
        Program::Bench(arguments) => bench::run(&arguments),
        Program::Soak(arguments) => run_soak(&arguments),
        Program::Hostile(arguments) => run_hostile(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("haypile-harness: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_diff(arguments: &Diff) -> Result<bool> {
    if arguments.exceptions {
        print!("{}", diff::exceptions_table());
        return Ok(true);
    }
    let base = Template::parse(&arguments.base)?;
    let server = arguments.under.template(diff::SMALL_STORE)?;
    if let Some(path) = &arguments.replay {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let kept = if text.contains("\n== ") {
            sequence::kept_from_text(&text)?
        } else {
            vec![sequence::Kept { name: path.display().to_string(), sequence: sequence::from_text(&text)? }]
        };
        let failed = diff::replay(&base, &server, &kept)?;
        println!("diff: {} sequences replayed, {} differ", kept.len(), failed.len());
        return Ok(failed.is_empty());
    }
    diff::run(&diff::Options {
        base,
        server,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        first_case: arguments.first_case,
        cases: arguments.cases,
        kind: arguments.kind,
        failures_max: arguments.failures_max,
        save_to: arguments.save_to.clone(),
    })
}

fn run_raft_chaos(arguments: &RaftChaos) -> Result<bool> {
    use raft_chaos::scenario::{SCENARIOS, Scenario};
    use raft_chaos::systems::{etcd::Etcd, haypile, haypile::Haypile, single};
    if arguments.scenarios {
        SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
        return Ok(true);
    }
    if let Some(path) = &arguments.check {
        return raft_chaos::recheck(path);
    }
    let directives = format!("{} {} {}", single::DIRECTIVES, haypile::DIRECTIVES, arguments.under.options);
    let system: Box<dyn raft_chaos::system::System> = match arguments.system {
        ChaosSystem::Etcd => Box::new(Etcd { serializable: false }),
        ChaosSystem::EtcdSerializable => Box::new(Etcd { serializable: true }),
        ChaosSystem::Single => Box::new(single::Single { template: arguments.under.template(single::DIRECTIVES)? }),
        ChaosSystem::Haypile => Box::new(Haypile { binary: haypile_binary()?, directives }),
    };
    let find = |name: &String| Scenario::named(name).with_context(|| format!("no scenario {name}; see --scenarios"));
    let scenario = arguments.scenario.as_ref().map(find).transpose()?;
    let alone = arguments.system == ChaosSystem::Single;
    if !alone {
        // The first build fetches a module, which needs the network that the namespaces do not have.
        let place = Workplace::new("checker", None)?;
        Checker::build(&place.data())?;
    }
    let network = match if alone { None } else { enter()? } {
        Some(network) => network,
        None if system.can(Ability::OwnAddresses) && !alone => Network::Relays,
        None => Network::Loopback,
    };
    raft_chaos::run(&raft_chaos::Options {
        system: &*system,
        network,
        nodes: if alone { 1 } else { arguments.nodes },
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        clients: arguments.clients,
        scenario,
        may_miss: arguments.may_miss,
        lie: arguments.lie,
    })
}

fn run_damage(arguments: &Damage) -> Result<bool> {
    let durability = &arguments.durability;
    let directives = format!("--durability {durability} {}", crash::SMALL_STORE);
    damage::run(&damage::Options {
        server: arguments.under.template(&directives)?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        fsync: durability == "fsync",
    })
}

fn run_repl(arguments: &Repl) -> Result<bool> {
    let durability = &arguments.durability;
    repl::run(&repl::Options {
        server: arguments.under.template(&format!("--durability {durability} {}", repl::DIRECTIVES))?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        writers: arguments.writers,
    })
}

fn run_crash(arguments: &Crash) -> Result<bool> {
    let durability = format!("--durability {}", arguments.durability);
    let run = if arguments.short_disk { crash::short_disk::run } else { crash::run };
    run(&crash::Options {
        server: arguments.under.template(&format!("{durability} {}", arguments.base_options))?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        writers: arguments.writers,
    })
}

fn run_soak(arguments: &Soak) -> Result<bool> {
    soak::run(&soak::Options {
        server: arguments.under.template(soak::DIRECTIVES)?,
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        time: Duration::from_secs_f64(arguments.minutes * 60.0),
        clients: arguments.clients,
        settings: arguments.settings.split(';').filter(|s| !s.is_empty()).map(str::to_string).collect(),
    })
}

fn run_hostile(arguments: &Hostile) -> Result<bool> {
    hostile::run(&hostile::Options {
        server: arguments.under.template(if arguments.defaults { "" } else { hostile::DIRECTIVES })?,
        judged: hostile::Judged {
            waits: true,
            resident_bytes_max: (!arguments.defaults).then_some(hostile::RESIDENT_BYTES_MAX),
        },
        base: arguments.compare.then(|| Template::redis("")).transpose()?,
        time: Duration::from_secs_f64(arguments.seconds),
        attacks: arguments.attacks.clone(),
        scale: arguments.scale,
    })
}
