//! A master's side of one connection: it sends a replica the log as it grows, or a copy's list, or a copy's files.

use crate::process::{give_way, thread_cpu_time};
use crate::replication::copies::Copy;
use crate::replication::fetch::CONNECTIONS;
use crate::replication::send::{HEARTBEAT, Sender, heartbeat};
use crate::replication::state::{Answer, Replication};
use crate::replication::wire::{Incoming, Outgoing, show};
use crate::socket::Socket;
use haypile_commands::host::ClientType;
use haypile_engine::{Downstream, DownstreamState, Engine, Listener, Marks, Names, StoreRef};
use haypile_log::{History, Hold, Index};
use haypile_replication::frame::Frame;
use haypile_replication::stream::{self, Sink, Stream};
use haypile_replication::{FullReason, Position, Request, Token};
use std::io::{self, Error, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Bytes of a file in one frame: few enough that who waits for the core of the thread that sends them hardly waits.
const PIECE_BYTES: usize = 64 << 10;

/// How long a thread that sends files rests behind each piece where event loops share its core, of the CPU time that
/// the piece took.
const REST: u32 = 3;

/// One connection of a replica.
pub struct Feed {
    pub replication: Arc<Replication>,
    pub number: u64,
    pub socket: Socket,
    /// Bytes that have come behind the request.
    pub read: Vec<u8>,
    /// The replica's address.
    pub host: String,
    /// The user that the replica is logged in as.
    pub names: Arc<Names>,
}

impl Feed {
    /// Serves the connection to its end.
    pub fn run(mut self, words: &[Vec<u8>]) {
        let replication = self.replication.clone();
        let _shown = show(&replication.engine, ClientType::Replica, &self.names, &self.socket);
        let served = match Request::parse(words) {
            // The log of a group's member has records that may be taken back.
            Some(Request::Follow { .. }) if replication.engine.group.is_member() => {
                self.refuse("a member of a Raft group has no replicas")
            }
            Some(Request::Follow { port, address, at }) => self.follow(port, address, at),
            Some(Request::Copy { group }) => self.copy(group),
            Some(Request::Fetch(token)) => self.send_files(token),
            None => self.refuse("the request is none that this version knows"),
        };
        self.replication.engine.replication.remove_downstream(self.number);
        self.replication.note_answer(self.number, Answer::Gone);
        self.replication.engine.look_at_replicas();
        if let Err(error) = served {
            tracing::info!("the connection of replica {} has ended: {error}", self.host);
        }
        self.socket.shutdown();
    }

    fn refuse(&mut self, why: &str) -> io::Result<()> {
        tracing::warn!("replica {} is not served: {why}", self.host);
        let mut out = Outgoing::new(self.socket.clone());
        out.send(&Frame::Refused(why))?;
        out.flush()
    }

    fn follow(&mut self, port: u16, address: Option<String>, at: Position) -> io::Result<()> {
        let replication = self.replication.clone();
        let engine = &*replication.engine;
        if let Some(address) = address {
            self.host = address;
        }
        let Some(store) = engine.store() else { return self.refuse("the data are not loaded") };
        let version = replication.version();
        self.socket.set_write_timeout(Some(replication.timeout()))?;
        self.socket.set_read_timeout(Some(replication.timeout()))?;
        let replica = Downstream {
            host: self.host.clone(),
            port,
            state: DownstreamState::WaitCopy,
            is_redis: false,
            version,
            written: Index(0),
            synced: Index(0),
            applied: Index(0),
            since: Instant::now(),
            acknowledged: Instant::now(),
            marks: Marks::default(),
        };
        engine.replication.set_downstream(self.number, replica);
        let mut out = Outgoing::new(self.socket.clone());
        match stream::admit(store.log(), at) {
            Ok(hold) => {
                tracing::info!("replica {}:{port} goes on behind record {}", self.host, at.index);
                engine.replication.resyncs.partial.add_shared(1);
                // First: who sees the replica's link up finds the replica here.
                engine.replication.note_downstream(self.number, |replica| {
                    (replica.state, replica.applied) = (DownstreamState::Online, at.index);
                });
                out.send(&Frame::Continue)?;
                out.flush()?;
                self.stream_records(engine, store, version, at, hold, out)
            }
            // A server that follows is on its way to where the replica is: a copy would take the replica back.
            Err(why @ FullReason::Ahead { .. }) if store.follows() => self.refuse(&why.to_string()),
            Err(why) => {
                tracing::info!("replica {}:{port} needs a copy: {why}", self.host);
                let resyncs = &engine.replication.resyncs;
                resyncs.full.add_shared(1);
                resyncs.refused.add_shared(u64::from(why != FullReason::Empty));
                drop(store);
                self.send_copy(version, why, out)
            }
        }
    }

    /// Sends the log as it grows, and takes what the replica acknowledges.
    fn stream_records(
        &mut self,
        engine: &Engine,
        store: StoreRef,
        version: u64,
        at: Position,
        hold: Hold,
        out: Outgoing,
    ) -> io::Result<()> {
        let progress = self.replication.progress.clone();
        let _following = progress.follow();
        let records = Stream::begin(store.log(), at);
        // A store that is exchanged is to have no users.
        drop(store);
        let (hold, ended) = (Mutex::new(hold), AtomicBool::new(false));
        self.socket.set_read_timeout(Some(HEARTBEAT))?;
        let incoming = Incoming::of_replica(self.socket.clone(), std::mem::take(&mut self.read));
        let (number, socket) = (self.number, &self.socket);
        let wakes = self.replication.clone();
        let listener = engine.listen(Box::new(move || wakes.progress.note()));
        let served = std::thread::scope(|threads| {
            let acknowledged = threads.spawn(|| {
                let taken = take_acknowledgements(&self.replication, number, incoming, &hold, &listener);
                ended.store(true, Ordering::Release);
                self.replication.progress.note();
                // The thread that sends may wait for the replica.
                socket.shutdown();
                taken
            });
            let (replication, listener, ended) = (&*self.replication, &listener, &ended);
            let sent = Sender { replication, stream: records, listener, out, ended, number, version }.run();
            // The thread that reads ends with the connection.
            socket.shutdown();
            let acknowledged = acknowledged.join().unwrap_or_else(|_| Err(Error::other("its thread has panicked")));
            // Where both failed, one of them has found a connection that the other one has closed.
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Other => Err(error),
                sent => acknowledged.and(sent),
            }
        });
        engine.end_listening(&listener);
        served
    }

    /// Sends a new copy to a member of this group.
    fn copy(&mut self, group: History) -> io::Result<()> {
        let replication = self.replication.clone();
        match replication.engine.group.facts() {
            Some(own) if own.group == group.to_string() => {}
            Some(own) => return self.refuse(&format!("this server is in group {}, not in {group}", own.group)),
            None => return self.refuse("this server is in no group"),
        }
        self.socket.set_write_timeout(Some(replication.timeout()))?;
        let (version, mut out) = (replication.version(), Outgoing::new(self.socket.clone()));
        let Some(last) = replication.engine.store().map(|store| store.log().confirmed()) else {
            return self.refuse("the data are not loaded");
        };
        match self.make_copy(version, last, &mut out)? {
            Ok(copy) => self.serve_copy(&copy, version, Index(0), out),
            Err(why) => self.refuse(&format!("no copy can be made: {why}")),
        }
    }

    /// Has a copy made, or takes one that was made lately, names its files, and keeps it until the connection ends.
    fn send_copy(&mut self, version: u64, why: FullReason, mut out: Outgoing) -> io::Result<()> {
        let replication = self.replication.clone();
        let copy = match replication.copies.get_recent(version, Index(0)) {
            Some(copy) => copy,
            None => match self.make_copy(version, Index(0), &mut out)? {
                Ok(copy) => copy,
                Err(why) => return self.refuse(&format!("no copy can be made: {why}")),
            },
        };
        self.serve_copy(&copy, version, why.shared(), out)
    }

    /// Names the files of a copy, and keeps it until the connection ends.
    fn serve_copy(&mut self, copy: &Arc<Copy>, version: u64, shared: Index, mut out: Outgoing) -> io::Result<()> {
        let replication = self.replication.clone();
        let (files, bytes) = (copy.manifest.files.len(), copy.manifest.bytes());
        tracing::info!("replica {} fetches a copy: {files} files, {bytes} bytes", self.host);
        replication.engine.replication.note_downstream(self.number, |replica| {
            replica.state = DownstreamState::SendCopy;
        });
        out.send(&Frame::Copy { shared, manifest: copy.manifest.encode().as_bytes() })?;
        out.flush()?;
        // The replica ends the connection when it has the files. It does not read meanwhile.
        self.socket.set_read_timeout(Some(HEARTBEAT))?;
        let mut byte = [0];
        while replication.goes_on(version) {
            match self.socket.read(&mut byte) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(Error::other("the replica says something while it fetches a copy")),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            let Some(store) = replication.engine.store() else { return Ok(()) };
            if let Some(why) = replication.keeps_too_much(&store, &copy.hold) {
                replication.copies.remove(copy.manifest.token);
                return Err(Error::other(format!("the copy is given up: it is {why}")));
            }
            if copy.idle() > replication.timeout() {
                return Err(Error::new(io::ErrorKind::TimedOut, "the replica fetches nothing"));
            }
        }
        Ok(())
    }

    /// Has a copy made by a thread of its own, while the replica hears that somebody is there.
    ///
    /// # Errors
    /// The outer one: the connection broke. The inner one, a text for people: there is no copy.
    fn make_copy(&self, version: u64, through: Index, out: &mut Outgoing) -> io::Result<Result<Arc<Copy>, String>> {
        let replication = &self.replication;
        let Some(store) = replication.engine.store_arc() else { return Ok(Err("the data are not loaded".into())) };
        let store = &*store;
        std::thread::scope(|threads| {
            let (tell, told) = channel();
            threads.spawn(move || {
                let made = replication.copies.make(store, version, through, &|| replication.goes_on(version));
                // The connection may have ended meanwhile.
                let _ = tell.send(made);
            });
            loop {
                match told.recv_timeout(HEARTBEAT) {
                    Ok(made) => return Ok(made),
                    Err(RecvTimeoutError::Timeout) => {
                        out.send(&heartbeat(store)).and_then(|()| out.flush())?;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Ok(Err("its thread has panicked".into())),
                }
            }
        })
    }

    /// Sends the files of a copy that the replica asks for.
    fn send_files(&mut self, token: Token) -> io::Result<()> {
        let Some(copy) = self.replication.copies.get(token) else { return self.refuse("there is no such copy") };
        give_way();
        self.socket.set_write_timeout(Some(self.replication.timeout()))?;
        self.socket.set_read_timeout(Some(self.replication.timeout()))?;
        let mut incoming = Incoming::of_replica(self.socket.clone(), std::mem::take(&mut self.read));
        let mut out = Outgoing::new(self.socket.clone());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            while let Some(frame) = incoming.next()? {
                let Frame::Fetch { file, offset } = frame else { return Err(unexpected(&frame)) };
                self.send_file(&copy, file, offset, &mut out, &mut piece)?;
            }
            if incoming.silence() > self.replication.timeout() || !incoming.receive()? {
                return Ok(());
            }
        }
    }

    fn send_file(
        &self,
        copy: &Arc<Copy>,
        file: u32,
        mut offset: u64,
        out: &mut Outgoing,
        piece: &mut [u8],
    ) -> io::Result<()> {
        let (mut source, end) = copy.open(file)?;
        source.seek(SeekFrom::Start(offset))?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let shares_core = cores < self.replication.engine.workers() + CONNECTIONS;
        while offset < end && !self.replication.engine_is_closing() {
            let began = thread_cpu_time();
            let wanted = piece.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            source.read_exact(&mut piece[..wanted])?;
            copy.use_now();
            out.send(&Frame::Piece { file, offset, bytes: &piece[..wanted] })?;
            offset += wanted as u64;
            if shares_core {
                out.flush()?;
                std::thread::sleep((thread_cpu_time() - began) * REST);
            }
        }
        out.send(&Frame::Piece { file, offset, bytes: &[] })?;
        out.flush()
    }
}

/// Takes acknowledgements until the connection ends, or too much is kept for the replica.
fn take_acknowledgements(
    replication: &Replication,
    number: u64,
    mut incoming: Incoming,
    hold: &Mutex<Hold>,
    listener: &Listener,
) -> io::Result<()> {
    let engine = &*replication.engine;
    let (mut is_known, mut looked) = (false, Instant::now());
    loop {
        while let Some(frame) = incoming.next()? {
            let (written, synced, applied) = match frame {
                Frame::Acknowledge { written, synced, applied } => (written, synced, applied),
                Frame::Listen { classes } => {
                    engine.set_classes(listener, classes);
                    continue;
                }
                Frame::Promoted { .. } => {
                    replication.note_answer(number, Answer::Promoted);
                    continue;
                }
                Frame::Refused(why) => {
                    replication.note_answer(number, Answer::Refused(format!("the replica says: {why}")));
                    continue;
                }
                other => return Err(unexpected(&other)),
            };
            let last = engine.store().map_or(Index(0), |store| store.log().last());
            if written.max(synced).max(applied) > last {
                return Err(Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the replica acknowledges what there is not: the log ends with {last}"),
                ));
            }
            let mut hold = hold.lock().unwrap_or_else(PoisonError::into_inner);
            // A replica that loses what it has not synced asks for it again.
            let through = synced.max(hold.after());
            hold.advance(through);
            drop(hold);
            engine.replication.note_downstream(number, |replica| {
                (replica.written, replica.synced, replica.applied) = (written, synced, applied);
                let now = Instant::now();
                replica.acknowledged = now;
                replica.marks.reach(applied);
                // The thread that sends may be busy with what is far behind this.
                replica.marks.note(last, now);
            });
            engine.on_acknowledged();
            if !std::mem::replace(&mut is_known, true) {
                engine.look_at_replicas();
            }
        }
        if looked.elapsed() >= HEARTBEAT
            && let Some(store) = engine.store()
        {
            looked = Instant::now();
            if let Some(why) = replication.keeps_too_much(&store, hold) {
                return Err(Error::other(format!("the replica is {why}: it gets a copy when it comes back")));
            }
        }
        if incoming.silence() > replication.timeout() {
            return Err(Error::new(io::ErrorKind::TimedOut, "the replica acknowledges nothing"));
        }
        incoming.receive()?;
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the error of a connection on which something else came than what was asked for.
pub fn unexpected(frame: &Frame<'_>) -> Error {
    Error::new(io::ErrorKind::InvalidData, format!("a frame of kind {} that nobody asked for", frame.kind()))
}
