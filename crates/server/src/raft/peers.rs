//! The way to another member: a thread that connects, and sends what is to be told.

use crate::raft::posts::Posts;
use crate::raft::{Place, Raft, lock};
use crate::remote::{Remote, error_in};
use crate::socket::Socket;
use crate::tls::not_configured;
use haypile_raft::{Loader, Outgoing};
use haypile_resp::Reply;
use std::collections::VecDeque;
use std::io::{self, Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The word of REPLCONF with which a member's connection begins. Redis refuses it.
pub const MEMBER: &str = "haypile-member";

/// Messages that may wait for one member. Raft sends again what is lost.
const QUEUE_MAX: usize = 4096;

/// The longest time to connect, of an answer, and of a piece that is sent.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The pause after an attempt that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The time between two looks whether a connection over which nothing is sent has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of messages that are gathered before they are sent.
const SEND_BYTES: usize = 256 << 10;

/// The capacity above which the buffer is not kept.
const KEPT_BYTES: usize = 4 << 20;

#[derive(Default)]
struct Queue {
    messages: VecDeque<Outgoing>,
    /// Clients have published something.
    has_posts: bool,
    is_connected: bool,
    closing: bool,
}

/// A member other than this one.
pub struct Peer {
    pub id: u64,
    pub address: String,
    /// The configuration has it: else it has only named itself.
    is_member: AtomicBool,
    queue: Mutex<Queue>,
    filled: Condvar,
}

impl Peer {
    pub fn new(id: u64, address: &str) -> Peer {
        let (is_member, queue, filled) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        Peer { id, address: address.to_owned(), is_member, queue, filled }
    }

    pub fn set_member(&self, is_member: bool) {
        self.is_member.store(is_member, Ordering::Relaxed);
    }

    pub fn is_member(&self) -> bool {
        self.is_member.load(Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message on its way; false if it is lost.
    pub fn send(&self, message: Outgoing) -> bool {
        let mut queue = self.queue();
        if !queue.is_connected || queue.messages.len() >= QUEUE_MAX {
            return false;
        }
        queue.messages.push_back(message);
        self.filled.notify_one();
        true
    }

    /// Clients have published something.
    fn on_post(&self) {
        let mut queue = self.queue();
        if !std::mem::replace(&mut queue.has_posts, true) {
            self.filled.notify_one();
        }
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.queue().closing = true;
        self.filled.notify_one();
    }

    /// Sets whether there is a connection. Nothing waits for the next one.
    fn set_connected(&self, is_connected: bool) {
        let mut queue = self.queue();
        queue.messages.clear();
        queue.is_connected = is_connected;
    }

    /// Waits so long for something to send, and takes the messages, which may be none; None at the end.
    fn take(&self, wait: Duration) -> Option<VecDeque<Outgoing>> {
        let mut queue = self.queue();
        if queue.messages.is_empty() && !queue.has_posts && !queue.closing {
            queue = self.filled.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.has_posts = false;
        (!queue.closing).then(|| std::mem::take(&mut queue.messages))
    }

    /// Waits a while; false at the end.
    fn pause(&self, pause: Duration) -> bool {
        let queue = self.queue();
        let (queue, _) = self.filled.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner);
        !queue.closing
    }
}

/// Connects to a member and sends, again and again; to the end of the server.
pub fn run(raft: &Raft, peer: &Arc<Peer>) {
    let mut told = false;
    loop {
        let sent = connect(raft, peer).and_then(|socket| {
            let _kept = raft.keep(&socket);
            tracing::info!("connected to member {} at {}", peer.id, peer.address);
            told = false;
            peer.set_connected(true);
            send_all(raft, peer, &socket)
        });
        peer.set_connected(false);
        raft.inbox.on_lost(peer.id);
        match sent {
            Ok(()) => return,
            Err(error) if !std::mem::replace(&mut told, true) => {
                tracing::warn!("member {} at {} cannot be reached: {error}", peer.id, peer.address);
            }
            Err(_) => {}
        }
        if !peer.pause(PAUSE) {
            return;
        }
    }
}

/// Returns host and port of an address.
///
/// # Errors
/// The address is not host:port.
pub fn address_of(address: &str) -> io::Result<(&str, u16)> {
    let wrong = || Error::new(ErrorKind::InvalidInput, format!("{address} is not host:port"));
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port.parse().map_err(|_| wrong())?))
}

impl Raft {
    /// Connects to another member, and logs in there; each reply from then on may take as long as both together.
    ///
    /// # Errors
    /// The member cannot be reached within this time, or is not trusted, or refuses the password.
    pub fn connect_to(&self, address: &str, timeout: Duration) -> io::Result<Remote> {
        let until = Instant::now() + timeout;
        let config = self.engine.settings.config();
        let (host, port) = address_of(address)?;
        let tls = if config.tls.cluster { Some(self.tls.client().ok_or_else(not_configured)?) } else { None };
        let mut remote = Remote::connect_from(&config.replication.source_address, host, port, timeout, tls)?;
        remote.set_timeout(until.saturating_duration_since(Instant::now()));
        remote.log_in(&config)?;
        remote.set_timeout(timeout);
        Ok(remote)
    }

    /// Asks the server at an address, to which it connects for that; returns the connection, too.
    ///
    /// # Errors
    /// All together takes longer than `within`, or fails as of `connect_to`.
    pub fn ask(&self, address: &str, words: &[&[u8]], within: Duration) -> io::Result<(Remote, Reply)> {
        let until = Instant::now() + within;
        let mut remote = self.connect_to(address, within)?;
        remote.set_timeout(until.saturating_duration_since(Instant::now()));
        let reply = remote.call(words)?;
        Ok((remote, reply))
    }
}

fn connect(raft: &Raft, peer: &Peer) -> io::Result<Socket> {
    let place = lock(&raft.member).clone().ok_or_else(|| Error::other("this server is in no group"))?;
    let Place { options, group, reads } = &*place;
    let mut remote = raft.connect_to(&peer.address, ANSWER_MAX)?;
    let group = group.to_string();
    let (from, to) = (options.id.to_string(), peer.id.to_string());
    let own = raft.own_address();
    let words = [MEMBER, &group, &from, &to, &own, reads].map(str::as_bytes);
    let words = [&[&b"REPLCONF"[..]], &words[..]].concat();
    if let Some(why) = error_in(&remote.call(&words)?) {
        return Err(Error::other(format!("it answers: {why}")));
    }
    Ok(remote.into_parts().0)
}

fn send_all(raft: &Raft, peer: &Arc<Peer>, socket: &Socket) -> io::Result<()> {
    let (mut buffer, mut loader, mut version) = (Vec::new(), Loader::default(), 0);
    let of_posts = peer.clone();
    let mut posts = Posts::begin(&raft.engine, Box::new(move || of_posts.on_post()));
    let mut looked = Instant::now();
    while let Some(messages) = peer.take(posts.pause(LOOK)) {
        // A follower has nothing to send for long, and then a request for a vote, which nobody repeats.
        if messages.is_empty() && looked.elapsed() >= LOOK {
            looked = Instant::now();
            if socket.has_ended() {
                return Err(Error::new(ErrorKind::UnexpectedEof, "it has closed the connection"));
            }
        }
        for message in messages {
            let now = raft.engine.store_version();
            let Some(store) = raft.engine.store() else { continue };
            if std::mem::replace(&mut version, now) != now {
                loader = Loader::default();
            }
            let mut broken = Ok(());
            let loaded = loader.load(store.log(), message, &mut |envelope| {
                envelope.encode(&mut buffer);
                if buffer.len() >= SEND_BYTES {
                    broken = socket.write_all(&buffer);
                    buffer.clear();
                }
                if broken.is_ok() { Ok(()) } else { Err(Error::other("the connection broke")) }
            });
            drop(store);
            broken?;
            if let Err(error) = loaded {
                tracing::debug!("a message to member {} is lost: {error}", peer.id);
                raft.inbox.on_lost(peer.id);
            }
        }
        posts.encode(peer.is_member(), &mut buffer);
        if !buffer.is_empty() {
            socket.write_all(&buffer)?;
            buffer.clear();
        }
        if buffer.capacity() > KEPT_BYTES {
            buffer = Vec::new();
        }
    }
    Ok(())
}
