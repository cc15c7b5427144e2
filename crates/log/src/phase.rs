//! The phases of an open log's life, and which may follow which.

/// The phase of a log's life.
///
/// ```text
/// Opening ──► Running ◄──► Rotating
///    │         │  ▲ │          │
///    │         ▼  │ └► Broken ◄┘
///    │    Recovering ◄──┘ ▲
///    │         │          │
///    └──────► Failed ─────┘          from each of them: Closed
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The replay reads what was found. Nothing is reserved, and nothing in the directory changes before the replay
    /// ends.
    Opening,
    /// Records are written to the active segment.
    Running,
    /// The active segment is full: no write begins until it is synced and the spare has taken its place.
    Rotating,
    /// A write or a sync has failed, or the active segment's file is gone: no write begins, and the sync thread
    /// recovers when no thread writes any more.
    Broken,
    /// A segment is being made for what is not synced: no reservation is given, so that it is large enough.
    Recovering,
    /// The newest recovery has failed; `State::failure` says why. It is tried again.
    Failed,
    /// The threads end, and nothing is reserved or written any more.
    Closed,
}

impl Phase {
    pub(crate) fn may_become(self, to: Phase) -> bool {
        use Phase::*;
        match (self, to) {
            (Opening, Running | Failed) => true,
            (Running, Rotating | Broken) => true,
            (Rotating, Running | Broken) => true,
            // A history that begins has a segment made for it, after a failure, too.
            (Running | Broken | Failed, Recovering) => true,
            (Recovering, Running | Failed) => true,
            (Failed, Broken) => true,
            (from, Closed) => from != Closed,
            _ => false,
        }
    }

    /// Whether the log is between the end of its replay and its close.
    pub(crate) fn is_live(self) -> bool {
        !matches!(self, Phase::Opening | Phase::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Phase; 7] = [
        Phase::Opening,
        Phase::Running,
        Phase::Rotating,
        Phase::Broken,
        Phase::Recovering,
        Phase::Failed,
        Phase::Closed,
    ];

    fn after(phase: Phase) -> Vec<Phase> {
        ALL.into_iter().filter(|to| phase.may_become(*to)).collect()
    }

    #[test]
    fn a_log_opens_once_and_closes_once() {
        for phase in ALL {
            assert!(!phase.may_become(Phase::Opening) && !phase.may_become(phase), "{phase:?}");
            assert_eq!(phase.may_become(Phase::Closed), phase != Phase::Closed, "{phase:?}");
        }
        assert_eq!(after(Phase::Closed), []);
    }

    #[test]
    fn only_a_recovery_mends_what_is_broken() {
        assert_eq!(after(Phase::Broken), [Phase::Recovering, Phase::Closed]);
        assert_eq!(after(Phase::Failed), [Phase::Broken, Phase::Recovering, Phase::Closed]);
        assert_eq!(after(Phase::Recovering), [Phase::Running, Phase::Failed, Phase::Closed]);
    }
}
