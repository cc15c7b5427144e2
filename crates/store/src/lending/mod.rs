//! Memory that is lent: what the memtable's generations have not used of their share for a while, the row cache has,
//! and stretches of the base beside it.
//!
//! The memtable needs room for what is written until the flush has caught up, and most of the time little is written.
//! A thread looks now and then how much of the share is in use and moves the row cache's bound: up after the use was
//! low for some seconds, down at once, ahead of the writes. Where writes come faster than it looks, a commit wakes it.
//! What it takes back the cache evicts in slices, so that no reader waits long for a lock.

pub(crate) mod lender;

use crate::store::Store;
use lender::Uses;
use std::sync::atomic::Ordering;

/// Bytes that the cache evicts at once, unless the budget is large.
const SLICE_BYTES: u64 = 4 << 20;

impl Store {
    /// Sets whether the row cache has what the memtable's generations do not use of their sizes.
    pub fn set_lends(&self, on: bool) {
        self.lending.is_on.store(on && !self.options.memory_only, Ordering::Relaxed);
    }

    /// Runs the lending thread until `close`.
    pub(crate) fn run_lending(&self) {
        self.lending.set_running(true);
        let mut uses = Uses::default();
        while self.lending.wait() {
            self.look_at_lending(&mut uses);
        }
        self.lending.set_running(false);
    }

    fn look_at_lending(&self, uses: &mut Uses) {
        let lending = &self.lending;
        let (share, own) = (lending.memtables.load(Ordering::Relaxed), lending.row_cache.load(Ordering::Relaxed));
        // A row cache that is off stays off.
        if !lending.is_on() || own == 0 {
            *uses = Uses::default();
            lending.lent.store(0, Ordering::Relaxed);
            lending.wake_at.store(u64::MAX, Ordering::Relaxed);
            self.share_out(own, share);
            return;
        }
        let active = self.memtable.active_bytes();
        let used = active + self.memtable.frozen_bytes() + self.memtable.flushed_bytes();
        let lent = uses.lend(share, used, lending.lent());
        lending.lent.store(lent, Ordering::Relaxed);
        self.share_out(own + lent, share);
        // By half of the room that is left, the next look is due.
        let room = share.saturating_sub(used + lent);
        lending.wake_at.store(if lent == 0 { u64::MAX } else { active + room / 2 }, Ordering::Relaxed);
    }

    /// Divides these bytes between the row cache and stretches of the base, which get what they have and room for some
    /// more, half of it at most.
    ///
    /// Invariant: both bounds together are never more than `bytes`, but for what is taken back.
    fn share_out(&self, bytes: u64, share: u64) {
        let (kept, before) = (self.stretches.bytes(), self.stretches.bytes_max());
        let slice = SLICE_BYTES.min(bytes / 16);
        // A stretch grows by a part of what it has: there is room for that, and for a few megabytes more.
        let room = kept / 4 + slice;
        let is_fitting = (kept + room / 2 + slice / 4..=kept + 3 * room).contains(&before);
        let fitting = if is_fitting { before } else { (kept + room).next_multiple_of(slice.max(1)) };
        let (fitting, most) = (fitting.min(bytes / 2), bytes / 2);
        if fitting < before {
            self.stretches.set_bytes_max(fitting, most);
        }
        self.bound_row_cache(bytes - fitting, share);
        self.stretches.set_bytes_max(fitting, most);
    }

    /// Moves the bound of the row cache; down in slices, few enough of a large budget that they do not take all day.
    fn bound_row_cache(&self, bytes: u64, share: u64) {
        let slice = SLICE_BYTES.max(share / lender::PARTS);
        let mut bound = self.cache.bytes_max();
        while bound > bytes.saturating_add(slice) {
            bound -= slice;
            self.cache.set_bytes(bound);
        }
        if bound != bytes {
            self.cache.set_bytes(bytes);
        }
    }
}
