//! Rounds: what an event loop makes and sends between two looks at its sockets, which is bounded.
//!
//! Long replies leave in the rounds that follow. Connections whose replies have been long of late wait with their
//! requests; those whose replies are short never wait, whatever the others ask for. A new connection waits, too, since
//! what it asks for may be long, but goes before those that are known. Of many connections that end at once, some end
//! in each round.

use crate::event_loop::connection::Connection;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes of replies that are made and sent in a round: a millisecond's work, or less.
const ROUND_BYTES_MAX: usize = 4 << 20;

/// The part of a round in which connections send that have made their replies before: others make theirs in the rest.
const SENT_BYTES_MAX: usize = ROUND_BYTES_MAX / 2;

/// Bytes that a usual machine makes or sends in a microsecond, at least.
const USUAL_BYTES_PER_US: usize = ROUND_BYTES_MAX / 1000;

/// The time for which a turn that was cut short counts as recent: that of some turns.
const LONG_TURN_KEPT_US: u64 = 10_000;

/// The length up to which replies leave in any round: whoever reads little does not wait behind those who read much.
pub const SMALL_BYTES: usize = 64 << 10;

/// The length of a connection's replies of late.
#[derive(Clone, Copy, Default)]
pub enum Recent {
    /// The connection is new, and has made no replies.
    #[default]
    Unknown,
    /// The most bytes that a turn has made, halved with each turn since.
    Bytes(usize),
}

impl Recent {
    /// Returns the length after a turn that has made `bytes`.
    pub fn after(self, bytes: usize) -> Recent {
        match self {
            Recent::Unknown => Recent::Bytes(bytes),
            Recent::Bytes(before) => Recent::Bytes(bytes.max(before / 2)),
        }
    }
}

/// The rounds of one event loop.
#[derive(Default)]
pub struct Rounds {
    /// Bytes that were made and sent in this round.
    bytes: Cell<usize>,
    /// The end of the last turn that was cut short for the sake of others, in microseconds of the wall clock.
    long_turn_us: Cell<u64>,
    /// Connections with replies for the next round, which their sockets may take.
    late: RefCell<VecDeque<Rc<Connection>>>,
    /// Connections that wait with their requests for the next round: new ones.
    new: RefCell<Vec<Waker>>,
    /// Connections with long replies of late that wait with their requests.
    long: RefCell<Vec<Waker>>,
    /// Wakes the task that begins rounds; taken while that one waits for a look at the sockets, so that nobody ends its
    /// wait.
    task: RefCell<Option<Waker>>,
}

impl Rounds {
    /// Notes that a turn was cut short at this time, in microseconds of the wall clock, so that others have theirs.
    #[inline]
    pub fn on_long_turn(&self, now_us: u64) {
        self.long_turn_us.set(now_us);
    }

    /// Tells whether a turn was cut short just now. Another one may come: a reply that waits for the end of a round may
    /// wait for it.
    #[inline]
    pub fn have_long_turns(&self, now_us: u64) -> bool {
        now_us.abs_diff(self.long_turn_us.get()) < LONG_TURN_KEPT_US
    }

    /// Tells whether more bytes of replies that were made before may leave in this round.
    pub fn may_send(&self) -> bool {
        self.bytes.get() < SENT_BYTES_MAX
    }

    fn is_over(&self) -> bool {
        self.bytes.get() >= ROUND_BYTES_MAX
    }

    /// Waits until a connection may make replies.
    #[inline]
    pub fn poll(&self, cx: &Context<'_>, recent: Recent) -> Poll<()> {
        let waiting = match recent {
            Recent::Bytes(0..=SMALL_BYTES) => return Poll::Ready(()),
            _ if !self.is_over() => return Poll::Ready(()),
            Recent::Bytes(_) => &self.long,
            Recent::Unknown => &self.new,
        };
        waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until a connection may end.
    pub fn poll_end(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll(cx, Recent::Bytes(usize::MAX))
    }

    /// Counts bytes of replies that were made or sent. Where that took long, it is as much work as if they were more: a
    /// system may have to find the memory of its sockets first.
    #[inline]
    pub fn on_work(&self, bytes: usize, took: Duration) {
        let bytes = bytes.max(took.as_micros() as usize * USUAL_BYTES_PER_US);
        let before = self.bytes.replace(self.bytes.get() + bytes);
        if before < ROUND_BYTES_MAX && self.is_over() {
            self.wake();
        }
    }

    /// Sends for a connection in the next round, behind those that wait for it already.
    pub fn send_later(&self, connection: Rc<Connection>) {
        self.late.borrow_mut().push_back(connection);
        self.wake();
    }

    #[cold]
    fn wake(&self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Waits until the round is over, or has left something for the next one, and then for a look at the sockets.
    /// Rounds end here alone: there may be many ticks between two looks.
    pub async fn next(&self) {
        poll_fn(|cx| {
            let is_wanted = self.is_over() || !self.late.borrow().is_empty();
            *self.task.borrow_mut() = (!is_wanted).then(|| cx.waker().clone());
            if is_wanted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        // The runtime goes on with a task that yields when it has looked at its sockets.
        tokio::task::yield_now().await;
        self.bytes.set(0);
    }

    /// Goes on in a new round: with replies that are late, and then with requests.
    pub fn go_on(&self, send: impl Fn(Rc<Connection>)) {
        while self.may_send() {
            let Some(connection) = self.late.borrow_mut().pop_front() else { break };
            send(connection);
        }
        for waiting in [&self.new, &self.long] {
            waiting.borrow_mut().drain(..).for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::{Builder, LocalOptions};

    const LONG: Recent = Recent::Bytes(SMALL_BYTES + 1);

    #[test]
    fn replies_of_one_long_turn_count_for_some_turns() {
        let mut recent = Recent::default().after(1 << 20);
        let mut turns = 0;
        while !matches!(recent, Recent::Bytes(0..=SMALL_BYTES)) {
            recent = recent.after(5);
            turns += 1;
        }
        assert_eq!(turns, 4);
    }

    /// Goes on behind all that is ready, without a look at the sockets.
    async fn behind_others() {
        let mut is_behind = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut is_behind, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A wake-up of the task that begins rounds, of which there may be many, ends no round: a look at the sockets does,
    /// which the runtime takes when all that is ready has run.
    #[test]
    fn a_round_lasts_until_the_sockets_were_looked_at_and_whoever_reads_little_never_waits() {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).expect("a runtime");
        let (rounds, seen) = (Rc::new(Rounds::default()), Rc::new(RefCell::new(Vec::new())));
        runtime.block_on(async {
            let begins = rounds.clone();
            tokio::task::spawn_local(async move {
                loop {
                    begins.next().await;
                    begins.go_on(|_| {});
                }
            });
            tokio::task::yield_now().await;
            let turns = [("known", LONG), ("new", Recent::Unknown), ("short", Recent::Bytes(5))];
            let tasks = turns.map(|(name, recent)| {
                let (rounds, seen) = (rounds.clone(), seen.clone());
                tokio::task::spawn_local(async move {
                    if name == "known" {
                        // The first one fills the round, and says so again and again.
                        rounds.on_work(ROUND_BYTES_MAX, Duration::ZERO);
                        (0..100).for_each(|_| rounds.wake());
                        assert!(!rounds.may_send());
                    }
                    poll_fn(|cx| rounds.poll(cx, recent)).await;
                    seen.borrow_mut().push(name);
                })
            });
            // Ready tasks run before the runtime looks at its sockets, however often they wake each other.
            let (noted, woken) = (seen.clone(), rounds.clone());
            let watch = tokio::task::spawn_local(async move {
                for _ in 0..10 {
                    woken.wake();
                    behind_others().await;
                    assert!(noted.borrow().iter().all(|name| *name == "short"));
                }
            });
            watch.await.expect("no panic");
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        assert_eq!(*seen.borrow(), ["short", "new", "known"]);
        rounds.on_work(1, Duration::from_millis(2));
        assert!(rounds.is_over(), "time is work, too");
    }
}
