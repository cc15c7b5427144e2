//! Where a store's records come from, which decides who gives them their indexes and who leases object ids.

use std::sync::atomic::{AtomicU8, Ordering};

/// Where a store's records come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// From its own log, which is read at open: the store appends nothing.
    Replaying = 0,
    /// From another store's log, one by one: the store appends nothing of itself.
    Following = 1,
    /// From its own transactions.
    Leading = 2,
}

/// The role that a store has now.
pub(crate) struct RoleNow(AtomicU8);

impl Default for RoleNow {
    /// A store begins with its replay.
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

    /// Changes the role. Invariant: nothing becomes a replay again.
    pub fn set(&self, role: Role) {
        let before = self.0.swap(role as u8, Ordering::AcqRel);
        assert!(before < role as u8, "a role is never taken back: {before} became {role:?}");
    }
}
