//! The origin of a store's records, which decides who gives them their indexes and who leases object ids.

use crate::refusal::Refusal;
use std::sync::atomic::{AtomicU8, Ordering};

/// The origin of a store's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// The records come from the store's own log, which is read at open: the store appends nothing.
    Replaying = 0,
    /// The records come from another store's log, one by one: the store appends nothing of its own.
    Following = 1,
    /// The records come from the store's own transactions.
    Leading = 2,
}

/// The store follows, or is to be closed because it shall.
const FOLLOWS: u8 = 1;
/// The store has too few replicas.
const NO_REPLICAS: u8 = 2;
/// The store hands over: another one is about to lead in its place.
const HANDS_OVER: u8 = 4;
/// The store repeats the commands of another server, whose writes alone it takes. Invariant: whoever clears `FOLLOWS`
/// for that has set this before.
const REPEATS: u8 = 8;

/// The role that a store has now.
pub(crate) struct RoleNow {
    role: AtomicU8,
    /// The reasons why clients' writes are refused, as bits.
    refusals: AtomicU8,
}

impl Default for RoleNow {
    /// Returns the role of a store that begins: its replay.
    fn default() -> RoleNow {
        RoleNow { role: AtomicU8::new(Role::Replaying as u8), refusals: AtomicU8::new(0) }
    }
}

impl RoleNow {
    /// Returns the role.
    pub fn get(&self) -> Role {
        match self.role.load(Ordering::Acquire) {
            0 => Role::Replaying,
            1 => Role::Following,
            _ => Role::Leading,
        }
    }

    /// Changes the role. Invariant: no store becomes a replaying one again.
    pub fn set(&self, role: Role) {
        let before = self.role.swap(role as u8, Ordering::AcqRel);
        assert!(before < role as u8, "a role is never taken back: {before} became {role:?}");
        self.set_refusal(FOLLOWS, role == Role::Following);
    }

    /// Refuses clients' writes until the role changes.
    pub fn refuse_writes(&self) {
        self.set_refusal(FOLLOWS, true);
    }

    /// Returns whether a store that leads refuses writes because it is going to follow.
    pub fn is_about_to_follow(&self) -> bool {
        self.get() == Role::Leading && self.refusals.load(Ordering::Acquire) & FOLLOWS != 0
    }

    /// Ends what `refuse_writes` has begun.
    pub fn stay_leader(&self) {
        assert_eq!(self.get(), Role::Leading, "a store that follows refuses writes");
        assert!(self.repeats(), "clients' writes are refused in any case");
        self.set_refusal(FOLLOWS, false);
    }

    /// Refuses clients' writes of a store that leads while there are too few replicas.
    pub fn set_lacks_replicas(&self, lacks: bool) {
        self.set_refusal(NO_REPLICAS, lacks);
    }

    /// Refuses writes, but for those of the server whose commands the store repeats.
    pub fn set_repeats(&self, repeats: bool) {
        self.set_refusal(REPEATS, repeats);
    }

    /// Returns whether the store repeats the commands of another server.
    pub fn repeats(&self) -> bool {
        self.refusals.load(Ordering::Acquire) & REPEATS != 0
    }

    /// Refuses all writes of a store that leads while another one is about to lead.
    pub fn set_hands_over(&self, hands_over: bool) {
        self.set_refusal(HANDS_OVER, hands_over);
    }

    /// Returns whether the store makes records of its own. Two loads.
    #[inline]
    pub fn makes_records(&self) -> bool {
        self.get() == Role::Leading && self.refusals.load(Ordering::Acquire) & (FOLLOWS | HANDS_OVER) == 0
    }

    fn set_refusal(&self, bit: u8, on: bool) {
        match on {
            true => self.refusals.fetch_or(bit, Ordering::AcqRel),
            false => self.refusals.fetch_and(!bit, Ordering::AcqRel),
        };
    }

    /// Returns whether clients' writes are refused because the store follows, or repeats what another server does. One
    /// load.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) & (FOLLOWS | REPEATS) != 0
    }

    /// Returns why clients' writes are refused. One load.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        match self.refusals.load(Ordering::Relaxed) {
            0 => None,
            bits if bits & (FOLLOWS | HANDS_OVER | REPEATS) != 0 => Some(Refusal::Follows),
            _ => Some(Refusal::NoReplicas),
        }
    }
}
