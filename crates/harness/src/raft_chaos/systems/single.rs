//! One Haypile server that replies when the disk has it: killed and started again, it must be as good as one that never
//! ends.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::resp::{RespSession, ask};
use crate::client::info_field;
use crate::raft_chaos::operation::{Kind, Session};
use crate::raft_chaos::system::{Ability, Member, Start, System};
use crate::server::{REPLY_TIMEOUT, Template};

/// Directives that make flushes and segments small, so that kills meet them.
pub const DIRECTIVES: &str = "--durability fsync --maxmemory 64mb --memtable-size 4mb --flush-log-bytes 16mb \
                              --log-segment-size 1mb --disk-free-min 32mb";

/// The server's command line. Any server that speaks RESP can stand in for ours.
pub struct Single {
    pub template: Template,
}

/// Takes a backup by BGSAVE; returns its directory.
pub fn back_up(node: Member, dir: &Path) -> Result<PathBuf> {
    let reply = ask(node, &["BGSAVE"], REPLY_TIMEOUT)?;
    ensure!(reply.error().is_none(), "BGSAVE was answered by {reply}");
    let begin = Instant::now();
    loop {
        let reply = ask(node, &["INFO", "persistence"], REPLY_TIMEOUT)?;
        let info = reply.bytes().map(String::from_utf8_lossy).with_context(|| format!("INFO said {reply}"))?;
        let field = |name| info_field(&info, name).unwrap_or_default();
        if field("rdb_bgsave_in_progress") == "0" {
            ensure!(field("rdb_last_bgsave_status") == "ok", "a backup failed: {}", field("backup_last_error"));
            return Ok(dir.join("backups").join(field("backup_last_name")));
        }
        ensure!(begin.elapsed() < REPLY_TIMEOUT, "a backup takes longer than {} s", REPLY_TIMEOUT.as_secs());
        sleep(Duration::from_millis(5));
    }
}

impl System for Single {
    fn name(&self) -> &'static str {
        "single"
    }

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn can(&self, ability: Ability) -> bool {
        matches!(ability, Ability::Backup | Ability::Clock | Ability::FullDisk)
    }

    fn command(&self, start: &Start<'_>) -> Vec<String> {
        self.template.filled(start.node.client_port, start.dir)
    }

    fn session(&self, members: &[Member], first: usize, reply_max: Duration) -> Box<dyn Session> {
        Box::new(RespSession::new(members, first, reply_max))
    }

    fn check(&self, dir: &Path) -> Result<bool> {
        self.template.check(dir)
    }

    fn back_up(&self, node: Member, dir: &Path) -> Result<PathBuf> {
        back_up(node, dir)
    }
}
