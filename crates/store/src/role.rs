//! The origin of a store's records, which decides who gives them their indexes and who leases object ids.

use std::sync::atomic::{AtomicU8, Ordering};

/// The origin of a store's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// The store's own log, which is read at open: the store appends nothing.
    Replaying = 0,
    /// Another store's log, record by record: the store appends nothing of its own.
    Following = 1,
    /// The store's own transactions.
    Leading = 2,
}

/// The role that a store has now.
pub(crate) struct RoleNow(AtomicU8);

impl Default for RoleNow {
    /// Returns the role of a store that begins: its replay.
    fn default() -> RoleNow {
        RoleNow(AtomicU8::new(Role::Replaying as u8))
    }
}

impl RoleNow {
    /// Returns the role.
    pub fn get(&self) -> Role {
        match self.0.load(Ordering::Acquire) {
            0 => Role::Replaying,
            1 => Role::Following,
            _ => Role::Leading,
        }
    }

    /// Changes the role. Invariant: no store becomes a replaying one again.
    pub fn set(&self, role: Role) {
        let before = self.0.swap(role as u8, Ordering::AcqRel);
        assert!(before < role as u8, "a role is never taken back: {before} became {role:?}");
    }
}
