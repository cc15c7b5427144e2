//! Scripts and functions that take as much time and memory as they get.

use std::thread;

use anyhow::Result;

use super::{Attack, SAMPLE, Site, nothing};

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: ENDLESS, prepare: nothing, attack: endless },
    Attack { name: "scripts-patterns", prepare: nothing, attack: patterns },
    Attack { name: "scripts-memory", prepare: nothing, attack: memory },
    Attack { name: "scripts-many-keys", prepare: nothing, attack: many_keys },
    Attack { name: "functions-load", prepare: nothing, attack: load },
];

/// The attack that redis-server is not measured beside: it answers nobody meanwhile.
pub(super) const ENDLESS: &str = "scripts-endless";

const CLIENTS: usize = 4;

/// Sends a command over some connections again and again. Its reply may be any.
fn repeat_over(site: &Site, clients: usize, words: &[&str]) -> Result<()> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = site.client()?;
                    loop {
                        client.call(words)?;
                        if !site.again() {
                            return Ok(());
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no panic"))
    })
}

/// Runs scripts without an end, which another client kills.
fn endless(site: &Site) -> Result<()> {
    thread::scope(|scope| {
        let attack = scope.spawn(|| repeat_over(site, CLIENTS, &["EVAL", "while true do end", "0"]));
        let mut killer = site.client()?;
        while !attack.is_finished() {
            thread::sleep(5 * SAMPLE);
            killer.call(&["SCRIPT", "KILL"])?;
        }
        attack.join().expect("no panic")
    })
}

/// Matches patterns that take long, which nothing interrupts.
fn patterns(site: &Site) -> Result<()> {
    let script = "return string.find(string.rep('a', 20), string.rep('a?', 20) .. string.rep('a', 20) .. 'b')";
    repeat_over(site, CLIENTS, &["EVAL", script, "0"])
}

/// Takes memory until there is none left for the script.
fn memory(site: &Site) -> Result<()> {
    let script = "local t = {} while true do t[#t + 1] = {#t} end";
    repeat_over(site, CLIENTS, &["EVAL", script, "0"])
}

/// Changes thousands of keys that it does not name.
fn many_keys(site: &Site) -> Result<()> {
    let script = "for i = 1, 5000 do redis.call('INCR', 'attacked:' .. i) end";
    repeat_over(site, CLIENTS, &["EVAL", script, "0"])
}

/// Loads libraries that take until the bound, each another one.
fn load(site: &Site) -> Result<()> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = site.client()?;
                    for round in 0.. {
                        let code = format!("#!lua name=endless{number}_{round}\nwhile true do end");
                        client.call(&["FUNCTION", "LOAD", &code])?;
                        if !site.again() {
                            break;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no panic"))
    })
}
