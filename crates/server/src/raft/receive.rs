//! The connection of another member: a thread that takes its messages.

use crate::raft::identity::unlike;
use crate::raft::{Place, Raft, lock, restored};
use crate::socket::Socket;
use haypile_raft::{Envelope, Incoming, Post};
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most connections of members. They do not count as clients.
const CONNECTIONS_MAX: usize = 64;

/// The longest time for the answer to a request.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The longest time for the group to confirm that this member leads, and the time between two looks.
const PROOF_MAX: Duration = Duration::from_secs(1);
const PROOF_LOOK: Duration = Duration::from_millis(5);

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// The capacity above which the buffer of a long message is not kept.
const KEPT_BYTES: usize = 4 << 20;

impl Raft {
    /// Serves the connection of a member, whose request has these words; `read` has come behind them. Never waits.
    pub fn serve(self: &Arc<Self>, socket: Socket, words: Vec<Vec<u8>>, read: Vec<u8>) {
        let mut running = self.running();
        running.receivers.retain(|thread| !thread.is_finished());
        running.others.retain(|thread| !thread.is_finished());
        if running.receivers.len() >= CONNECTIONS_MAX {
            tracing::warn!("a member is not served: there are {CONNECTIONS_MAX} connections of members already");
            return socket.shutdown();
        }
        let (raft, of_thread) = (self.clone(), socket.clone());
        let serve = move || {
            if let Err(error) = raft.serve_here(&of_thread, &words, read) {
                tracing::info!("the connection of a member has ended: {error}");
            }
        };
        match std::thread::Builder::new().name("raft-from".into()).spawn(serve) {
            Ok(thread) => running.receivers.push(thread),
            Err(error) => {
                tracing::warn!("a member is not served: {error}");
                socket.shutdown();
            }
        }
    }

    fn serve_here(&self, socket: &Socket, words: &[Vec<u8>], read: Vec<u8>) -> io::Result<()> {
        let kept = self.keep(socket);
        socket.tcp().set_nonblocking(false)?;
        socket.set_write_timeout(Some(ANSWER_MAX))?;
        socket.set_read_timeout(None)?;
        socket2::SockRef::from(socket.tcp()).set_keepalive(true)?;
        if restored::is_question(words) {
            return socket.write_all(self.answer_restored(words).as_bytes());
        }
        let from = match self.sender(words) {
            Ok((from, address)) => {
                self.hear_of(from, &address);
                from
            }
            Err(why) => {
                // The other one asks again and again, and says so in its own log.
                tracing::debug!("a member is refused: {why}");
                return socket.write_all(format!("-ERR {why}\r\n").as_bytes());
            }
        };
        socket.write_all(b"+OK\r\n")?;
        // The connection that the member had before is of no more use.
        let before = self.running().from.insert(from, kept.1);
        if let Some(before) = before.and_then(|before| self.running().sockets.remove(&before)) {
            before.shutdown();
        }
        let ended = self.take(socket, read, from);
        let is_newest = self.running().from.get(&from) == Some(&kept.1);
        if is_newest {
            self.forget(from);
        }
        ended
    }

    /// Answers a server that begins with restored data.
    fn answer_restored(&self, words: &[Vec<u8>]) -> String {
        let answered = match (self.engine.group.facts(), self.engine.store_arc()) {
            (Some(facts), Some(store)) if self.is_member() => {
                restored::answer(words, &facts, store.log(), &|| self.proves_lead())
            }
            _ => Err("this server is in no group, or its data are not open".into()),
        };
        match answered {
            Ok(answer) => format!("+{answer}\r\n"),
            Err(why) => format!("-ERR {why}\r\n"),
        }
    }

    /// Has the group confirm that this member leads now.
    fn proves_lead(&self) -> bool {
        let (Some(round), until) = (self.join_round(), Instant::now() + PROOF_MAX) else { return false };
        while self.confirmed() < round {
            if Instant::now() >= until || self.inbox.wait_for_close(PROOF_LOOK) {
                return false;
            }
        }
        true
    }

    /// Returns the member that a request is from, and the address that it names.
    ///
    /// # Errors
    /// A text for people: this server is not in its group, or not the member that it is looking for.
    fn sender(&self, words: &[Vec<u8>]) -> Result<(u64, String), String> {
        let place = lock(&self.member).clone().ok_or("this server is in no group")?;
        let Place { options, group: own, reads: own_reads } = &*place;
        let texts: Option<Vec<&str>> = words.iter().map(|word| std::str::from_utf8(word).ok()).collect();
        let Some([_, group, from, to, address, reads]) = texts.as_deref() else {
            return Err("the request is none of a member".into());
        };
        if *group != own.to_string() {
            return Err("this server is in another group: 'raft-peers' has to be the same on all members".into());
        }
        if *to != options.id.to_string() {
            return Err(format!("this server is member {} of the group", options.id));
        }
        if reads != own_reads {
            return Err(unlike(reads, &format!("member {}", options.id), own_reads));
        }
        // Members that came while this one was away are none that it knows.
        let from = from.parse().ok().filter(|from| *from != options.id && *from > 0);
        Ok((from.ok_or("it names no other member")?, (*address).to_owned()))
    }

    /// Takes the messages that come.
    fn take(&self, socket: &Socket, read: Vec<u8>, from: u64) -> io::Result<()> {
        // `buffer[..filled]` has come and is not taken.
        let (mut filled, mut buffer) = (read.len(), read);
        // When the member was last told that bytes come.
        let mut told = Instant::now();
        loop {
            let mut taken = 0;
            while let Some((incoming, bytes)) =
                Incoming::decode(&buffer[taken..filled]).map_err(|error| Error::new(ErrorKind::InvalidData, error))?
            {
                taken += bytes;
                let envelope = match incoming {
                    Incoming::Envelope(envelope) => envelope,
                    Incoming::Post(Post { is_shard, channel, text }) => {
                        // A member that was removed may not know it yet.
                        if lock(&self.peers).get(&from).is_some_and(|peer| peer.is_member()) {
                            self.engine.hear_of_member(is_shard, channel, text);
                        }
                        continue;
                    }
                };
                if envelope.from() != from {
                    return Err(Error::new(ErrorKind::InvalidData, "it speaks for another member"));
                }
                if !self.inbox.put(envelope, bytes) {
                    return Ok(());
                }
            }
            buffer.copy_within(taken..filled, 0);
            filled -= taken;
            if filled == 0 && buffer.len() > KEPT_BYTES {
                buffer = Vec::new();
            }
            if buffer.len() < filled + RECEIVE_BYTES {
                buffer.resize(filled + RECEIVE_BYTES, 0);
            }
            let came = loop {
                match socket.read(&mut buffer[filled..]) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    came => break came?,
                }
            };
            if came == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "it has closed the connection"));
            }
            filled += came;
            // The bytes may be of a message that takes longer than an election timeout to come.
            if told.elapsed() >= self.tick {
                told = Instant::now();
                Envelope::begun_in(&buffer[..filled]).into_iter().for_each(|term| self.inbox.on_bytes_of(from, term));
            }
        }
    }
}
