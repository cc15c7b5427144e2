//! A Redis that follows: one connection of it, from its request to its end.

use super::commands::Point;
use super::commands::is_unsaid;
use super::payload::{SIGN, SIGN_INTERVAL, Sending};
use super::stream::{Resume, Seat, pass_next, sendable};
use crate::replication::copies::Copy;
use crate::replication::feed::Feed;
use crate::replication::send::HEARTBEAT;
use crate::replication::state::Replication;
use crate::replication::wire::show;
use crate::socket::Socket;
use haypile_commands::host::ClientType;
use haypile_engine::{Downstream, DownstreamState, Leader, Marks, StoreRef};
use haypile_log::{Hold, Index};
use haypile_replication::asked::{Asked, acknowledged};
use haypile_resp::{Limits, Parser};
use std::collections::VecDeque;
use std::io::{self, Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of commands that are gathered before they are sent.
const SEND_BYTES: usize = 64 << 10;

/// The capacity above which the buffer of a long command is not kept.
const KEPT_BYTES: usize = 4 << 20;

/// Places of the stream that are on their way, at most: behind that, an acknowledgement counts for fewer records.
const PLACES_MAX: usize = 4096;

/// How many times as long as usual a replica is waited for that loads the data.
const LOADING_TIMES: u32 = 6;

/// How long commands are gathered behind those that were sent.
const GATHER: Duration = Duration::from_micros(500);

/// The time between looks at what a group has agreed on.
const GROUP_LOOK: Duration = Duration::from_millis(10);

/// Bytes that a replica's words take at once, and until one of them is whole.
const RECEIVE_BYTES: usize = 4 << 10;
const WORDS_BYTES_MAX: usize = 64 << 10;

/// See the file's head.
pub struct RedisFeed {
    pub feed: Feed,
    pub asked: Asked,
}

/// The places behind commands that were sent: through which record the stream has come where.
type Places = Mutex<VecDeque<(u64, Index)>>;

impl RedisFeed {
    /// Serves the connection to its end.
    pub fn run(self) {
        let (replication, number) = (self.feed.replication.clone(), self.feed.number);
        let _shown = show(&replication.engine, ClientType::Replica, &self.feed.names, &self.feed.socket);
        let (host, socket) = (self.feed.host.clone(), self.feed.socket.clone());
        let served = self.serve();
        replication.engine.replication.remove_downstream(number);
        replication.engine.look_at_replicas();
        if let Err(error) = served {
            tracing::info!("the connection of {host}, a Redis that follows, has ended: {error}");
        }
        socket.shutdown();
    }

    fn refuse(&self, why: &str) -> io::Result<()> {
        tracing::warn!("{}, a Redis, cannot follow: {why}", self.feed.host);
        self.feed.socket.write_all(format!("-ERR {why}\r\n").as_bytes())
    }

    /// Answers as a Redis does that does not know whether its data are going to stay: the replica asks again by itself.
    pub(super) fn refuse_for_now(&self) -> io::Result<()> {
        tracing::debug!("{}, a Redis, has to wait for the link to the master", self.feed.host);
        self.feed.socket.write_all(b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n")
    }

    fn serve(mut self) -> io::Result<()> {
        let replication = self.feed.replication.clone();
        let engine = &*replication.engine;
        let Some(store) = engine.store() else { return self.refuse("the data are not loaded") };
        if engine.settings.config().engine == haypile_config::Engine::Memory {
            return self.refuse("a server with 'engine memory' keeps no log that others can follow");
        }
        let is_led_elsewhere = engine.group.is_member() && engine.group.leader_now() != Leader::Here;
        if store.follows() || is_led_elsewhere {
            drop(store);
            return self.relay();
        }
        if !engine.group.is_member() && !replication.has_link() {
            return self.refuse_for_now();
        }
        let version = replication.version();
        if let Some(address) = self.asked.address.take() {
            self.feed.host = address;
        }
        self.feed.socket.set_write_timeout(Some(replication.timeout()))?;
        self.feed.socket.set_read_timeout(Some(HEARTBEAT))?;
        if !self.asked.only_data {
            engine.replication.set_downstream(self.feed.number, self.downstream(version));
        }
        let (host, port) = (self.feed.host.clone(), self.asked.port);
        if let Some((id, had)) = self.asked.place.clone() {
            match replication.resume(&store, version, self.feed.number, (&id, had)) {
                Ok((seat, resume)) => {
                    tracing::info!("{host}:{port}, a Redis, goes on behind record {}", resume.at.index);
                    engine.replication.resyncs.partial.add_shared(1);
                    return self.go_on(store, version, &seat, resume);
                }
                Err(why) => {
                    tracing::info!("{host}:{port}, a Redis, needs all data: {why}");
                    engine.replication.resyncs.refused.add_shared(1);
                }
            }
        }
        engine.replication.resyncs.full.add_shared(1);
        self.send_all(store, version)
    }

    fn downstream(&self, version: u64) -> Downstream {
        Downstream {
            host: self.feed.host.clone(),
            port: self.asked.port,
            state: DownstreamState::WaitCopy,
            is_redis: true,
            version,
            written: Index(0),
            synced: Index(0),
            applied: Index(0),
            since: Instant::now(),
            acknowledged: Instant::now(),
            marks: Marks::default(),
        }
    }

    fn go_on(&mut self, store: StoreRef, version: u64, seat: &Seat<'_>, resume: Resume) -> io::Result<()> {
        let Resume { at, rest, hold, id } = resume;
        let line = if self.asked.knows_ids { format!("+CONTINUE {id}\r\n") } else { "+CONTINUE\r\n".to_owned() };
        self.feed.socket.write_all(line.as_bytes())?;
        self.stream(store, version, seat, at, rest, hold, false)
    }

    /// Sends all data, and then the commands behind them.
    fn send_all(&mut self, store: StoreRef, version: u64) -> io::Result<()> {
        let replication = self.feed.replication.clone();
        drop(store);
        let (seat, copy) = match self.make_copy(&replication, version)? {
            Ok(made) => made,
            Err(why) => return self.refuse(&format!("no copy can be made: {why}")),
        };
        let Some(store) = replication.engine.store() else { return Ok(()) };
        let index = copy.manifest.index;
        let (at, id) = match &seat {
            Some(seat) => replication.point_at(seat, &store, index).map_err(Error::other)?,
            // Nothing follows the data: any name and any offset will do.
            None => (Point { index, offset: 0, database: None }, store.history().to_string()),
        };
        let hold = store.log().hold_after(index).ok_or(Error::other("the log behind the copy is gone"))?;
        // A long transfer keeps no store in place.
        drop(store);
        let (host, port) = (&self.feed.host, self.asked.port);
        tracing::info!("{host}:{port}, a Redis, gets all data through record {index}");
        if !self.asked.is_old {
            self.feed.socket.write_all(format!("+FULLRESYNC {id} {}\r\n", at.offset).as_bytes())?;
        }
        let engine = &replication.engine;
        engine.replication.note_downstream(self.feed.number, |replica| replica.state = DownstreamState::SendCopy);
        let (socket, asked, database) = (&self.feed.socket, &self.asked, at.database);
        Sending { replication: &replication, version, socket, asked, copy: &copy, database }.run()?;
        drop(copy);
        let Some(seat) = seat else { return Ok(()) };
        let Some(store) = replication.engine.store().filter(|_| replication.goes_on(version)) else { return Ok(()) };
        let is_behind_mark = self.asked.knows_end;
        self.stream(store, version, &seat, at, Vec::new(), hold, is_behind_mark)
    }

    /// Makes a copy, or takes one that was made lately, and gives the replica signs of life meanwhile. With it comes
    /// the replica's seat, if it is going to follow.
    ///
    /// # Errors
    /// The outer one: the connection broke. The inner one, a text for people: there is no copy.
    fn make_copy<'r>(
        &self,
        replication: &'r Replication,
        version: u64,
    ) -> io::Result<Result<(Option<Seat<'r>>, Arc<Copy>), String>> {
        let Some(store) = replication.engine.store_arc() else { return Ok(Err("the data are not loaded".into())) };
        let (store, number, only_data) = (&*store, self.feed.number, self.asked.only_data);
        std::thread::scope(|threads| {
            let (tell, told) = channel();
            threads.spawn(move || {
                let begin = || match only_data {
                    true => Ok((None, store.log().confirmed())),
                    false => replication.begin_backlog(store, version, number).map(|(seat, index)| (Some(seat), index)),
                };
                let made = begin().and_then(|(seat, begun)| {
                    let recent = replication.copies.get_recent(version, begun);
                    let make = || replication.copies.make(store, version, begun, &|| replication.goes_on(version));
                    recent.map_or_else(make, Ok).map(|copy| (seat, copy))
                });
                // The connection may have ended meanwhile.
                let _ = tell.send(made);
            });
            loop {
                match told.recv_timeout(SIGN_INTERVAL) {
                    Ok(made) => return Ok(made),
                    Err(RecvTimeoutError::Timeout) if self.asked.is_old => {}
                    Err(RecvTimeoutError::Timeout) => self.feed.socket.write_all(SIGN)?,
                    Err(RecvTimeoutError::Disconnected) => return Ok(Err("its thread has panicked".into())),
                }
            }
        })
    }

    /// Sends commands as they come, and takes what the replica acknowledges. Behind a payload with a mark at its end
    /// nothing is sent before the replica has acknowledged that: it looks for the mark at the end of what has come.
    #[allow(clippy::too_many_arguments, reason = "the pieces of one stream, handed on as they are")]
    fn stream(
        &mut self,
        store: StoreRef,
        version: u64,
        seat: &Seat<'_>,
        at: Point,
        rest: Vec<u8>,
        hold: Hold,
        is_behind_mark: bool,
    ) -> io::Result<()> {
        let replication = self.feed.replication.clone();
        let progress = replication.progress.clone();
        let _following = progress.follow();
        let reader = store.log().reader(at.index);
        // A store that is exchanged is to have no users.
        drop(store);
        let (hold, ended) = (Mutex::new(hold), AtomicBool::new(false));
        let places = Mutex::new(VecDeque::from([(at.offset, at.index)]));
        let acknowledges = AtomicBool::new(!is_behind_mark);
        let (number, socket, is_old) = (self.feed.number, self.feed.socket.clone(), self.asked.is_old);
        seat.acknowledge(at.index);
        let read = std::mem::take(&mut self.feed.read);
        let listener = Listener {
            replication: &replication,
            number,
            seat,
            is_old,
            hold: &hold,
            places: &places,
            acknowledges: &acknowledges,
        };
        std::thread::scope(|threads| {
            let (ended, socket) = (&ended, &socket);
            let listener = &listener;
            let heard = threads.spawn(move || {
                let heard = listener.run(socket, read);
                ended.store(true, Ordering::Release);
                listener.replication.progress.note();
                // The thread that sends may wait for the replica.
                socket.shutdown();
                heard
            });
            let sender = Sender { replication: &replication, version, seat, socket, ended, listener };
            let sent = sender.run(reader, at, rest);
            socket.shutdown();
            let heard = heard.join().unwrap_or_else(|_| Err(Error::other("its thread has panicked")));
            // Where both failed, one of them has found a connection that the other one has closed.
            match sent {
                Err(error) if error.kind() == ErrorKind::Other => Err(error),
                sent => heard.and(sent),
            }
        })
    }
}

/// The thread that sends.
struct Sender<'a> {
    replication: &'a Replication,
    version: u64,
    seat: &'a Seat<'a>,
    socket: &'a Socket,
    /// The replica has gone.
    ended: &'a AtomicBool,
    listener: &'a Listener<'a>,
}

impl Sender<'_> {
    fn goes_on(&self) -> bool {
        let engine = &self.replication.engine;
        let leads = !engine.group.is_member() || engine.group.leader_now() == Leader::Here;
        leads && self.replication.goes_on(self.version) && self.seat.goes_on() && !self.ended.load(Ordering::Acquire)
    }

    fn run(&self, reader: haypile_log::Reader, at: Point, out: Vec<u8>) -> io::Result<()> {
        self.send_all(reader, at, out).inspect_err(|error| {
            if is_unsaid(error) {
                self.seat.void();
            }
        })
    }

    fn send_all(&self, mut reader: haypile_log::Reader, mut at: Point, mut out: Vec<u8>) -> io::Result<()> {
        let is_member = self.replication.engine.group.is_member();
        let mut spoken = Instant::now();
        while self.goes_on() {
            // In this order: progress in between ends the wait.
            let seen = self.replication.progress.count();
            self.replication.mark(self.listener.number);
            let wait = if is_member { GROUP_LOOK } else { HEARTBEAT };
            if !self.listener.acknowledges.load(Ordering::Acquire) {
                self.replication.progress.wait(seen, wait);
                continue;
            }
            let through = match self.replication.engine.store() {
                Some(store) => sendable(store.log(), is_member),
                None => return Ok(()),
            };
            while at.index < through && pass_next(&mut reader, &mut at, &mut out)? {
                if out.len() >= SEND_BYTES {
                    self.send(&mut out, at)?;
                    spoken = Instant::now();
                    if !self.goes_on() {
                        return Ok(());
                    }
                }
            }
            let has_spoken = !out.is_empty();
            self.send(&mut out, at)?;
            if has_spoken {
                spoken = Instant::now();
                // More is on its way, as a rule: to be woken for each tick of an event loop costs it more than to wait.
                std::thread::sleep(GATHER);
                continue;
            }
            let ping = Duration::from_secs(self.replication.engine.settings.config().replication.ping_s.into());
            if spoken.elapsed() >= ping {
                spoken = Instant::now();
                self.ping();
            }
            self.replication.progress.wait(seen, wait);
        }
        Ok(())
    }

    fn send(&self, out: &mut Vec<u8>, at: Point) -> io::Result<()> {
        {
            let mut places = self.listener.places();
            if places.len() >= PLACES_MAX || places.back().is_some_and(|(offset, _)| *offset == at.offset) {
                places.pop_back();
            }
            places.push_back((at.offset, at.index));
        }
        if out.is_empty() {
            return Ok(());
        }
        self.socket.write_all(out)?;
        out.clear();
        out.shrink_to(KEPT_BYTES);
        self.seat.note_point(at);
        if self.listener.is_old {
            // One that has asked by SYNC may never say how far it has come, and cannot come back to it.
            self.listener.take(at.index);
        }
        Ok(())
    }

    /// Says that this server is alive: by a record, because the stream has the same bytes for all who follow.
    fn ping(&self) {
        if let Err(why) = self.replication.engine.state(&[b"PING"]) {
            tracing::debug!("a Redis that follows is not pinged: {why}");
        }
    }
}

/// The thread that takes what the replica says.
struct Listener<'a> {
    replication: &'a Replication,
    number: u64,
    seat: &'a Seat<'a>,
    is_old: bool,
    hold: &'a Mutex<Hold>,
    places: &'a Places,
    acknowledges: &'a AtomicBool,
}

impl Listener<'_> {
    fn run(&self, socket: &Socket, mut read: Vec<u8>) -> io::Result<()> {
        let limits = Limits {
            bulk_bytes_max: WORDS_BYTES_MAX as u64,
            multibulk_len_max: 64,
            inline_bytes_max: WORDS_BYTES_MAX as u32,
            request_bytes_max: WORDS_BYTES_MAX as u32,
            authenticated: true,
        };
        let (mut parser, mut ranges) = (Parser::new(limits), Vec::new());
        let (mut heard, mut looked) = (Instant::now(), Instant::now());
        loop {
            let mut taken = 0;
            loop {
                let request = parser.next(&read[taken..], &mut ranges);
                let Some(request) = request.map_err(|_| Error::new(ErrorKind::InvalidData, "it speaks no RESP"))?
                else {
                    break;
                };
                let words: Vec<&[u8]> = request.args(&read[taken..], &ranges).iter().collect();
                self.hear(&words)?;
                taken += request.bytes();
            }
            read.drain(..taken);
            parser.restart();
            if looked.elapsed() >= HEARTBEAT {
                looked = Instant::now();
                let Some(store) = self.replication.engine.store() else { return Ok(()) };
                if let Some(why) = self.replication.keeps_too_much(&store, self.hold) {
                    return Err(Error::other(format!("it is {why}: it gets all data when it comes back")));
                }
            }
            let have = read.len();
            read.resize(have + RECEIVE_BYTES, 0);
            let received = socket.read(&mut read[have..]);
            read.truncate(have + *received.as_ref().unwrap_or(&0));
            match received {
                Ok(0) => return Err(Error::new(ErrorKind::UnexpectedEof, "it has closed the connection")),
                Ok(_) => heard = Instant::now(),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    // One that has asked by SYNC may never say anything, and one that has all data on its way to it,
                    // and loads them, says little.
                    let has_said = self.acknowledges.load(Ordering::Acquire);
                    let patience = self.replication.timeout() * if has_said { 1 } else { LOADING_TIMES };
                    if !self.is_old && heard.elapsed() > patience {
                        return Err(Error::new(ErrorKind::TimedOut, "it acknowledges nothing"));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn places(&self) -> MutexGuard<'_, VecDeque<(u64, Index)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the replica has the records through this one.
    fn take(&self, through: Index) {
        let through = {
            let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
            let through = through.max(hold.after());
            hold.advance(through);
            through
        };
        self.seat.acknowledge(through);
        self.replication.engine.replication.note_downstream(self.number, |replica| {
            (replica.written, replica.applied) = (through, through);
            replica.marks.reach(through);
        });
    }

    fn hear(&self, words: &[&[u8]]) -> io::Result<()> {
        let no_number = |_| Error::new(ErrorKind::InvalidData, "it acknowledges what is no number");
        let Some(has) = acknowledged(words).map_err(no_number)? else { return Ok(()) };
        let through = {
            let mut places = self.places();
            let passed = places.partition_point(|(offset, _)| *offset <= has);
            let through = passed.checked_sub(1).map(|at| places[at].1);
            places.drain(..passed.saturating_sub(1));
            through
        };
        through.into_iter().for_each(|through| self.take(through));
        let engine = &*self.replication.engine;
        engine.replication.note_downstream(self.number, |replica| {
            (replica.state, replica.acknowledged) = (DownstreamState::Online, Instant::now());
        });
        self.replication.mark(self.number);
        engine.on_acknowledged();
        if !self.acknowledges.swap(true, Ordering::AcqRel) {
            engine.look_at_replicas();
            self.replication.progress.note();
        }
        Ok(())
    }
}
