//! `haypile backup`: has a server make a backup that goes to its archive, and waits for it.

use crate::progress::{ProgressLine, time_left};
use crate::remote::{Remote, error_in};
use haypile_config::cli::Server;
use haypile_resp::Reply;
use std::time::Duration;

/// The longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the server is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the subcommand.
///
/// # Errors
/// A text for people.
pub fn run(place: &Server) -> Result<(), String> {
    let named = format!("{}:{}", place.host, place.port);
    let remote = Remote::connect_to(place, PATIENCE)?;
    let mut remote = remote.map_err(|error| format!("The server {named} cannot be reached: {error}."))?;
    remote.log_in_as(place).map_err(|why| format!("The server {named} refuses: {why}"))?;
    let mut ask = |words: &[&[u8]]| match remote.call(words) {
        Ok(reply) => match error_in(&reply) {
            Some(why) => Err(format!("The server {named} refuses: {why}")),
            None => Ok(reply),
        },
        Err(error) => Err(format!("The connection to {named} has ended: {error}.")),
    };
    let before = Facts::of(&ask(&[b"INFO", b"archive"])?).ok_or("The server has no archives.")?;
    ask(&[b"ARCHIVE.BACKUP"])?;
    let mut line = ProgressLine::new();
    let facts = loop {
        let facts = Facts::of(&ask(&[b"INFO", b"archive"])?).ok_or("The server has no archives.")?;
        if !facts.is_running {
            break facts;
        }
        line.tell(|elapsed| facts.line(elapsed));
        std::thread::sleep(LOOK);
    };
    line.end();
    match facts.made > before.made {
        true => {
            let (bytes, sent) = (facts.bytes as f64 / 1e6, facts.sent as f64 / 1e6);
            println!(
                "backup {} is in the archive {}: {bytes:.1} MB, {sent:.1} MB of them new",
                facts.last, facts.place
            );
            Ok(())
        }
        false => Err(format!("The backup did not get to the archive: {}", facts.failure)),
    }
}

/// The section `archive` of INFO, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    place: String,
    is_running: bool,
    bytes: u64,
    done: u64,
    sent: u64,
    made: u64,
    last: String,
    failure: String,
}

impl Facts {
    fn of(reply: &Reply) -> Option<Facts> {
        let text: String = match reply {
            Reply::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            Reply::Verbatim(_, text) => String::from_utf8_lossy(text).into_owned(),
            _ => return None,
        };
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = |name: &str| field(name)?.parse::<u64>().ok();
        Some(Facts {
            place: field("archive_to")?.to_owned(),
            is_running: number("archive_backup_in_progress")? > 0,
            bytes: number("archive_backup_bytes")?,
            done: number("archive_backup_bytes_done")?,
            sent: number("archive_backup_bytes_sent")?,
            made: number("archive_backups")?,
            last: field("archive_last_backup")?.to_owned(),
            failure: field("archive_last_backup_failure")?.to_owned(),
        })
    }

    /// Returns `archiving: 120.0 of 480.0 MB (25 %), 30 s left`.
    fn line(&self, elapsed: Duration) -> String {
        if self.bytes == 0 {
            return "archiving: a backup is being made".into();
        }
        let share = self.done as f64 / self.bytes as f64;
        let (done, bytes) = (self.done as f64 / 1e6, self.bytes as f64 / 1e6);
        format!("archiving: {done:.1} of {bytes:.1} MB ({:.0} %){}", share * 100.0, time_left(share, elapsed))
    }
}
