//! The state that sessions hold: watched keys, connections, transfers to servers that do not answer.

use std::net::TcpListener;
use std::thread;

use anyhow::{Result, ensure};

use super::{Attack, Site, nothing, right};

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "watch-many", prepare: nothing, attack: watch_many },
    Attack { name: "watch-one-by-many", prepare: nothing, attack: watch_one_by_many },
    Attack { name: "client-list", prepare: nothing, attack: client_list },
    Attack { name: MIGRATE, prepare: prepare_migrate, attack: migrate_to_the_silent },
];

/// The name of the attack by transfers.
pub(super) const MIGRATE: &str = "migrate-to-the-silent";

const WATCHED: usize = 200_000;
const CLIENTS: usize = 2000;
const MIGRATIONS: usize = 24;

fn watch_many(site: &Site) -> Result<()> {
    const EACH: usize = 10_000;
    let names = |first: usize| (first..first + EACH).map(|number| format!("watched:{number}"));
    let watch = |first| ["WATCH".to_string()].into_iter().chain(names(first)).collect::<Vec<_>>();
    let mut client = site.client()?;
    let mut writer = site.client()?;
    loop {
        for first in (0..site.count(WATCHED)).step_by(EACH) {
            right(client.call(&watch(first))?)?;
        }
        right(client.call(&["MULTI"])?)?;
        right(client.call(&["EXEC"])?)?;
        right(writer.call(&["SET", "watched:1", "x"])?)?;
        if !site.again() {
            return Ok(());
        }
    }
}

/// Watches the same keys from thousands of clients, of which one after the other runs a block and watches again.
fn watch_one_by_many(site: &Site) -> Result<()> {
    let mut clients = (0..site.count(CLIENTS)).map(|_| site.client()).collect::<Result<Vec<_>>>()?;
    let names = (0..100).map(|number| format!("watched:{number}"));
    let watch: Vec<String> = ["WATCH".to_string()].into_iter().chain(names).collect();
    for client in &mut clients {
        right(client.call(&watch)?)?;
    }
    loop {
        for client in &mut clients {
            client.push(&["MULTI"]);
            client.push(&["SET", "watched:1", "x"]);
            client.push(&["EXEC"]);
            client.push(&watch);
            client.flush()?;
            for _ in 0..4 {
                right(client.read()?)?;
            }
            if site.is_over() {
                break;
            }
        }
        if !site.again() {
            return Ok(());
        }
    }
}

fn client_list(site: &Site) -> Result<()> {
    let _clients = (0..site.count(CLIENTS)).map(|_| site.client()).collect::<Result<Vec<_>>>()?;
    let mut client = site.client()?;
    loop {
        right(client.call(&["CLIENT", "LIST"])?)?;
        right(client.call(&["CLIENT", "KILL", "ID", "1000000000"])?)?;
        right(
            client
                .call(&["CLIENT", "KILL", "ADDR", "192.0.2.1:1", "USER", "default"])
                .map(|_| crate::client::Reply::ok())?,
        )?;
        if !site.again() {
            return Ok(());
        }
    }
}

fn prepare_migrate(site: &Site) -> Result<()> {
    site.fill(MIGRATIONS + 1, |number| vec!["SET".into(), format!("moved:{number}"), "x".into()])
}

/// Starts many transfers to a server that accepts and never answers; one with a short timeout is answered within it.
fn migrate_to_the_silent(site: &Site) -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let port = silent.local_addr()?.port().to_string();
    let migrate = |number: usize, timeout_ms: &str| -> Result<()> {
        let words = ["MIGRATE", "127.0.0.1", &port, &format!("moved:{number}"), "0", timeout_ms];
        let begun = std::time::Instant::now();
        let reply = site.client()?.call(&words)?;
        let error = reply.error().unwrap_or_default();
        ensure!(error.starts_with("IOERR"), "MIGRATE to a silent server was answered by {reply}");
        let limit_ms: u64 = timeout_ms.parse()?;
        let took_ms = begun.elapsed().as_millis() as u64;
        // Two keys may share a lock, so that the second call gets its target after the first.
        ensure!(took_ms < 2 * limit_ms + 1000, "MIGRATE with a timeout of {limit_ms} ms took {took_ms} ms");
        Ok(())
    };
    loop {
        let answers: Vec<Result<()>> = thread::scope(|scope| {
            let many: Vec<_> = (0..MIGRATIONS).map(|number| scope.spawn(move || migrate(number, "2000"))).collect();
            thread::sleep(std::time::Duration::from_millis(300));
            let one = migrate(MIGRATIONS, "500");
            many.into_iter().map(|thread| thread.join().expect("no panic")).chain([one]).collect()
        });
        answers.into_iter().collect::<Result<Vec<()>>>()?;
        if !site.again() {
            return Ok(());
        }
    }
}
