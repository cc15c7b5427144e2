//! A leader that takes no writes, because its disk is full or its log has failed, has another member lead.

use crate::raft::machine::Data;
use crate::raft::orders::target;
use haypile_raft::{Fault, Machine, Member, Role};
use std::time::{Duration, Instant};

/// The time between two attempts, at first and at most: where all disks are full, nobody is better.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The time since when a leader takes no writes, and its attempts to have another one lead.
#[derive(Default)]
pub struct HandOver {
    unable_since: Option<Instant>,
    /// The last attempt, and the time until the next one.
    tried: Option<(Instant, Duration)>,
}

impl HandOver {
    /// Looks whether the member leads and has taken no writes for so long, and begins to have another one lead.
    ///
    /// # Errors
    /// The member cannot go on.
    pub fn look(&mut self, member: &mut Member<Data<'_>>, patience: Duration) -> Result<(), Fault> {
        if member.role() != Role::Leader {
            self.unable_since = None;
            return Ok(());
        }
        let Some(why) = member.machine().refusal() else {
            *self = HandOver::default();
            return Ok(());
        };
        let now = Instant::now();
        let since = *self.unable_since.get_or_insert(now);
        if now - since < patience || self.tried.is_some_and(|(at, pause)| now - at < pause) || member.is_transferring()
        {
            return Ok(());
        }
        self.tried = Some((now, self.tried.map_or(PAUSE, |(_, before)| (2 * before).min(PAUSE_MAX))));
        match target(member, None) {
            Ok(to) => {
                tracing::warn!("this leader takes no writes ({why}): member {to} is to lead");
                member.transfer(to)
            }
            Err(_) => {
                let last = member.machine().log().last();
                tracing::warn!("this leader takes no writes ({why}), and no other member can lead, record {last}");
                Ok(())
            }
        }
    }
}
