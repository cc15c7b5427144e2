//! The states that a transaction goes back to: a mark notes how long the bodies are, and a rollback cuts them there.

use super::Overlay;
use haypile_log::Body;

/// The state of an overlay, to go back to.
#[derive(Clone, Debug)]
pub struct OverlayMark {
    main: usize,
    ahead: usize,
    statements: usize,
    spills: u32,
}

impl OverlayMark {
    /// Returns whether rows were written between this state and a later one.
    pub fn has_written(&self, later: &OverlayMark) -> bool {
        (self.main, self.ahead, self.spills) != (later.main, later.ahead, later.spills)
    }

    /// Returns the length of the statements.
    pub fn statements(&self) -> usize {
        self.statements
    }
}

impl Overlay {
    pub fn mark(&self) -> OverlayMark {
        let [main, ahead, statements] = [&self.main, &self.ahead, &self.statements].map(Body::len);
        OverlayMark { main, ahead, statements, spills: self.spills }
    }

    pub fn rollback(&mut self, to: OverlayMark) {
        // Rows that were written ahead since are garbage without an owner; the ones that still wait here go too.
        let ahead_len = if to.spills == self.spills { to.ahead } else { 0 };
        self.main.truncate(to.main);
        self.ahead.truncate(ahead_len);
        self.statements.truncate(to.statements);
        let writes = self.own.len();
        self.own.retain(|own| (own.key as usize) < if own.ahead { ahead_len } else { to.main });
        if self.own.len() < writes {
            self.reindex();
        }
    }
}
