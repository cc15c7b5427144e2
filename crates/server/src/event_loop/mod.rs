//! One event loop: a single-threaded runtime with its connections, and the tick that ends each round of them.
//!
//! Connections run the requests that they have read and put themselves on the dirty list; none of them writes, except
//! while some session waits for the disk or turns are long: then replies that need not wait for the log leave at once.
//! The tick is one more task, woken by the first of them, or because there is work for the I/O pool. Since the runtime
//! runs what is ready in order of arrival, the tick runs after all connections that the same poll made ready; it lets
//! the log write once, and then each connection's replies leave with one write, if the log is as durable as they ask.
//! Connections that have to wait stay listed until the log says that it has got further. Those that have got messages
//! and no replies have a list of their own: some of them are sent to in each tick, and the others get more meanwhile.
//!
//! A round is all that is made and sent between two looks at the sockets, and bounded: see `round`.

mod closing;
mod connection;
mod hand_over;
mod proxy;
mod rest;
mod round;
mod sending;
mod waiting;

use crate::event_loop::connection::Connection;
use crate::event_loop::round::Rounds;
use crate::event_loop::sending::Sending;
use crate::mailbox::Mailbox;
use crate::output::{Gate, Spares};
use crate::raft::Raft;
use crate::replication::Replication;
use crate::stream::Accepted;
use haypile_commands::host::ClientType;
use haypile_config::{Config, Limit};
use haypile_engine::{Counters, Engine, Event, Inbox, Session, Worker};
use haypile_log::Index;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, LocalOptions};

/// Bytes of the one buffer that all connections of a loop read into. A pipeline of usual commands fits, and so the
/// buffer stays in the core's cache.
const SCRATCH_BYTES: usize = 64 << 10;

/// Tasks that run before the runtime looks at its sockets again, if there are so many: more than its default, because
/// the replies of all of them leave in one tick.
const TASKS_PER_POLL: u32 = 256;

/// The time between looks at work that no client asks for: expired keys, idle clients.
const CRON: Duration = Duration::from_millis(100);

/// Rounds of `CRON` between looks at idle clients, and at expired keys in the base.
const SECOND: u64 = 10;

/// The time after which no more of those are sent to in a tick who have got messages only: a send takes some
/// microseconds, and a message may have tens of thousands of subscribers.
const TOLD_TIME_MAX: Duration = Duration::from_micros(500);

/// Sends between two looks at the clock.
const TOLD_BETWEEN_LOOKS: usize = 16;

/// The state that all tasks of an event loop share.
pub struct EventLoop {
    pub engine: Arc<Engine>,
    pub worker: RefCell<Worker>,
    pub scratch: RefCell<Box<[u8]>>,
    pub spares: RefCell<Spares>,
    pub mailbox: Arc<Mailbox>,
    pub replication: Arc<Replication>,
    pub raft: Arc<Raft>,
    inbox: Arc<Inbox>,
    index: usize,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    /// Connections with new replies since the last tick, each once.
    dirty: RefCell<Vec<Rc<Connection>>>,
    /// Connections that have got messages and no replies since they last sent, each once.
    told: RefCell<VecDeque<Rc<Connection>>>,
    /// Connections with replies that wait for the log.
    gated: RefCell<Vec<Rc<Connection>>>,
    /// Wakes the tick's task.
    tick: RefCell<Option<Waker>>,
    /// Whether there is work at the end of the tick that no reply waits for.
    tick_is_wanted: Cell<bool>,
    /// How much a client may leave unread, by its kind, and the version of the settings that it was read from.
    output_limits: Cell<OutputLimits>,
    limits_version: Cell<u64>,
    pub rounds: Rounds,
}

/// The `client-output-buffer-limit` of the kinds of clients that exist here.
#[derive(Clone, Copy)]
pub struct OutputLimits {
    normal: Limit,
    pubsub: Limit,
}

impl OutputLimits {
    fn of(config: &Config) -> Self {
        OutputLimits { normal: config.normal_output_limit, pubsub: config.pubsub_output_limit }
    }

    /// Returns the limit of a session. Messages to a client in MONITOR do not wait until it has read, as replies do:
    /// where normal clients have no limit, it has that of subscribers.
    pub fn of_client(&self, session: &Session) -> &Limit {
        let is_unlimited = self.normal.hard_bytes == 0 && self.normal.soft_bytes == 0;
        match session.kind() {
            ClientType::PubSub => &self.pubsub,
            _ if session.monitors() && is_unlimited => &self.pubsub,
            _ => &self.normal,
        }
    }
}

/// Returns the microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Runs event loop `index` on this thread until its mailbox says stop.
pub fn run(
    engine: Arc<Engine>,
    index: usize,
    mailbox: Arc<Mailbox>,
    replication: Arc<Replication>,
    raft: Arc<Raft>,
) -> std::io::Result<()> {
    let (sleeping, waking) = (engine.clone(), engine.clone());
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(move || sleeping.rest(index))
        .on_thread_unpark(move || waking.begin_round(index))
        .event_interval(TASKS_PER_POLL)
        .build_local(LocalOptions::default())?;
    let wake = mailbox.clone();
    let worker = Worker::new(engine.clone(), index, Box::new(move || wake.wake.notify_one()));
    // The version is read first: settings that change in between are seen by the next look at it.
    let limits_version = engine.settings.version();
    let output_limits = OutputLimits::of(&engine.settings.config());
    let event_loop = Rc::new(EventLoop {
        engine,
        inbox: worker.inbox().clone(),
        worker: RefCell::new(worker),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
        spares: RefCell::default(),
        mailbox: mailbox.clone(),
        replication,
        raft,
        index,
        connections: RefCell::default(),
        dirty: RefCell::default(),
        told: RefCell::default(),
        gated: RefCell::default(),
        tick: RefCell::default(),
        tick_is_wanted: Cell::new(false),
        output_limits: Cell::new(output_limits),
        limits_version: Cell::new(limits_version),
        rounds: Rounds::default(),
    });
    event_loop.engine.begin_round(index);
    runtime.block_on(async {
        tokio::task::spawn_local(event_loop.clone().ticks());
        tokio::task::spawn_local(event_loop.clone().rounds());
        tokio::task::spawn_local(event_loop.clone().read_mail());
        tokio::task::spawn_local(event_loop.clone().look_after());
        while !mailbox.is_stopped() {
            mailbox.stop.notified().await;
        }
        // Commands that have run get their replies, as far as these are durable by then and the sockets take them.
        event_loop.end_of_tick();
        while !event_loop.told.borrow().is_empty() {
            event_loop.send_told();
        }
    });
    // A client may be on its way to a leader that does not answer.
    runtime.shutdown_background();
    Ok(())
}

impl EventLoop {
    /// Puts a connection with new replies on the list of the coming tick.
    #[inline]
    pub fn mark_dirty(&self, connection: Rc<Connection>) {
        let mut dirty = self.dirty.borrow_mut();
        dirty.push(connection);
        if dirty.len() == 1 {
            self.wake_tick();
        }
    }

    /// Puts a connection with new messages on the list of those that send some at a time.
    pub fn mark_told(&self, connection: Rc<Connection>) {
        self.told.borrow_mut().push_back(connection);
        self.ask_for_tick();
    }

    /// Makes the tick end even if no reply asks for it.
    pub fn ask_for_tick(&self) {
        if !self.tick_is_wanted.replace(true) {
            self.wake_tick();
        }
    }

    fn wake_tick(&self) {
        if let Some(tick) = &*self.tick.borrow() {
            tick.wake_by_ref();
        }
    }

    /// Returns how much clients may leave unread, by the settings of this moment.
    pub fn output_limits(&self) -> OutputLimits {
        let version = self.engine.settings.version();
        if version != self.limits_version.get() {
            self.limits_version.set(version);
            self.output_limits.set(OutputLimits::of(&self.engine.settings.config()));
        }
        self.output_limits.get()
    }

    /// Counts bytes that have left.
    pub fn on_sent(&self, bytes: usize, took: Duration) {
        self.rounds.on_work(bytes, took);
        self.counters().output_bytes.add(bytes as u64);
        self.counters().writes.add(1);
    }

    /// Sends in the rounds that follow the bytes that did not leave in their own.
    async fn rounds(self: Rc<Self>) {
        loop {
            self.rounds.next().await;
            self.rounds.go_on(|connection| connection.go_on_sending(&self));
        }
    }

    /// Tells whether other threads have notices for clients of this loop. One load.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.inbox.has_notices()
    }

    /// Hands clients the notices that other threads have for them. Called between the turns of connections.
    #[cold]
    pub fn take_notices(self: &Rc<Self>) {
        let connections = self.connections.borrow();
        self.worker.borrow_mut().take_notices(|session, delivery| {
            if let Some(connection) = connections.get(&session) {
                connection.take(self, delivery);
            }
        });
    }

    /// Returns this loop's numbers.
    #[inline]
    pub fn counters(&self) -> &Counters {
        self.engine.counters(self.index)
    }

    /// Runs the tick again and again.
    async fn ticks(self: Rc<Self>) {
        poll_fn(|cx| {
            *self.tick.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        loop {
            poll_fn(|_| match self.dirty.borrow().is_empty() && !self.tick_is_wanted.get() {
                true => Poll::Pending,
                false => Poll::Ready(()),
            })
            .await;
            self.end_of_tick();
        }
    }

    /// Writes the log once, then sends all replies that are durable; work for the disk begins after that.
    fn end_of_tick(self: &Rc<Self>) {
        self.tick_is_wanted.set(false);
        let confirmed = self.write_log();
        // Connections that become dirty while these are written belong to the next tick.
        let mut round = self.dirty.take();
        let mut waits = false;
        round.retain(|connection| {
            let is_gated = self.leave(connection, confirmed);
            waits |= is_gated;
            !is_gated
        });
        self.count_turns(&round);
        waits |= self.send_told();
        // The list's memory is kept, unless the list is in use again.
        round.clear();
        let mut dirty = self.dirty.borrow_mut();
        if dirty.is_empty() {
            *dirty = round;
        }
        drop(dirty);
        if waits {
            self.wait_for_log();
        }
        self.worker.borrow_mut().start_jobs();
        self.engine.end_round(self.index);
    }

    /// Sends the bytes of a connection that may leave; returns whether some have to wait for the log.
    fn leave(self: &Rc<Self>, connection: &Rc<Connection>, confirmed: Gate) -> bool {
        let is_gated = connection.leave(self, confirmed, Sending::Round);
        if is_gated && !connection.gated.replace(true) {
            self.counters().gate_waits.add(1);
            self.gated.borrow_mut().push(connection.clone());
        }
        is_gated
    }

    /// Sends to some of those who have got messages, whose replies leave with these; the others' turn comes in the next
    /// rounds, and meanwhile they get more. Returns whether some of it has to wait for the log.
    fn send_told(self: &Rc<Self>) -> bool {
        if self.told.borrow().is_empty() {
            return false;
        }
        let (began, confirmed) = (Instant::now(), self.confirmed());
        let mut waits = false;
        while began.elapsed() < TOLD_TIME_MAX {
            for _ in 0..TOLD_BETWEEN_LOOKS {
                let Some(connection) = self.told.borrow_mut().pop_front() else { return waits };
                let is_gated = self.leave(&connection, confirmed);
                waits |= is_gated;
                if !is_gated {
                    connection.count_turns(self.counters(), now_us());
                }
            }
        }
        // The task that reads the mail goes on with them in the next round.
        self.mailbox.wake.notify_one();
        waits
    }

    /// Counts the turns of connections whose replies have left.
    fn count_turns(&self, connections: &[Rc<Connection>]) {
        let (counters, now_us) = (self.counters(), now_us());
        counters.ticks.add(1);
        connections.iter().for_each(|connection| connection.count_turns(counters, now_us));
    }

    /// Hands appended records to the operating system; returns how far the log is confirmed.
    #[inline]
    fn write_log(&self) -> Gate {
        let Some(store) = self.engine.store() else { return self.gate(Index(0)) };
        let log = store.log();
        if log.last() > log.written() {
            let since = self.engine.moment();
            log.write();
            self.engine.note_event("log-write", since);
        }
        self.gate(log.confirmed())
    }

    /// Returns what is confirmed, where the log is through this record.
    #[inline]
    fn gate(&self, index: Index) -> Gate {
        Gate { index, round: self.raft.confirmed() }
    }

    /// Returns how far the log is confirmed: replies that depend on no more may leave. While there is no store, that is
    /// nothing; replies that depend on one before it depend on nothing as soon as its version is another one.
    #[inline]
    pub fn confirmed(&self) -> Gate {
        self.gate(self.engine.store().map_or(Index(0), |store| store.log().confirmed()))
    }

    /// Asks for a wake-up when the log has got further, and looks once more: it may have done so just now.
    fn wait_for_log(self: &Rc<Self>) {
        self.mailbox.waits_for_log.store(true, Ordering::SeqCst);
        self.release_gated();
    }

    /// Sends replies that waited for the log and wait no longer.
    fn release_gated(self: &Rc<Self>) {
        let confirmed = self.confirmed();
        let (still, left): (Vec<_>, Vec<_>) =
            self.gated.take().into_iter().partition(|connection| connection.leave(self, confirmed, Sending::Round));
        left.iter().for_each(|connection| connection.gated.set(false));
        self.count_turns(&left);
        if still.is_empty() {
            self.mailbox.waits_for_log.store(false, Ordering::SeqCst);
        }
        *self.gated.borrow_mut() = still;
    }

    /// Takes the mail that other threads have left.
    async fn read_mail(self: Rc<Self>) {
        let inbox = self.inbox.clone();
        let mut events: Vec<Event> = Vec::new();
        loop {
            self.mailbox.wake.notified().await;
            for client in self.mailbox.take_accepted() {
                self.welcome(client);
            }
            if self.has_notices() {
                self.take_notices();
            }
            inbox.take(&mut events);
            for event in events.drain(..) {
                let connection = self.connections.borrow().get(&event.session).cloned();
                if let Some(connection) = connection {
                    connection.deliver(event);
                }
            }
            if !self.gated.borrow().is_empty() {
                self.release_gated();
            }
            let are_left = self.worker.borrow_mut().end_departed();
            let are_told = !self.told.borrow().is_empty();
            if are_left || are_told || self.has_notices() {
                // More mail has come meanwhile, or was left for later: the connections have their turns in between.
                tokio::task::yield_now().await;
                self.worker.borrow_mut().begin_deliveries();
            }
            if are_told {
                self.ask_for_tick();
            }
        }
    }

    fn welcome(self: &Rc<Self>, client: Accepted) {
        let peer = client.peer();
        let by_name = self.engine.settings.config().tls.user_of_common_name;
        let user = by_name.then(|| client.common_name()).flatten();
        match client.into_halves() {
            Ok((reader, writer)) => {
                let mut session = self.worker.borrow_mut().connect(peer);
                if let Some(user) = user {
                    self.worker.borrow_mut().log_in_by_certificate(&mut session, &user);
                }
                let connection = Rc::new(Connection::new(session, writer, now_us()));
                self.connections.borrow_mut().insert(connection.id, connection.clone());
                tokio::task::spawn_local(connection::serve(self.clone(), connection, reader));
            }
            Err(error) => {
                tracing::debug!("a client was lost before it was served: {error}");
                self.mailbox.clients.fetch_sub(1, Ordering::Relaxed);
                self.engine.on_disconnect();
            }
        }
    }

    /// Forgets a connection that has ended.
    pub fn forget(&self, connection: &Connection) {
        self.connections.borrow_mut().remove(&connection.id);
        let mut worker = self.worker.borrow_mut();
        connection.part(&mut worker);
        if worker.has_jobs() {
            self.ask_for_tick();
        }
        self.mailbox.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Does the work that no client asks for.
    async fn look_after(self: Rc<Self>) {
        let mut interval = tokio::time::interval(CRON);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round = 0u64;
        loop {
            interval.tick().await;
            round += 1;
            if round.is_multiple_of(SECOND) && self.index == 0 {
                self.engine.note_memory();
            }
            if round.is_multiple_of(SECOND) {
                self.look_at_clients();
            }
            if let Some(overdue) = self.engine.overdue() {
                self.give_up(overdue);
            }
            // One loop does the work for the server as a whole.
            if self.index == 0 {
                self.engine.look_at_confirmations();
                // The bound may have been lowered.
                self.engine.bound_clients();
                self.engine.sample();
                self.engine.begin_scheduled_backup();
                self.shrink_tracking().await;
                self.expire(round.is_multiple_of(SECOND)).await;
            }
        }
    }

    /// Takes keys out of a table of tracked keys that has too many, for half of the time between two looks.
    async fn shrink_tracking(&self) {
        let since = Instant::now();
        while self.engine.shrink_tracking() && since.elapsed() < CRON / 2 {
            // Clients come first, and hear of the keys.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends connections whose replies have waited too long for replicas to have a record through `overdue`.
    fn give_up(&self, overdue: Index) {
        for connection in self.gated.borrow().iter() {
            connection.give_up_if_overdue(self, overdue);
        }
    }

    /// Removes keys that are due, for as long as the time between two looks; what is left then is for the next one, so
    /// that other work that no client asks for does not wait until all of them are gone.
    async fn expire(&self, in_base: bool) {
        let since = Instant::now();
        if in_base {
            self.worker.borrow_mut().expire_in_base();
        }
        loop {
            let more = self.worker.borrow_mut().expire(now_us() / 1000);
            let is_behind = self.engine.store().is_some_and(|store| store.log().last() > store.log().written());
            if is_behind {
                self.ask_for_tick();
            }
            if !more || since.elapsed() >= CRON {
                return;
            }
            // Clients come first: due keys stay due.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Closes clients that have sent nothing for `timeout` seconds, those that leave too much unread for too long, and
    /// those that take too long to read a reply that keeps files of the base.
    fn look_at_clients(&self) {
        let timeout_us = u64::from(self.engine.settings.config().timeout_s) * 1_000_000;
        let (now_us, limits) = (now_us(), self.output_limits());
        let age_max = self.engine.store().map_or(Duration::MAX, |store| store.view_age_max());
        let age_max_us = u64::try_from(age_max.as_micros()).unwrap_or(u64::MAX);
        for connection in self.connections.borrow().values() {
            if timeout_us > 0 {
                connection.close_if_idle(now_us, timeout_us);
            }
            connection.close_if_unread(self, now_us, &limits);
            connection.close_if_lingering(now_us, age_max_us);
        }
    }
}
