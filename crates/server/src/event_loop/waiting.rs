//! Waits of a connection, before its session goes on.

use crate::event_loop::EventLoop;
use crate::event_loop::connection::{Connection, Lost};
use crate::event_loop::rest::Rest;
use crate::output::Output;
use crate::stream::Reader;
use haypile_engine::Event;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::ReadBuf;

/// The wait of a client before each read while it is read from slowly. The wait ends: the client's own memory may be
/// what fills the room.
const ROOM_WAIT: Duration = Duration::from_millis(50);

/// The longest wait while other clients are being closed, whose room comes back with them.
const CLOSING_WAIT_MAX: Duration = Duration::from_secs(1);

/// The time between looks whether there is room again.
const ROOM_POLL: Duration = Duration::from_millis(10);

/// Bytes that a blocked client may send ahead; the rest stays in its socket, and the end of the client is not noticed
/// any more.
const BLOCKED_BYTES_MAX: usize = 1 << 20;

impl Connection {
    /// Waits a while if clients have little room left together: others may be done meanwhile.
    pub(super) async fn wait_for_room(&self, event_loop: &EventLoop) -> Result<(), Lost> {
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
    pub(super) async fn stay_until_drained(&self, event_loop: &EventLoop) -> Result<(), Lost> {
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

    /// Waits for an event or the end of `time`. Bytes that the client sends meanwhile are kept, up to a bound, so that
    /// its end is noticed: a command of a client that has gone ends.
    pub(super) async fn stay_blocked(
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

    /// Delivers an event to the session.
    pub fn deliver(&self, event: Event) {
        self.state.borrow_mut().session.deliver(event);
        self.wake();
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn poll_event(&self) -> Poll<()> {
        if self.state.borrow().session.has_event() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns ready when no more than `bytes` have still to leave.
    pub(super) fn poll_drained(&self, bytes: usize) -> Poll<Result<(), Lost>> {
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
    pub(super) fn is_drained(&self, output: &Output, bytes: usize) -> bool {
        output.unsent() <= bytes && (bytes > 0 || self.writer.is_flushed())
    }

    /// Tells whether the client is gone, or is to be: ready if so.
    pub fn poll_lost(&self) -> Poll<()> {
        if self.lost.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}
