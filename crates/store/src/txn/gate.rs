//! A transaction's gate.

use haypile_log::Index;

/// The newest record that a transaction has read, or written. Invariant: it never goes back.
#[derive(Clone, Copy)]
pub(crate) struct Gate(Index);

impl Gate {
    pub fn new(index: Index) -> Self {
        Gate(index)
    }

    #[inline]
    pub fn get(self) -> Index {
        self.0
    }

    /// Notes that the transaction depends on a record, too.
    #[inline]
    pub fn rise(&mut self, index: Index) {
        self.0 = self.0.max(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_never_goes_back() {
        let mut gate = Gate::new(Index(5));
        gate.rise(Index(3));
        assert_eq!(gate.get(), Index(5));
        gate.rise(Index(7));
        assert_eq!(gate.get(), Index(7));
    }
}
