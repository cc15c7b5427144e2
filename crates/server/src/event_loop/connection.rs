//! One client's connection: reads, runs the requests it has read, waits where its session waits.
//!
//! An idle connection holds no buffers: it reads into its event loop's scratch, keeps only the rest of an incomplete
//! request, and gets an output buffer when it has replies. A client that does not read its replies is not read from
//! beyond a bound. Replies leave in the tick or before it (`event_loop`); a task of its own writes the bytes that a
//! socket does not take at once.

use crate::event_loop::hand_over::hand_over;
use crate::event_loop::proxy::{goes_to_leader, hand_on};
use crate::event_loop::rest::{Rest, SHORT_STEP_BYTES};
use crate::event_loop::round::{Recent, SMALL_BYTES};
use crate::event_loop::sending::{Proof, Sending};
use crate::event_loop::{EventLoop, now_us};
use crate::output::{Output, SPARE_BYTES_MAX};
use crate::stream::{Reader, Writer};
use haypile_engine::{Client, Counters, Delivery, Next, Session, Worker};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The size from which replies leave before other connections have their turn, if they need not wait for the log:
/// leaving together gains little beside the memory of all of them.
const LEAVES_AT_ONCE_BYTES: usize = 64 << 10;

/// The memory above which a client is read from slowly while clients have little room left together.
const WAITS_FOR_ROOM_BYTES: u64 = 64 << 10;

/// The length up to which replies count for no limit: each client of Redis has a buffer for as much anyway.
pub(super) const UNLIMITED_BYTES: usize = 16 << 10;

/// One client.
pub struct Connection {
    pub id: u64,
    /// The client's state that other threads see.
    pub(super) client: Arc<Client>,
    pub(super) writer: Writer,
    pub(super) state: RefCell<State>,
    /// Wakes the task that serves the connection, in any of its waits.
    pub(super) waker: RefCell<Option<Waker>>,
    /// Whether the connection is on the list of the coming tick.
    pub(super) dirty: Cell<bool>,
    /// Whether the connection is on the list of those that wait for the log.
    pub gated: Cell<bool>,
    /// The number of unsent bytes at which the serving task goes on.
    pub(super) drained_at: Cell<Option<usize>>,
    /// Whether a task writes the bytes that the socket did not take at once.
    pub(super) draining: Cell<bool>,
    /// Whether the client is gone, or is to be: nothing is written any more.
    pub(super) lost: Cell<bool>,
    pub(super) last_active_us: Cell<u64>,
    /// The time since when more replies are unread than the soft limit allows; 0 is not at all.
    pub(super) unread_since_us: Cell<u64>,
    /// The turns since the last tick: when the first began, how many commands have run, and whether they had to wait.
    pub(super) turns: Cell<Turns>,
    pub(super) proof: Cell<Proof>,
    /// The length of its replies of late.
    pub(super) recent: Cell<Recent>,
}

pub(super) struct State {
    pub(super) session: Session,
    pub(super) output: Output,
}

impl State {
    /// Returns the bytes that the client has still to read, with those known to come.
    pub(super) fn unread_bytes(&self) -> usize {
        self.output.unsent() + self.session.coming_bytes()
    }

    /// Returns the bytes of the output's buffer that are the connection's own. A small buffer goes back to its event
    /// loop in the same round, and so does a large one that an earlier client's long reply has left to a short one.
    fn output_bytes(&self, is_draining: bool) -> usize {
        let capacity = self.output.capacity();
        match is_draining {
            true => capacity,
            false if capacity > SPARE_BYTES_MAX => capacity.min(2 * self.output.buffered()),
            false => 0,
        }
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Turns {
    since_us: u64,
    commands: u64,
    waited: bool,
}

/// The error when the client has closed, or its connection broke.
pub(super) struct Lost;

/// The end of an event loop's service to a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Lost,
    /// The connection was handed over: the event loop does not serve it any more.
    HandedOver,
}

impl From<Lost> for End {
    fn from(Lost: Lost) -> End {
        End::Lost
    }
}

/// Serves a connection to its end.
pub async fn serve(event_loop: Rc<EventLoop>, connection: Rc<Connection>, mut reader: Reader) {
    let mut rest = Rest::default();
    // The loop ends when the client does, or when the connection is to be closed.
    let mut end = connection.run(&event_loop, &mut reader, &mut rest).await;
    let (mut words, names) = {
        let session = &mut connection.state.borrow_mut().session;
        (session.take_handed_over(), session.names())
    };
    if let Some(words) = words.take_if(|words| goes_to_leader(words)) {
        if end == Err(End::HandedOver) {
            hand_on(&event_loop, &connection, &mut reader, std::mem::take(&mut rest), words).await;
        }
        end = Err(End::Lost);
    }
    connection.lost.set(true);
    event_loop.worker.borrow_mut().lose(&mut connection.state.borrow_mut().session);
    if let (Err(End::HandedOver), Some(words)) = (end, words) {
        event_loop.forget(&connection);
        return hand_over(&event_loop, connection, reader, &rest, words, names).await;
    }
    // Thousands of clients may go at once, and each takes with it what it watched and was subscribed to.
    poll_fn(|cx| event_loop.rounds.poll_end(cx)).await;
    let began_us = now_us();
    event_loop.forget(&connection);
    connection.writer.say_goodbye();
    drop((connection, reader, rest));
    event_loop.rounds.on_work(0, Duration::from_micros(now_us().saturating_sub(began_us)));
}

impl Connection {
    pub fn new(session: Session, writer: Writer, now_us: u64) -> Self {
        Connection {
            id: session.id,
            client: session.client.clone(),
            writer,
            state: RefCell::new(State { session, output: Output::default() }),
            waker: RefCell::default(),
            dirty: Cell::new(false),
            gated: Cell::new(false),
            drained_at: Cell::new(None),
            draining: Cell::new(false),
            lost: Cell::new(false),
            last_active_us: Cell::new(now_us),
            unread_since_us: Cell::new(0),
            turns: Cell::default(),
            proof: Cell::default(),
            recent: Cell::default(),
        }
    }

    async fn run(self: &Rc<Self>, event_loop: &Rc<EventLoop>, reader: &mut Reader, rest: &mut Rest) -> Result<(), End> {
        poll_fn(|cx| {
            // One task awaits all events of this connection.
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        loop {
            if self.client.bytes() > WAITS_FOR_ROOM_BYTES || !rest.is_empty() && event_loop.engine.waits_for_room() {
                self.wait_for_room(event_loop).await?;
            }
            let mut next = poll_fn(|cx| self.poll_read(cx, event_loop, reader, rest)).await?;
            loop {
                match next {
                    Next::Read => break,
                    Next::Yield => {
                        tokio::task::yield_now().await;
                        // A command that takes steps has nothing under way between them.
                        if self.lost.get() && self.state.borrow().session.takes_steps() {
                            return Err(End::Lost);
                        }
                    }
                    Next::Wait => poll_fn(|_| self.poll_event()).await,
                    Next::Sleep(time) => {
                        tokio::time::sleep(time).await;
                        self.state.borrow_mut().session.wake();
                    }
                    Next::Block(time) => self.stay_blocked(event_loop, reader, rest, time).await?,
                    Next::Drain => self.stay_until_drained(event_loop).await?,
                    Next::Close => {
                        poll_fn(|_| self.poll_drained(0)).await?;
                        return Err(End::Lost);
                    }
                    Next::HandOver => {
                        poll_fn(|_| self.poll_drained(0)).await?;
                        return Err(End::HandedOver);
                    }
                    Next::Abort => return Err(End::Lost),
                }
                if !matches!(next, Next::Yield | Next::Drain) {
                    let turns = self.turns.get();
                    self.turns.set(Turns { waited: true, ..turns });
                }
                poll_fn(|cx| event_loop.rounds.poll(cx, self.recent.get())).await;
                next = self.run_rest(event_loop, rest);
            }
        }
    }

    /// Reads the bytes that have arrived and runs them.
    fn poll_read(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        event_loop: &Rc<EventLoop>,
        reader: &mut Reader,
        rest: &mut Rest,
    ) -> Poll<Result<Next, Lost>> {
        if self.lost.get() {
            return Poll::Ready(Err(Lost));
        }
        if event_loop.rounds.poll(cx, self.recent.get()).is_pending() {
            return Poll::Pending;
        }
        if self.writer.is_worn_out() {
            return Poll::Ready(Ok(Next::Close));
        }
        let mut scratch = event_loop.scratch.borrow_mut();
        let bytes_max = if event_loop.engine.waits_for_room() { SHORT_STEP_BYTES } else { scratch.len() };
        let mut buffer = ReadBuf::new(&mut scratch[..bytes_max]);
        match reader.poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Lost)),
            Poll::Ready(Ok(())) => {}
        }
        let filled = buffer.filled().len();
        event_loop.counters().reads.add(1);
        let input = &scratch[..filled];
        if filled == 0 {
            // A client that has only closed its own direction still gets its replies.
            return Poll::Ready(Ok(Next::Close));
        }
        let next = if rest.is_empty() {
            let (consumed, next) = self.turn(event_loop, input);
            if consumed < filled {
                let needed = self.state.borrow().session.needed_bytes();
                rest.begin(&input[consumed..], needed, event_loop.engine.clients_are_tight());
            }
            next
        } else {
            let needed = self.state.borrow().session.needed_bytes();
            rest.extend(input, needed, event_loop.engine.clients_are_tight());
            self.run_rest(event_loop, rest)
        };
        self.show_input(event_loop, rest);
        // A client that sends without end gives the others their turn.
        let more_waits = filled == bytes_max;
        Poll::Ready(Ok(if more_waits && next == Next::Read { Next::Yield } else { next }))
    }

    /// Runs the rest of earlier reads. For a client that was closed meanwhile, only the command under way goes on to
    /// its end.
    fn run_rest(self: &Rc<Self>, event_loop: &Rc<EventLoop>, rest: &mut Rest) -> Next {
        if self.lost.get() {
            rest.clear();
            self.state.borrow_mut().session.restart_request();
        }
        let (consumed, next) = self.turn(event_loop, rest);
        rest.consume(consumed);
        self.show_input(event_loop, rest);
        next
    }

    /// Counts the bytes that were read and have not run.
    pub fn show_input(&self, event_loop: &EventLoop, rest: &Rest) {
        self.client.input_bytes.store(rest.len(), Ordering::Relaxed);
        if self.client.input_capacity.swap(rest.capacity(), Ordering::Relaxed) != rest.capacity() {
            self.count(event_loop, &self.state.borrow());
        }
    }

    /// Counts the client's memory; where all clients together have too much, some are closed, soon.
    #[inline]
    pub(super) fn count(&self, event_loop: &EventLoop, state: &State) {
        let input = self.client.input_capacity.load(Ordering::Relaxed);
        let output = state.output_bytes(self.draining.get());
        event_loop.engine.count_client(&state.session, input, output, state.output.shared().1);
    }

    #[inline]
    fn turn(self: &Rc<Self>, event_loop: &Rc<EventLoop>, input: &[u8]) -> (usize, Next) {
        if event_loop.has_notices() {
            event_loop.take_notices();
        }
        let began_us = now_us();
        self.last_active_us.set(began_us);
        let mut state = self.state.borrow_mut();
        let State { session, output } = &mut *state;
        let mut worker = event_loop.worker.borrow_mut();
        if worker.owes_messages(session) {
            return (0, Next::Yield);
        }
        let out = output.buffer(&mut event_loop.spares.borrow_mut());
        let before = out.len();
        let turn = worker.turn(session, input, out, began_us / 1000);
        let grown = out.len() - before;
        self.recent.set(self.recent.get().after(grown));
        let took_us = if grown > SMALL_BYTES { now_us().saturating_sub(began_us) } else { 0 };
        event_loop.rounds.on_work(grown, Duration::from_micros(took_us));

        if turn.next == Next::Yield && turn.commands > 0 {
            event_loop.rounds.on_long_turn(now_us());
        }
        let has_company = worker.has_slow_company() || event_loop.rounds.have_long_turns(began_us);
        let at_once = has_company || out.len() >= LEAVES_AT_ONCE_BYTES;
        session.push_deferred(output);
        if worker.has_jobs() {
            event_loop.ask_for_tick();
        }
        let gate = event_loop.engine.gate_of(session);
        if turn.next == Next::Abort {
            self.close(output);
        }

        drop(worker);
        if state.unread_bytes() > UNLIMITED_BYTES {
            self.limit(event_loop, &mut state);
        }
        self.count(event_loop, &state);
        drop(state);
        event_loop.counters().input_bytes.add(turn.consumed as u64);
        if turn.commands > 0 {
            let Turns { since_us, commands, waited } = self.turns.get();
            let since_us = if since_us == 0 { began_us } else { since_us };
            self.turns.set(Turns { since_us, commands: commands + turn.commands as u64, waited });
        }
        if turn.next == Next::Abort {
            return (turn.consumed, turn.next);
        }
        if (grown > 0 || turn.next == Next::Close) && !self.dirty.get() {
            match at_once.then(|| event_loop.confirmed()) {
                Some(confirmed) if gate.is_some_and(|gate| gate <= confirmed.index) && !event_loop.raft.is_member() => {
                    self.leave(event_loop, confirmed, Sending::Turn);
                    self.count_turns(event_loop.counters(), now_us());
                }
                _ => {
                    self.dirty.set(true);
                    event_loop.mark_dirty(self.clone());
                }
            }
        }
        (turn.consumed, turn.next)
    }

    /// Takes a message that was not asked for.
    pub fn take(self: &Rc<Self>, event_loop: &Rc<EventLoop>, delivery: Delivery<'_>) {
        let mut state = self.state.borrow_mut();
        match delivery {
            _ if self.lost.get() => {}
            Delivery::Close => {
                self.close(&mut state.output);
                self.show_output(event_loop, &state);
            }
            Delivery::Recheck => {
                if event_loop.engine.loses_channels(&state.session) {
                    self.close(&mut state.output);
                    self.show_output(event_loop, &state);
                }
            }
            Delivery::Event(event) => {
                if state.session.deliver_unasked(event) {
                    self.wake();
                }
            }
            // A message among the bytes of the leader would be taken for a part of them.
            Delivery::Push { .. } if self.client.is_handed_on() => {}
            // The order to close may stand behind many messages.
            Delivery::Push { .. } if self.client.is_evicted() => {
                self.close(&mut state.output);
                self.show_output(event_loop, &state);
            }
            Delivery::Push { push, gate } => {
                let State { session, output } = &mut *state;
                output.buffer(&mut event_loop.spares.borrow_mut());
                event_loop.engine.depend(session, gate);
                session.push(push, output);
                self.limit(event_loop, &mut state);
                self.count(event_loop, &state);
                if !self.dirty.replace(true) {
                    event_loop.mark_told(self.clone());
                }
            }
        }
    }

    /// Adds the turns since the last tick to the loop's numbers.
    pub fn count_turns(&self, counters: &Counters, now_us: u64) {
        let Turns { since_us, commands, waited } = self.turns.take();
        let histogram = if waited { &counters.waited_us } else { &counters.inline_us };
        histogram.add(now_us.saturating_sub(since_us), commands);
    }

    /// Returns the half that writes, for a connection that is handed on.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Returns the half that writes.
    pub fn into_writer(self) -> Writer {
        self.writer
    }

    /// Ends the session of a client that has gone.
    pub fn part(&self, worker: &mut Worker) {
        worker.part(&mut self.state.borrow_mut().session);
    }
}
