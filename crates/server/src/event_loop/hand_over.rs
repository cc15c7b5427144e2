//! A connection that goes from its event loop to threads: its client asks to follow this server, or is another member
//! of its group.

use crate::event_loop::EventLoop;
use crate::event_loop::connection::Connection;
use crate::raft::MEMBER;
use crate::stream::{Reader, reunite};
use haypile_engine::Names;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The time between looks whether the connection is on a list still.
const LOOK: Duration = Duration::from_millis(1);

/// Hands a connection over once nobody else of its event loop has it. `rest` has come behind the request, whose words
/// these are.
pub async fn hand_over(
    event_loop: &EventLoop,
    mut connection: Rc<Connection>,
    reader: Reader,
    rest: &[u8],
    words: Vec<Vec<u8>>,
    names: Arc<Names>,
) {
    let writer = loop {
        match Rc::try_unwrap(connection) {
            Ok(connection) => break connection.into_writer(),
            // A list of this round has it still.
            Err(shared) => connection = shared,
        }
        tokio::time::sleep(LOOK).await;
    };
    match reunite(reader, writer) {
        Some(Ok(socket)) if words.first().is_some_and(|word| word == MEMBER.as_bytes()) => {
            event_loop.raft.serve(socket, words, rest.to_vec());
        }
        Some(Ok(socket)) => event_loop.replication.serve(socket, words, rest.to_vec(), names),
        Some(Err(error)) => tracing::warn!("a replica's connection is lost: {error}"),
        None => tracing::warn!("a replica that connects by the unix socket is not served"),
    }
}
