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
use crate::event_loop::{EventLoop, OutputLimits, now_us};
use crate::output::{Gate, Output, SPARE_BYTES_MAX};
use crate::stream::{Reader, Writer};
use haypile_engine::{Client, Counters, Delivery, Event, Next, Session, Worker};
use haypile_log::Index;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::ReadBuf;

/// The size from which replies leave before other connections have their turn, if they need not wait for the log:
/// leaving together gains little beside the memory of all of them.
const LEAVES_AT_ONCE_BYTES: usize = 64 << 10;

/// The memory above which a client is read from slowly while clients have little room left together.
const WAITS_FOR_ROOM_BYTES: u64 = 64 << 10;

/// The wait of a client before each read while it is read from slowly. The wait ends: the client's own memory may be
/// what fills the room.
const ROOM_WAIT: Duration = Duration::from_millis(50);

/// The longest wait while other clients are being closed, whose room comes back with them.
const CLOSING_WAIT_MAX: Duration = Duration::from_secs(1);

/// The time between looks whether there is room again.
const ROOM_POLL: Duration = Duration::from_millis(10);

/// The most bytes that one write gives to a socket: more than usual replies, and little beside a round.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// The length up to which replies count for no limit: each client of Redis has a buffer for as much anyway.
const UNLIMITED_BYTES: usize = 16 << 10;

/// The last that a client reads whose replies are given up.
const NOT_ACKNOWLEDGED: &[u8] =
    b"-NOREPLICAS Replicas have not acknowledged this in time. It may have taken effect, and may be lost in a failover.\r\n";

/// Bytes that a blocked client may send ahead; the rest stays in its socket, and the end of the client is not noticed
/// any more.
const BLOCKED_BYTES_MAX: usize = 1 << 20;

/// One client.
pub struct Connection {
    pub id: u64,
    /// The client's state that other threads see.
    client: Arc<Client>,
    writer: Writer,
    state: RefCell<State>,
    /// Wakes the task that serves the connection, in any of its waits.
    waker: RefCell<Option<Waker>>,
    /// Whether it is on the list of the coming tick.
    dirty: Cell<bool>,
    /// Whether it is on the list of those that wait for the log.
    pub gated: Cell<bool>,
    /// The number of unsent bytes at which the serving task goes on.
    drained_at: Cell<Option<usize>>,
    /// Whether a task writes the bytes that the socket did not take at once.
    draining: Cell<bool>,
    /// Whether the client is gone, or is to be: nothing is written any more.
    lost: Cell<bool>,
    last_active_us: Cell<u64>,
    /// The time since when more replies are unread than the soft limit allows; 0 is not at all.
    unread_since_us: Cell<u64>,
    /// The turns since the last tick: when the first began, how many commands have run, and whether they had to wait.
    turns: Cell<Turns>,
    proof: Cell<Proof>,
    /// The length of its replies of late.
    recent: Cell<Recent>,
}

struct State {
    session: Session,
    output: Output,
}

impl State {
    /// Returns the bytes that the client has still to read, with those known to come.
    fn unread_bytes(&self) -> usize {
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
struct Turns {
    since_us: u64,
    commands: u64,
    waited: bool,
}

/// The error when the client has closed, or its connection broke.
struct Lost;

/// The end of an event loop's service to a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Lost,
    /// Others have the connection from here on.
    HandedOver,
}

impl From<Lost> for End {
    fn from(Lost: Lost) -> End {
        End::Lost
    }
}

/// The reason why a connection sends, which says how much may leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Replies of a turn of its own: the turn bounds them.
    Turn,
    /// One of many that have something to send: what is small, or as much as fits the round.
    Round,
}

/// How much of the output that may leave a socket has taken.
enum Sent {
    All,
    /// The socket takes no more for now.
    Full,
    /// The round is over.
    Later,
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

/// The proof that the newest replies of a member of a Raft group wait for.
#[derive(Clone, Copy, Default)]
struct Proof {
    /// The read round; 0 for none.
    round: u64,
    /// The version of the data that the replies rest on.
    of: u64,
    /// The calls of the session that had begun at the last look.
    calls: u64,
    /// Whether a call was under way then.
    was_waiting: bool,
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

    /// Waits a while if clients have little room left together: others may be done meanwhile.
    async fn wait_for_room(&self, event_loop: &EventLoop) -> Result<(), Lost> {
        let engine = &event_loop.engine;
        let mut waited = Duration::ZERO;
        while waited < ROOM_WAIT && engine.clients_are_tight() || waited < CLOSING_WAIT_MAX && engine.waits_for_room() {
            let mut poll = pin!(tokio::time::sleep(ROOM_POLL));
            poll_fn(|cx| match self.lost.get() {
                true => Poll::Ready(Err(Lost)),
                false => poll.as_mut().poll(cx).map(Ok),
            })
            .await?;
            waited += ROOM_POLL;
        }
        Ok(())
    }

    /// Waits until the client has read half of the bytes that its replies may take. Where these are fewer than usual,
    /// it looks again from time to time: a client that sends all its requests before it reads gets on when there is
    /// room.
    async fn stay_until_drained(&self, event_loop: &EventLoop) -> Result<(), Lost> {
        let engine = &event_loop.engine;
        let bytes_max = engine.output_bytes_max();
        let mut drained = pin!(poll_fn(|_| self.poll_drained(bytes_max / 2)));
        if !engine.output_is_short() {
            return drained.await;
        }
        while engine.output_bytes_max() <= bytes_max {
            let mut look = pin!(tokio::time::sleep(ROOM_WAIT));
            let is_drained = poll_fn(|cx| match drained.as_mut().poll(cx) {
                Poll::Ready(end) => Poll::Ready(Some(end)),
                Poll::Pending => look.as_mut().poll(cx).map(|()| None),
            });
            if let Some(end) = is_drained.await {
                return end;
            }
        }
        Ok(())
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

    /// Waits for an event or the end of `time`. Bytes that the client sends meanwhile are kept, up to a bound, so that
    /// its end is noticed: a command of a client that has gone ends.
    async fn stay_blocked(
        &self,
        event_loop: &EventLoop,
        reader: &mut Reader,
        rest: &mut Rest,
        time: Option<Duration>,
    ) -> Result<(), Lost> {
        let mut ended = false;
        // A command that has not begun, or waits for keys, ends with its client.
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
                    // A client that has only closed its own direction gets its reply, if there is going to be one soon.
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() && (time.is_none() || ends_with_client) => {
                        return Poll::Ready(Err(Lost));
                    }
                    Poll::Ready(Ok(())) => {
                        ended = buffer.filled().is_empty();
                        rest.extend(buffer.filled(), 1, true);
                        self.show_input(event_loop, rest);
                    }
                }
            }
        });
        match time {
            None => event.await,
            Some(time) => tokio::time::timeout(time, event).await.unwrap_or(Ok(())),
        }
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
    fn count(&self, event_loop: &EventLoop, state: &State) {
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

    /// Writes the bytes that may leave; returns whether some have to wait for the log.
    pub fn leave(self: &Rc<Self>, event_loop: &Rc<EventLoop>, confirmed: Gate, sending: Sending) -> bool {
        self.dirty.set(false);
        let mut state = self.state.borrow_mut();
        if self.lost.get() {
            state.output.discard();
            return false;
        }
        let Some(index) = event_loop.engine.gate_of(&state.session) else {
            self.give_up(event_loop, &mut state);
            return false;
        };
        let is_member = event_loop.raft.is_member();
        let version = event_loop.engine.store_version();
        if is_member && !(state.session.may_leave(version) && self.join_round(event_loop, &mut state)) {
            self.give_up(event_loop, &mut state);
            return false;
        }
        // A server that has left its group was the only member.
        let round = if is_member { self.proof.get().round } else { 0 };
        let waits = state.output.release(Gate { index, round }, confirmed);
        if waits {
            state.output.shrink(&mut event_loop.spares.borrow_mut());
        }
        if state.session.has_unacknowledged() {
            event_loop.worker.borrow_mut().on_left(&mut state.session, confirmed.index);
        }
        if !self.draining.get() {
            self.send(event_loop, &mut state.output, sending);
        }
        self.show_output(event_loop, &state);
        waits
    }

    /// Has replies that were made since the last call wait for a proof that this server led its group when they were
    /// made, if a call has begun since that the leader alone runs, or was under way. False where that proof cannot be
    /// had any more: this server does not lead, or the data were opened again since, as a former leader's are.
    ///
    /// Invariant: no reply of such a call leaves a member without a round of the data that it was made on.
    fn join_round(&self, event_loop: &EventLoop, state: &mut State) -> bool {
        let version = event_loop.engine.store_version();
        let Proof { round, of, calls, was_waiting } = self.proof.get();
        if state.output.is_held() && round > 0 && of != version {
            return false;
        }
        let (calls_now, waits) = (state.session.led_calls(), state.session.waits_as_led());
        if !state.output.has_new() {
            self.proof.set(Proof { round, of, calls, was_waiting: was_waiting || waits });
            return true;
        }
        let needs_proof = calls_now != calls || was_waiting;
        self.proof.set(Proof { round, of, calls: calls_now, was_waiting: waits });
        if !needs_proof {
            return true;
        }
        let round = event_loop.raft.join_round().filter(|_| !event_loop.engine.is_of_former_store(&state.session));
        let Some(round) = round else { return false };
        self.proof.set(Proof { round, of: version, calls: calls_now, was_waiting: waits });
        true
    }

    /// Sends the bytes that may leave, and sees to it that the rest follows.
    fn send(self: &Rc<Self>, event_loop: &Rc<EventLoop>, output: &mut Output, sending: Sending) {
        let sent = self.write(event_loop, output, sending);
        self.draining.set(!matches!(sent, Sent::All));
        match sent {
            Sent::All => {}
            Sent::Later => event_loop.rounds.send_later(self.clone()),
            Sent::Full => _ = tokio::task::spawn_local(self.clone().drain(event_loop.clone())),
        }
    }

    /// Sends in the next round the bytes that did not leave in the one before.
    pub fn go_on_sending(self: &Rc<Self>, event_loop: &Rc<EventLoop>) {
        let mut state = self.state.borrow_mut();
        match self.lost.get() {
            true => self.close(&mut state.output),
            false => self.send(event_loop, &mut state.output, Sending::Round),
        }
        self.show_output(event_loop, &state);
    }

    /// Counts the bytes that have not left.
    fn show_output(&self, event_loop: &EventLoop, state: &State) {
        let (messages, message_bytes) = state.output.shared();
        let unsent = state.output.unsent();
        if self.client.output_bytes.swap(unsent, Ordering::Relaxed) == 0 && unsent > 0 {
            self.client.note_read(now_us() / 1000);
        }
        self.client.output_capacity.store(state.output.capacity(), Ordering::Relaxed);
        self.client.messages.store(messages, Ordering::Relaxed);
        self.client.message_bytes.store(message_bytes + state.session.reply_bytes(), Ordering::Relaxed);
        self.count(event_loop, state);
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
                    event_loop.mark_dirty(self.clone());
                }
            }
        }
    }

    /// Writes the bytes that may leave.
    fn write(&self, event_loop: &EventLoop, output: &mut Output, sending: Sending) -> Sent {
        loop {
            let ready = output.ready();
            if ready.is_empty() {
                let sent = self.flush(output);
                self.wake_if_drained(output);
                return sent;
            }
            if sending == Sending::Round && ready.len() > SMALL_BYTES && !event_loop.rounds.may_send() {
                output.shrink(&mut event_loop.spares.borrow_mut());
                return Sent::Later;
            }
            let asked = ready.len().min(WRITE_BYTES_MAX);
            let began = (asked > SMALL_BYTES).then(Instant::now);
            match self.writer.try_write(&ready[..asked]) {
                Ok(count) => {
                    event_loop.on_sent(count, began.map_or(Duration::ZERO, |began| began.elapsed()));
                    output.on_sent(count, &mut event_loop.spares.borrow_mut());
                    self.wake_if_drained(output);
                    if output.unsent() > 0 {
                        self.client.note_read(now_us() / 1000);
                    }
                    if count < asked {
                        output.shrink(&mut event_loop.spares.borrow_mut());
                        return Sent::Full;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    output.shrink(&mut event_loop.spares.borrow_mut());
                    return Sent::Full;
                }
                Err(_) => {
                    self.close(output);
                    return Sent::All;
                }
            }
        }
    }

    /// Sends what was encrypted and has not left.
    #[inline]
    fn flush(&self, output: &mut Output) -> Sent {
        match self.writer.flush() {
            Ok(()) => Sent::All,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Sent::Full,
            Err(_) => {
                self.close(output);
                Sent::All
            }
        }
    }

    /// Goes on sending when the socket takes more.
    async fn drain(self: Rc<Self>, event_loop: Rc<EventLoop>) {
        if self.writer.writable().await.is_err() {
            self.lost.set(true);
        }
        self.go_on_sending(&event_loop);
    }

    /// Marks the connection as lost: the serving task ends when the event that it waits for has come.
    fn close(&self, output: &mut Output) {
        self.lost.set(true);
        self.draining.set(false);
        output.discard();
        self.writer.abort();
        self.wake();
    }

    fn wake_if_drained(&self, output: &Output) {
        if self.drained_at.get().is_some_and(|bytes| self.is_drained(output, bytes)) {
            self.drained_at.set(None);
            self.wake();
        }
    }

    /// Delivers an event to the session.
    pub fn deliver(&self, event: Event) {
        self.state.borrow_mut().session.deliver(event);
        self.wake();
    }

    fn poll_event(&self) -> Poll<()> {
        if self.state.borrow().session.has_event() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns ready when no more than `bytes` have still to leave.
    fn poll_drained(&self, bytes: usize) -> Poll<Result<(), Lost>> {
        if self.lost.get() {
            return Poll::Ready(Err(Lost));
        }
        if self.is_drained(&self.state.borrow().output, bytes) {
            return Poll::Ready(Ok(()));
        }
        self.drained_at.set(Some(bytes));
        Poll::Pending
    }

    /// Tells whether no more than `bytes` have still to leave: if that is none, the socket has all of them.
    fn is_drained(&self, output: &Output, bytes: usize) -> bool {
        output.unsent() <= bytes && (bytes > 0 || self.writer.is_flushed())
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Ends the connection if one of its replies waits for a record through `overdue`.
    pub fn give_up_if_overdue(&self, event_loop: &EventLoop, overdue: Index) {
        let mut state = self.state.borrow_mut();
        if !self.lost.get() && state.output.waits_for().is_some_and(|gate| gate <= overdue) {
            self.give_up(event_loop, &mut state);
        }
    }

    /// Ends the connection: whether replies that wait are true for good cannot be known.
    fn give_up(&self, event_loop: &EventLoop, state: &mut State) {
        tracing::debug!("client {} is closed: replicas have not acknowledged what its replies depend on", self.id);
        let has_replicas = !event_loop.raft.is_member();
        if has_replicas && state.output.ready().is_empty() && !state.session.is_waiting() {
            // The socket may be full, or gone.
            let _ = self.writer.try_write(NOT_ACKNOWLEDGED);
        }
        self.close(&mut state.output);
        self.show_output(event_loop, state);
    }

    /// Closes the connection if its client has sent nothing for so long; one that waits for us is not idle.
    pub fn close_if_idle(&self, now_us: u64, timeout_us: u64) {
        let mut state = self.state.borrow_mut();
        // The leader says whether one that is handed on is idle.
        let is_idle = now_us.saturating_sub(self.last_active_us.get()) > timeout_us && !self.client.is_handed_on();
        if is_idle && !state.session.is_waiting() && !state.session.listens() {
            self.close(&mut state.output);
        }
    }

    /// Closes the connection if its client has more to read than its limit allows at once.
    fn limit(&self, event_loop: &EventLoop, state: &mut State) {
        let bytes_max = event_loop.output_limits().of_client(&state.session).hard_bytes;
        self.close_above(bytes_max, state);
    }

    /// Closes the connection if its client has more to read than `bytes_max`, unless that is 0.
    fn close_above(&self, bytes_max: u64, state: &mut State) {
        let unread = state.unread_bytes().saturating_sub(UNLIMITED_BYTES);
        if bytes_max > 0 && unread as u64 > bytes_max {
            tracing::warn!("client {} is closed: it leaves {unread} bytes of replies unread", self.id);
            self.close(&mut state.output);
        }
    }

    /// Closes the connection if its client has left more unread than the limits allow, at once or for as long as the
    /// limits say.
    pub fn close_if_unread(&self, now_us: u64, limits: &OutputLimits) {
        if self.lost.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let limit = limits.of_client(&state.session);
        self.close_above(limit.hard_bytes, &mut state);
        let unread = state.unread_bytes().saturating_sub(UNLIMITED_BYTES);
        let is_above = limit.soft_bytes > 0 && unread as u64 > limit.soft_bytes;
        match (is_above, self.unread_since_us.get()) {
            (false, _) => self.unread_since_us.set(0),
            (true, 0) => self.unread_since_us.set(now_us),
            (true, since_us) if now_us.saturating_sub(since_us) >= limit.soft_seconds * 1_000_000 => {
                self.close(&mut state.output);
            }
            (true, _) => {}
        }
    }

    /// Closes the connection if its client has been reading one reply for longer than `age_max_us`: the base keeps
    /// files for it.
    pub fn close_if_lingering(&self, now_us: u64, age_max_us: u64) {
        let mut state = self.state.borrow_mut();
        if !self.lost.get() && state.session.lingers(now_us, age_max_us) {
            tracing::warn!("client {} is closed: it reads a long reply too slowly", self.id);
            self.close(&mut state.output);
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

    /// Ready when the client is gone, or is to be.
    pub fn poll_lost(&self) -> Poll<()> {
        if self.lost.get() { Poll::Ready(()) } else { Poll::Pending }
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
