//! Sending on a connection: when its replies may leave, and as much of them as the socket takes.

use crate::event_loop::connection::{Connection, State};
use crate::event_loop::round::SMALL_BYTES;
use crate::event_loop::{EventLoop, now_us};
use crate::output::{Gate, Output};
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most bytes that one write gives to a socket: more than usual replies, and little beside a round.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// The reason why a connection sends, which says how much may leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Replies of a turn of its own: the turn bounds them.
    Turn,
    /// Replies of one of many connections that have something to send: what is small, or as much as fits the round.
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

/// The proof that the newest replies of a member of a Raft group wait for.
#[derive(Clone, Copy, Default)]
pub(super) struct Proof {
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
    pub(super) fn show_output(&self, event_loop: &EventLoop, state: &State) {
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

    fn wake_if_drained(&self, output: &Output) {
        if self.drained_at.get().is_some_and(|bytes| self.is_drained(output, bytes)) {
            self.drained_at.set(None);
            self.wake();
        }
    }
}
