//! Marks: what a server does to the files of an archive, for as long as it does it.
//!
//! A backup is made of files that are there already, too, and a server that removes files may have looked for backups
//! before the manifest of this one came. So a backup waits while another server removes, and nobody removes files
//! while a backup is made: each sets its mark before it looks for those of others, so that one of two sees the other's.

use crate::archive::{Archive, Error};
use crate::names::MARKS;
use crate::place::Listed;
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The work that a mark tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A backup is being made.
    Making,
    /// Files are being removed.
    Removing,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Making => "making-",
            Work::Removing => "removing-",
        }
    }

    /// How old the mark of a server that is gone may be until it counts no more: many times the interval of its
    /// renewal, and more than a request to the place takes.
    fn lasts(self) -> Duration {
        match self {
            Work::Making => Duration::from_secs(6 * 3600),
            Work::Removing => Duration::from_secs(600),
        }
    }

    fn renewed_after(self) -> Duration {
        self.lasts() / 10
    }
}

/// A mark of this server, which goes when it is dropped.
pub struct Mark {
    archive: Archive,
    work: Work,
    name: String,
    set: Mutex<Instant>,
}

impl Archive {
    /// Sets a mark.
    ///
    /// # Errors
    /// The place refuses.
    pub fn mark(&self, work: Work) -> Result<Mark, Error> {
        let mut id = [0; 8];
        SystemRandom::new().fill(&mut id).expect("the kernel's random source always gives bytes");
        let name = format!("{MARKS}{}{:016x}", work.name(), u64::from_le_bytes(id));
        let mark = Mark { archive: self.clone(), work, name, set: Mutex::new(Instant::now()) };
        mark.put()?;
        Ok(mark)
    }
}

impl Mark {
    fn put(&self) -> Result<(), Error> {
        self.archive.look_first()?;
        let mut text = Some(b"haypile\n".to_vec());
        Ok(self.archive.place().put(&self.name, &mut || Ok(text.take()))?)
    }

    /// Sets the mark again where it has been there for a while: it counts for some time only.
    ///
    /// # Errors
    /// The place refuses, or the mark may have ceased to count: others may have begun.
    pub fn renew(&self) -> Result<(), Error> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if set.elapsed() >= self.work.lasts() / 2 {
            return Err(Error::Failed(format!("{} is too slow: others may be at work there", self.archive.name())));
        }
        if set.elapsed() >= self.work.renewed_after() {
            self.put()?;
            *set = Instant::now();
        }
        Ok(())
    }

    /// Whether somebody else does this work. Marks that count no more are removed.
    ///
    /// # Errors
    /// The place refuses.
    pub fn meets(&self, work: Work) -> Result<bool, Error> {
        // By the place's clock, which all marks are set by.
        self.put()?;
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let there = self.archive.place().list(MARKS, "")?;
        let Some(own) = there.iter().find(|listed| listed.name == self.name) else {
            return Err(Error::Failed(format!("{} does not show what was just written there", self.archive.name())));
        };
        let lasts_ms = work.lasts().as_millis() as u64;
        let is_over = |listed: &Listed| own.modified_ms.saturating_sub(listed.modified_ms) > lasts_ms;
        let prefix = format!("{MARKS}{}", work.name());
        let mut others = there.iter().filter(|listed| listed.name.starts_with(&prefix) && listed.name != self.name);
        let mut is_met = false;
        others.try_for_each(|listed| match is_over(listed) {
            true => self.archive.place().remove(&listed.name),
            false => {
                is_met = true;
                Ok(())
            }
        })?;
        Ok(is_met)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // One that cannot be removed now counts no more after a while.
        let _ = self.archive.place().remove(&self.name);
    }
}
