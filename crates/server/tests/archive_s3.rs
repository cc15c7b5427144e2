//! An archive in an object store, over a network that is not always good.

mod process;
#[path = "../../archive/tests/s3/mod.rs"]
mod s3;

use process::following::{field, fill};
use process::{Client, Server, TempDir, wait_until};
use s3::{BUCKET, Between, Network, S3, options};
use std::net::TcpStream;
use std::process::Command;

fn archive_field(client: &mut Client<TcpStream>, name: &str) -> String {
    let info = client.ask("INFO archive");
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    value.unwrap_or_else(|| panic!("no {name} in {info}"))
}

fn wait_for_archive(client: &mut Client<TcpStream>) {
    let last: u64 = field(client, "master_repl_offset").parse().expect("a number");
    wait_until("all is archived", || {
        archive_field(client, "archive_last_record").parse::<u64>().expect("a number") >= last
            && !archive_field(client, "archive_last_backup").is_empty()
    });
}

#[test]
fn an_object_store_takes_all_and_gives_it_back_whatever_the_network_does() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let s3 = S3::start(place.path());
    let between = Between::new(s3.address);
    let location = format!("s3://{BUCKET}/some/where");
    let pairs: Vec<String> =
        options(between.address).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let joined = pairs.join(" ");
    let archive = ["--archive-to", &location, "--archive-options", &joined, "--archive-interval", "1"];
    let more = ["--enable-debug-command", "yes", "--memtable-size", "1mb", "--log-segment-size", "1mb"];
    let start = || Server::start(dir.path(), &[&archive[..], &more].concat());
    let server = start();
    let mut client = server.client();
    assert!(!client.ask("CONFIG GET archive-to").is_empty());
    fill(&mut client, 0, 2000);
    wait_for_archive(&mut client);
    for (at, network) in [Network::Refusing, Network::Cutting(20_000), Network::Slow(5)].into_iter().enumerate() {
        between.set(network);
        fill(&mut client, 2000 + at * 1000, 3000 + at * 1000);
        if !matches!(network, Network::Slow(_)) {
            wait_until("it is noticed", || archive_field(&mut client, "archive_state") == "failing");
            between.set(Network::Good);
        }
        wait_for_archive(&mut client);
    }
    // The server is killed while requests are under way.
    between.set(Network::Slow(20));
    fill(&mut client, 5000, 6000);
    client.ask("ARCHIVE.BACKUP");
    server.kill();
    between.set(Network::Good);
    let server = start();
    let mut client = server.client();
    fill(&mut client, 6000, 6100);
    wait_for_archive(&mut client);
    assert_eq!(archive_field(&mut client, "archive_missing_records"), "");
    let (digest, last) = (client.ask("DEBUG DIGEST"), field(&mut client, "master_repl_offset"));
    // A stop waits for nobody.
    between.set(Network::Slow(60_000));
    fill(&mut client, 6100, 6200);
    let since = std::time::Instant::now();
    server.stop();
    assert!(since.elapsed() < std::time::Duration::from_secs(20), "{:?}", since.elapsed());
    between.set(Network::Good);

    let data = place.path().join("restored");
    let mut words: Vec<&str> = vec!["--from", &location, "--to", &last, "--dir", data.to_str().expect("a text")];
    pairs.iter().for_each(|pair| words.extend(["--option", pair]));
    let restored = Command::new(env!("CARGO_BIN_EXE_haypile")).arg("restore").args(&words).output().expect("it runs");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let copy = Server::start(&data, &["--enable-debug-command", "yes"]);
    let mut reader = copy.client();
    assert_eq!(reader.ask("DEBUG DIGEST"), digest);
    copy.stop();
    let mut words: Vec<&str> = vec!["check", &location];
    pairs.iter().for_each(|pair| words.extend(["--option", pair]));
    let checked = Command::new(env!("CARGO_BIN_EXE_haypile")).args(&words).output().expect("it runs");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && said.contains(": 0 defects"), "{said}");
}
