//! A client's connection whose bytes go on to the leader of this server's group, and the leader's to the client, until
//! either of them ends it or another member leads: `raft-follower-proxy`.
//!
//! Nothing is read before what was read last has been sent, and nothing is kept beside that. Whether the leader has run
//! what it was sent when the connection ends is unknown, as it is to any client whose connection breaks.

use crate::event_loop::EventLoop;
use crate::event_loop::connection::Connection;
use crate::event_loop::rest::Rest;
use crate::raft::Raft;
use crate::remote::error_in;
use crate::socket::Socket;
use crate::stream::{Reader, Writer, halves_of};
use haypile_engine::{Leader, PROXY};
use socket2::TcpKeepalive;
use std::future::{pending, poll_fn};
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::sync::Semaphore;

/// The time for a connection to the leader, and for its answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The longest time that a client waits for its connection, and for those before it.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Probes of a connection with a leader that says nothing: its machine may be gone.
const ALIVE_AFTER: Duration = Duration::from_secs(10);
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_RETRIES: u32 = 3;

/// Bytes after which others of the event loop have their turn.
const BYTES_AT_ONCE: usize = 256 << 10;

/// Clients that are connected to the leader at once; the others wait.
static CONNECTS: Semaphore = Semaphore::const_new(32);

/// Whether a connection that leaves its event loop with these words goes to the leader.
pub fn goes_to_leader(words: &[Vec<u8>]) -> bool {
    words.first().is_some_and(|word| word == PROXY.as_bytes())
}

/// Hands a connection on to its end. `rest` was read and has not run; `words` say where the leader is and what the
/// client has said before.
pub async fn hand_on(
    event_loop: &EventLoop,
    connection: &Connection,
    reader: &mut Reader,
    rest: Rest,
    words: Vec<Vec<u8>>,
) {
    let address = String::from_utf8_lossy(&words[1]).into_owned();
    let connected = tokio::select! {
        connected = tokio::time::timeout(WAIT_MAX, connect(&event_loop.raft, words)) => connected,
        () = no_longer_leads(&event_loop.raft, &address) => Ok(Err(Refused::from(Error::other("another member leads")))),
        () = poll_fn(|_| connection.poll_lost()) => return,
    };
    let (mut up_reader, up_writer) = match connected.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut).into())) {
        Ok(halves) => halves,
        Err(Refused(line)) => {
            tracing::debug!("client {} does not come to the leader at {address}: {line}", connection.id);
            // The client may have gone.
            let _ = send(connection.writer(), format!("-{}\r\n", line.replace(['\r', '\n'], " ")).as_bytes()).await;
            return;
        }
    };
    let _counted = event_loop.engine.group.count_proxied();
    let writer = connection.writer();
    let to_leader = async {
        send(&up_writer, &rest).await?;
        drop(rest);
        connection.show_input(event_loop, &Rest::default());
        copy(event_loop, reader, &up_writer).await?;
        // A client that has only closed its own direction still gets its replies.
        up_writer.finish();
        pending::<io::Result<()>>().await
    };
    let to_client = copy(event_loop, &mut up_reader, writer);
    let ended = tokio::select! {
        ended = to_leader => ended,
        ended = to_client => ended,
        () = no_longer_leads(&event_loop.raft, &address) => Ok(()),
        () = poll_fn(|_| connection.poll_lost()) => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!("the connection of client {} with the leader at {address} has ended: {error}", connection.id);
    }
    up_writer.abort();
}

/// Waits until the member at this address leads no more, as far as this server knows.
async fn no_longer_leads(raft: &Raft, address: &str) {
    let mut changes = raft.leader_changes();
    let leads = || match raft.leader() {
        Leader::At(now) => now == address,
        // The member may lead still: it says so itself if it does not.
        Leader::Unknown => true,
        Leader::Here => false,
    };
    while leads() && changes.changed().await.is_ok() {}
}

/// The error, without its mark, with which a client hears that it does not come to the leader.
struct Refused(String);

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused(format!("CLUSTERDOWN The leader cannot be reached: {error}"))
    }
}

/// Connects to the leader, on behalf of the client.
async fn connect(raft: &Arc<Raft>, words: Vec<Vec<u8>>) -> Result<(Reader, Writer), Refused> {
    let one_of_a_few = CONNECTS.acquire().await.map_err(Error::other)?;
    let raft = raft.clone();
    let connects = move || {
        let _until_it_is_there = one_of_a_few;
        connect_blocking(&raft, &words)
    };
    let socket = tokio::task::spawn_blocking(connects).await.map_err(Error::other)??;
    Ok(halves_of(socket)?)
}

fn connect_blocking(raft: &Raft, words: &[Vec<u8>]) -> Result<Socket, Refused> {
    let [proxy, address, told @ ..] = words else { unreachable!("the engine makes these words") };
    let mut remote = raft.connect_to(&String::from_utf8_lossy(address), CONNECT_MAX)?;
    let words: Vec<&[u8]> = [&b"REPLCONF"[..], proxy].into_iter().chain(told.iter().map(Vec::as_slice)).collect();
    if let Some(why) = error_in(&remote.call(&words)?) {
        return Err(Refused(why));
    }
    // Nothing comes behind the answer before the client has said something.
    let socket = remote.into_parts().0;
    let of = socket2::SockRef::from(socket.tcp());
    let alive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(ALIVE_RETRIES);
    of.set_tcp_keepalive(&alive)?;
    of.set_tcp_user_timeout(Some(ALIVE_AFTER + ALIVE_RETRIES * ALIVE_EVERY))?;
    Ok(socket)
}

/// Copies what comes, to its end.
async fn copy(event_loop: &EventLoop, from: &mut Reader, to: &Writer) -> io::Result<()> {
    let mut bytes = 0;
    while let Some((read, rest)) = poll_fn(|cx| poll_copy(cx, event_loop, from, to)).await? {
        send(to, &rest).await?;
        if to.is_worn_out() {
            return Err(Error::other("its keys have encrypted as much as they may"));
        }
        bytes += read;
        if bytes >= BYTES_AT_ONCE {
            bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Reads and writes some bytes; returns how many, and those that the other side does not take now; None at the end.
fn poll_copy(
    cx: &mut Context<'_>,
    event_loop: &EventLoop,
    from: &mut Reader,
    to: &Writer,
) -> Poll<io::Result<Option<(usize, Vec<u8>)>>> {
    let mut scratch = event_loop.scratch.borrow_mut();
    let mut buffer = ReadBuf::new(&mut scratch);
    ready!(from.poll_read(cx, &mut buffer))?;
    let read = buffer.filled();
    if read.is_empty() {
        return Poll::Ready(Ok(None));
    }
    let written = match to.try_write(read) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        written => written?,
    };
    Poll::Ready(Ok(Some((read.len(), read[written..].to_vec()))))
}

/// Sends bytes, and what was encrypted and has not left.
async fn send(to: &Writer, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    loop {
        let written = if left.is_empty() { to.flush().map(|()| 0) } else { to.try_write(left) };
        match written {
            Err(error) if error.kind() == ErrorKind::WouldBlock => to.writable().await?,
            written => left = &left[written?..],
        }
        if left.is_empty() && to.is_flushed() {
            return Ok(());
        }
    }
}
