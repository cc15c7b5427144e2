//! One client's connection: reads, runs what it has read, waits for what its session waits for.
//!
//! An idle connection holds no buffers: it reads into its event loop's scratch, keeps only the rest of an incomplete
//! request, and gets an output buffer when it has replies. A client that does not read its replies is not read from
//! beyond a bound. Replies leave in the tick or before it (`event_loop`); what a socket does not take at once is written
//! by a task of its own.

use crate::event_loop::{EventLoop, OutputLimits, now_us};
use crate::output::Output;
use crate::stream::{Reader, Writer};
use haypile_engine::{Client, Counters, Delivery, Event, Next, OUTPUT_BYTES_MAX, Session, Worker};
use haypile_log::Index;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The rest of a request that is larger than this is not kept for the next one.
const REST_BYTES_KEPT: usize = 4 << 10;

/// Replies of so many bytes leave before other connections have their turn, if they need not wait for the log: what they gain by
/// leaving together is little beside the memory of all of them.
const LEAVES_AT_ONCE_BYTES: usize = 64 << 10;

/// Room that is made for an announced argument in one go: as it arrives, the next as much follows.
const REST_STEP_BYTES: usize = 1 << 20;

/// What a blocked client may send ahead; the rest stays in its socket, and it is not noticed any more that it has gone.
const BLOCKED_BYTES_MAX: usize = 1 << 20;

/// One client.
pub struct Connection {
    pub id: u64,
    /// What others know of it.
    client: Arc<Client>,
    writer: Writer,
    state: RefCell<State>,
    /// Wakes the task that serves the connection, whatever it waits for.
    waker: RefCell<Option<Waker>>,
    /// It is on the list of the coming tick.
    dirty: Cell<bool>,
    /// It is on the list of those that wait for the log.
    pub gated: Cell<bool>,
    /// The serving task goes on when no more than so many bytes have still to leave.
    drained_at: Cell<Option<usize>>,
    /// A task writes what the socket did not take at once.
    draining: Cell<bool>,
    /// The client is gone, or is to be: nothing is written any more.
    lost: Cell<bool>,
    last_active_us: Cell<u64>,
    /// Since when more replies are unread than the soft limit allows; 0 is not at all.
    unread_since_us: Cell<u64>,
    /// Since the last tick: when the first turn began, how many commands have run, and whether they had to wait.
    turns: Cell<Turns>,
}

struct State {
    session: Session,
    output: Output,
}

impl State {
    /// What the client has still to read, as far as it is made.
    fn unread_bytes(&self) -> usize {
        self.output.unsent() + self.session.deferred_bytes()
    }
}

#[derive(Clone, Copy, Default)]
struct Turns {
    since_us: u64,
    commands: u64,
    waited: bool,
}

/// The client has closed, or its connection broke.
struct Lost;

/// Serves a connection to its end.
pub async fn serve(event_loop: Rc<EventLoop>, connection: Rc<Connection>, mut reader: Reader) {
    let mut rest = Vec::new();
    // Ends when the client does, or when it is to.
    let _ = connection.run(&event_loop, &mut reader, &mut rest).await;
    connection.lost.set(true);
    event_loop.forget(&connection);
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
        }
    }

    async fn run(
        self: &Rc<Self>,
        event_loop: &Rc<EventLoop>,
        reader: &mut Reader,
        rest: &mut Vec<u8>,
    ) -> Result<(), Lost> {
        poll_fn(|cx| {
            // All that is awaited here is awaited by one task.
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        loop {
            let mut next = poll_fn(|cx| self.poll_read(cx, event_loop, reader, rest)).await?;
            loop {
                match next {
                    Next::Read => break,
                    Next::Yield => tokio::task::yield_now().await,
                    Next::Wait => poll_fn(|_| self.poll_event()).await,
                    Next::Sleep(time) => {
                        tokio::time::sleep(time).await;
                        self.state.borrow_mut().session.wake();
                    }
                    Next::Block(time) => self.stay_blocked(event_loop, reader, rest, time).await?,
                    Next::Drain => poll_fn(|_| self.poll_drained(OUTPUT_BYTES_MAX / 2)).await?,
                    Next::Close => {
                        poll_fn(|_| self.poll_drained(0)).await?;
                        return Err(Lost);
                    }
                    Next::Abort => return Err(Lost),
                }
                if !matches!(next, Next::Yield | Next::Drain) {
                    let turns = self.turns.get();
                    self.turns.set(Turns { waited: true, ..turns });
                }
                next = self.run_rest(event_loop, rest);
            }
        }
    }

    /// Reads what has arrived and runs it.
    fn poll_read(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        event_loop: &Rc<EventLoop>,
        reader: &mut Reader,
        rest: &mut Vec<u8>,
    ) -> Poll<Result<Next, Lost>> {
        if self.lost.get() {
            return Poll::Ready(Err(Lost));
        }
        let mut scratch = event_loop.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
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
                let needed = self.state.borrow().session.needed_bytes().min(REST_STEP_BYTES);
                rest.reserve(filled - consumed + needed);
                rest.extend_from_slice(&input[consumed..]);
            }
            next
        } else {
            rest.extend_from_slice(input);
            self.run_rest(event_loop, rest)
        };
        self.client.input_bytes.store(rest.len(), Ordering::Relaxed);
        self.client.input_capacity.store(rest.capacity(), Ordering::Relaxed);
        // A client that sends without end gives the others their turn.
        let more_waits = filled == scratch.len();
        Poll::Ready(Ok(if more_waits && next == Next::Read { Next::Yield } else { next }))
    }

    /// Waits for an event or the end of `time`. What the client sends meanwhile is kept, up to a bound, so that its end is
    /// noticed: nothing is left of one that has gone.
    async fn stay_blocked(
        &self,
        event_loop: &EventLoop,
        reader: &mut Reader,
        rest: &mut Vec<u8>,
        time: Option<Duration>,
    ) -> Result<(), Lost> {
        let mut ended = false;
        // A command that has not begun, or that takes what it gets from others.
        let ends_with_client = {
            let session = &self.state.borrow().session;
            session.is_paused() || session.waits_for_keys()
        };
        let event = poll_fn(|cx| {
            loop {
                if self.lost.get() {
                    return Poll::Ready(Err(Lost));
                }
                if self.state.borrow().session.has_event() {
                    return Poll::Ready(Ok(()));
                }
                if ended || rest.len() >= BLOCKED_BYTES_MAX {
                    return Poll::Pending;
                }
                let mut scratch = event_loop.scratch.borrow_mut();
                let mut buffer = ReadBuf::new(&mut scratch);
                match reader.poll_read(cx, &mut buffer) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Lost)),
                    // One that has only closed its own direction gets its reply, if there is going to be one soon.
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() && (time.is_none() || ends_with_client) => {
                        return Poll::Ready(Err(Lost));
                    }
                    Poll::Ready(Ok(())) => {
                        ended = buffer.filled().is_empty();
                        rest.extend_from_slice(buffer.filled());
                    }
                }
            }
        });
        match time {
            None => event.await,
            Some(time) => tokio::time::timeout(time, event).await.unwrap_or(Ok(())),
        }
    }

    /// Runs what is left of earlier reads. Of a client that was closed meanwhile only what is under way goes on: it ends.
    fn run_rest(self: &Rc<Self>, event_loop: &Rc<EventLoop>, rest: &mut Vec<u8>) -> Next {
        if self.lost.get() {
            rest.clear();
        }
        let (consumed, next) = self.turn(event_loop, rest);
        if consumed == rest.len() {
            rest.clear();
            rest.shrink_to(REST_BYTES_KEPT);
        } else {
            rest.drain(..consumed);
        }
        next
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
        let out = output.buffer(&mut event_loop.spares.borrow_mut());
        let before = out.len();
        let turn = worker.turn(session, input, out, began_us / 1000);
        let grown = out.len() - before;

        let at_once = worker.has_slow_company() || out.len() >= LEAVES_AT_ONCE_BYTES;
        if worker.has_jobs() {
            event_loop.ask_for_tick();
        }
        let gate = session.gate();
        if turn.next == Next::Abort {
            self.close(output);
        }

        drop(worker);
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
            match at_once.then(|| event_loop.durable()) {
                Some(durable) if gate <= durable => {
                    self.leave(event_loop, durable);
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

    /// Writes what may leave; whether there is something that has to wait for the log.
    pub fn leave(self: &Rc<Self>, event_loop: &Rc<EventLoop>, durable: Index) -> bool {
        self.dirty.set(false);
        let mut state = self.state.borrow_mut();
        if self.lost.get() {
            state.output.discard();
            return false;
        }
        let gate = state.session.gate();
        let waits = state.output.release(gate, durable);
        if state.session.is_owing() {
            event_loop.worker.borrow_mut().on_left(&mut state.session, durable);
        }
        if !self.draining.get() && !self.write(event_loop, &mut state.output) {
            self.draining.set(true);
            tokio::task::spawn_local(self.clone().drain(event_loop.clone()));
        }
        let limits = event_loop.output_limits();
        self.close_above(limits.of_client(&state.session).hard_bytes, &mut state);
        self.client.output_bytes.store(state.output.unsent(), Ordering::Relaxed);
        self.client.output_capacity.store(state.output.capacity(), Ordering::Relaxed);
        waits
    }

    /// Something that comes unasked.
    pub fn take(self: &Rc<Self>, event_loop: &Rc<EventLoop>, delivery: Delivery<'_>) {
        let mut state = self.state.borrow_mut();
        match delivery {
            _ if self.lost.get() => {}
            Delivery::Close => self.close(&mut state.output),
            Delivery::Event(event) => {
                if state.session.deliver_unasked(event) {
                    self.wake();
                }
            }
            Delivery::Push { bytes, gate } => {
                let State { session, output } = &mut *state;
                session.push(bytes, gate, output.buffer(&mut event_loop.spares.borrow_mut()));
                let limits = event_loop.output_limits();
                self.close_above(limits.of_client(&state.session).hard_bytes, &mut state);
                if !self.dirty.replace(true) {
                    event_loop.mark_dirty(self.clone());
                }
            }
        }
    }

    /// One write of what may leave; whether all of it went.
    fn write(&self, event_loop: &EventLoop, output: &mut Output) -> bool {
        let ready = output.ready();
        if ready.is_empty() {
            self.wake_if_drained(output);
            return true;
        }
        let all = ready.len();
        match self.writer.try_write(ready) {
            Ok(count) => {
                event_loop.counters().output_bytes.add(count as u64);
                event_loop.counters().writes.add(1);
                output.on_sent(count, &mut event_loop.spares.borrow_mut());
                self.wake_if_drained(output);
                count == all
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => {
                self.close(output);
                true
            }
        }
    }

    /// Writes, as the socket takes it, what it did not take at once.
    async fn drain(self: Rc<Self>, event_loop: Rc<EventLoop>) {
        loop {
            let writable = self.writer.writable().await;
            let mut state = self.state.borrow_mut();
            if writable.is_err() || self.lost.get() {
                self.close(&mut state.output);
            } else if !self.write(&event_loop, &mut state.output) {
                continue;
            }
            self.draining.set(false);
            return;
        }
    }

    /// Nothing more can be written: the serving task ends, when what it waits for elsewhere has come.
    fn close(&self, output: &mut Output) {
        self.lost.set(true);
        output.discard();
        self.writer.abort();
        self.wake();
    }

    fn wake_if_drained(&self, output: &Output) {
        if self.drained_at.get().is_some_and(|bytes| output.unsent() <= bytes) {
            self.drained_at.set(None);
            self.wake();
        }
    }

    /// An event for the session.
    pub fn deliver(&self, event: Event) {
        self.state.borrow_mut().session.deliver(event);
        self.wake();
    }

    fn poll_event(&self) -> Poll<()> {
        if self.state.borrow().session.has_event() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ready when no more than `bytes` have still to leave.
    fn poll_drained(&self, bytes: usize) -> Poll<Result<(), Lost>> {
        if self.lost.get() {
            return Poll::Ready(Err(Lost));
        }
        if self.state.borrow().output.unsent() <= bytes {
            return Poll::Ready(Ok(()));
        }
        self.drained_at.set(Some(bytes));
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Closes the connection if its client has not said a word for so long; one that waits for us is not idle.
    pub fn close_if_idle(&self, now_us: u64, timeout_us: u64) {
        let mut state = self.state.borrow_mut();
        let is_idle = now_us.saturating_sub(self.last_active_us.get()) > timeout_us;
        if is_idle && !state.session.is_waiting() && !state.session.listens() {
            self.close(&mut state.output);
        }
    }

    /// Closes the connection if its client has left more unread than `bytes_max`, unless that is 0.
    fn close_above(&self, bytes_max: u64, state: &mut State) {
        let unread = state.unread_bytes();
        if bytes_max > 0 && unread as u64 > bytes_max {
            tracing::warn!("client {} is closed: it leaves {unread} bytes of replies unread", self.id);
            self.close(&mut state.output);
        }
    }

    /// Closes the connection if its client has left more unread than the limits allow, at once or for as long as they say.
    pub fn close_if_unread(&self, now_us: u64, limits: &OutputLimits) {
        if self.lost.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let limit = limits.of_client(&state.session);
        self.close_above(limit.hard_bytes, &mut state);
        let is_above = limit.soft_bytes > 0 && state.unread_bytes() as u64 > limit.soft_bytes;
        match (is_above, self.unread_since_us.get()) {
            (false, _) => self.unread_since_us.set(0),
            (true, 0) => self.unread_since_us.set(now_us),
            (true, since_us) if now_us.saturating_sub(since_us) >= limit.soft_seconds * 1_000_000 => {
                self.close(&mut state.output);
            }
            (true, _) => {}
        }
    }

    /// Closes the connection if its client has been reading one reply for longer than `age_max_us`: the base keeps files for it.
    pub fn close_if_lingering(&self, now_us: u64, age_max_us: u64) {
        let mut state = self.state.borrow_mut();
        if !self.lost.get() && state.session.lingers(now_us, age_max_us) {
            tracing::warn!("client {} is closed: it reads a long reply too slowly", self.id);
            self.close(&mut state.output);
        }
    }

    /// Adds what ran since the last tick to the loop's numbers.
    pub fn count_turns(&self, counters: &Counters, now_us: u64) {
        let Turns { since_us, commands, waited } = self.turns.take();
        let histogram = if waited { &counters.waited_us } else { &counters.inline_us };
        histogram.add(now_us.saturating_sub(since_us), commands);
    }

    /// The session's last act.
    pub fn disconnect(&self, worker: &mut Worker) {
        worker.disconnect(&mut self.state.borrow_mut().session);
    }
}
