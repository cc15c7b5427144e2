//! The cost of an import: redis-server loads a file of strings and our `import` imports it, and the CPU time of either
//! process counts. Then an import is killed in the middle, run again and checked, and its keys are read.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::disk::keys::{VALUE_BYTES, key, value};
use super::process::{Steal, cpu_seconds, machine};
use super::report;
use crate::client::Reply;
use crate::random::Random;
use crate::server::{Server, Template, Workplace};

pub struct Options {
    /// The template of redis-server.
    pub base: Template,
    /// The template of our server, which reads what was imported.
    pub server: Template,
    pub binary: PathBuf,
    pub keys: u64,
    /// The number of rounds, whose median counts.
    pub rounds: u32,
    /// The directory of the file and the data.
    pub dir: PathBuf,
    pub write_to: Option<PathBuf>,
}

/// The most CPU time of an import over that of redis-server's loading.
const RATIO_MAX: f64 = 2.0;

/// The directives of the imports; only the first has a target. The second import has to compact meanwhile.
const CASES: [&str; 2] = ["", "--maxmemory 256mb"];

/// Keys that are read after a killed import was run again.
const SAMPLES: u64 = 10_000;

/// The cost of loading a file.
#[derive(Clone, Copy)]
struct Cost {
    cpu_s: f64,
    wall_s: f64,
}

/// Measures and prints; returns true if the target is met.
pub fn run(options: &Options) -> Result<bool> {
    let steal = Steal::now();
    let place = Workplace::new("import", Some(&options.dir))?;
    // redis-server looks for a file of this name.
    let file = place.data().join("dump.rdb");
    write_file(&file, options.keys).with_context(|| format!("writing {}", file.display()))?;
    let bytes = fs::metadata(&file)?.len();
    let (mut base, mut ours) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..options.rounds {
        base.push(load(options, &place)?);
        for (directives, costs) in CASES.iter().zip(&mut ours) {
            costs.push(import(options, &file, &place.file("imported"), directives)?);
        }
    }
    let base = median(base);
    let line = |name: &str, cost: Cost, ratio: &str| {
        let (mb_per_s, ns) = (bytes as f64 / 1e6 / cost.wall_s, cost.cpu_s * 1e9 / options.keys as f64);
        format!("| {name} | {:.2} | {ns:.0} | {:.1} | {mb_per_s:.1} | {ratio} |\n", cost.cpu_s, cost.wall_s)
    };
    let mut table =
        String::from("| what | CPU seconds | CPU ns a key | seconds | MB/s | of Redis |\n|---|---|---|---|---|---|\n");
    table += &line("redis-server", base, "1");
    let mut met = true;
    for (directives, costs) in CASES.iter().zip(ours) {
        let cost = median(costs);
        let ratio = cost.cpu_s / base.cpu_s;
        let (name, ratio) = match *directives {
            "" => {
                met = ratio <= RATIO_MAX;
                let missed = if met { "" } else { " (missed)" };
                ("`haypile import`".to_owned(), format!("**{ratio:.2}**{missed}, at most {RATIO_MAX:.2}"))
            }
            directives => (format!("`haypile import {directives}`"), format!("{ratio:.2}")),
        };
        table += &line(&name, cost, &ratio);
    }
    let killed = kill_and_run_again(options, &file)?;
    let text = format!(
        "{table}\n{} keys, {:.1} MB, on {}; {:.1} % of the time was stolen. {killed}\n",
        options.keys,
        bytes as f64 / 1e6,
        machine(),
        steal.percent_since()
    );
    print!("{text}");
    if let Some(page) = &options.write_to {
        report::write(page, "import", &report::rounds(options.rounds), &text)?;
        println!("written to {}", page.display());
    }
    Ok(met)
}

/// Writes a file as redis-server does, without compression and without a checksum.
fn write_file(path: &Path, keys: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    // Behind the header come the database and how many keys it has (as 64 bits), none with a deadline.
    out.write_all(b"REDIS0010\xfe\x00\xfb\x81")?;
    out.write_all(&keys.to_be_bytes())?;
    out.write_all(&[0])?;
    for number in 0..keys {
        let (key, value) = (key(number), value(number));
        // The value is a string; the lengths have six and fourteen bits.
        out.write_all(&[0, key.len() as u8])?;
        out.write_all(&key)?;
        out.write_all(&(0x4000 | VALUE_BYTES as u16).to_be_bytes())?;
        out.write_all(&value)?;
    }
    out.write_all(b"\xff\0\0\0\0\0\0\0\0")?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Measures redis-server from its start until it answers.
fn load(options: &Options, place: &Workplace) -> Result<Cost> {
    let (mut server, start) = Server::start(&options.base, place)?;
    let cost = Cost { cpu_s: cpu_seconds(server.pid()), wall_s: start.seconds };
    expect_count(&server, options.keys)?;
    server.kill()?;
    Ok(cost)
}

fn expect_count(server: &Server, keys: u64) -> Result<()> {
    let count = server.client()?.command("DBSIZE")?.integer();
    ensure!(count == Some(keys as i64), "DBSIZE says {count:?}, not {keys}");
    Ok(())
}

fn spawn(options: &Options, file: &Path, dir: &Path, directives: &str) -> Result<Child> {
    let mut command = Command::new(&options.binary);
    command.arg("import").arg(file).arg("--dir").arg(dir).args(directives.split_whitespace());
    let stdin = if file == Path::new("-") { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("starting {} import", options.binary.display()))
}

/// Measures a whole import into a directory that is made for it and deleted.
fn import(options: &Options, file: &Path, dir: &Path, directives: &str) -> Result<Cost> {
    let begun = Instant::now();
    let mut child = spawn(options, file, dir, directives)?;
    // The process has ended, but is not reaped: its CPU times can still be read.
    waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let cost = Cost { cpu_s: cpu_seconds(child.id()), wall_s: begun.elapsed().as_secs_f64() };
    let status = child.wait()?;
    ensure!(status.success(), "the import ended with {status}");
    fs::remove_dir_all(dir)?;
    Ok(cost)
}

/// Kills an import when it was given half of the file, runs it again, and reads the result: returns a sentence about
/// it.
fn kill_and_run_again(options: &Options, file: &Path) -> Result<String> {
    let place = Workplace::new("import-killed", Some(&options.dir))?;
    let half = fs::metadata(file)?.len() / 2;
    let mut child = spawn(options, Path::new("-"), &place.data(), "")?;
    let fed = io::copy(&mut File::open(file)?.take(half), child.stdin.as_mut().context("it is a pipe")?);
    child.kill()?;
    child.wait()?;
    ensure!(fed? == half, "the import ended before it was killed");
    let there = {
        let (server, _) = Server::start(&options.server, &place)?;
        let there = server.client()?.command("DBSIZE")?.integer().unwrap_or(0);
        ensure!((0..options.keys as i64).contains(&there), "a killed import has left {there} keys");
        server.stop()?;
        there
    };
    let mut child = spawn(options, file, &place.data(), "")?;
    let status = child.wait()?;
    ensure!(status.success(), "the second import ended with {status}");
    options.server.check(&place.data())?;
    let (server, _) = Server::start(&options.server, &place)?;
    expect_count(&server, options.keys)?;
    let (mut client, mut random) = (server.client()?, Random::of_part(options.keys, 0));
    for _ in 0..SAMPLES {
        let number = random.below(options.keys);
        let reply = client.call(&[b"GET", &key(number)[..]])?;
        ensure!(reply == Reply::bulk(value(number)), "key {number} is {reply}");
    }
    drop(client);
    server.stop()?;
    Ok(format!(
        "An import that was killed when it had been given half of the file had brought in {there} keys; after it was run again \
         all {} keys were there, {SAMPLES} of them were read and right, and `haypile check` found the directory sound.",
        options.keys
    ))
}

/// Returns the median by CPU time.
fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
    costs[costs.len() / 2]
}
