//! A master and perhaps a replica, which has all that the master has.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::client::info_field;
use crate::server::{Server, Template, Workplace};

/// The longest wait for a replica.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(5);

pub struct Pair {
    pub master: Server,
    pub replica: Option<Server>,
    pub places: Vec<Workplace>,
}

impl Pair {
    pub fn start(template: &Template, dir: &Path, has_replica: bool) -> Result<Pair> {
        let place = Workplace::new("bench-replication", Some(dir))?;
        let (master, _) = Server::start(template, &place)?;
        let mut pair = Pair { master, replica: None, places: vec![place] };
        if has_replica {
            pair.begin_replica(template, dir)?;
            pair.wait_for_replica()?;
        }
        Ok(pair)
    }

    /// Starts a replica, and does not wait for it.
    pub fn begin_replica(&mut self, template: &Template, dir: &Path) -> Result<()> {
        let (replica, place) = start_replica(&self.master, template, dir)?;
        self.replica = Some(replica);
        self.places.push(place);
        Ok(())
    }

    /// Starts another replica of this master, and waits until it has all; it is removed with what is returned.
    pub fn start_beside(&self, template: &Template, dir: &Path) -> Result<(Server, Workplace)> {
        let (server, place) = start_replica(&self.master, template, dir)?;
        wait_for(&self.master, &server)?;
        Ok((server, place))
    }

    /// Starts a redis-server that follows this master, and waits until it does.
    pub fn start_follower(&self, template: &Template, dir: &Path) -> Result<(Server, Workplace)> {
        let (server, place) = start_replica(&self.master, template, dir)?;
        let (mut client, begin) = (server.client()?, Instant::now());
        loop {
            let info = client.info("replication")?.unwrap_or_default();
            if info_field(&info, "master_link_status") == Some("up") {
                return Ok((server, place));
            }
            ensure!(begin.elapsed() < PATIENCE, "the redis-server does not follow:\n{info}");
            sleep(LOOK);
        }
    }

    /// Waits until the replica has all.
    pub fn wait_for_replica(&self) -> Result<()> {
        wait_for(&self.master, self.replica.as_ref().context("there is a replica")?)
    }
}

impl Pair {
    /// Waits until another replica of this master has all.
    pub fn wait_for(&self, replica: &Server) -> Result<()> {
        wait_for(&self.master, replica)
    }
}

fn start_replica(master: &Server, template: &Template, dir: &Path) -> Result<(Server, Workplace)> {
    let place = Workplace::new("bench-replication", Some(dir))?;
    let of = template.with(&format!("--replicaof 127.0.0.1 {}", master.port()))?;
    let (replica, _) = Server::start(&of, &place)?;
    Ok((replica, place))
}

fn wait_for(master: &Server, replica: &Server) -> Result<()> {
    let begin = Instant::now();
    loop {
        let (of_master, of_replica) = (info(master)?, info(replica)?);
        let is_up = info_field(&of_replica, "master_link_status") == Some("up");
        let has = info_field(&of_replica, "slave_repl_offset");
        if is_up && has == info_field(&of_master, "master_repl_offset") {
            return Ok(());
        }
        // Another client writes meanwhile: as good as all is enough.
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let of_both = (number(has), number(info_field(&of_master, "master_repl_offset")));
        if is_up && of_both.0 > 0 && of_both.0 + of_both.0 / 1000 >= of_both.1 {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "the replica does not get on: {of_replica}");
        sleep(LOOK);
    }
}

/// Returns a server's section about replication.
pub fn info(server: &Server) -> Result<String> {
    server.client()?.info("replication")?.context("there is a section about replication")
}
