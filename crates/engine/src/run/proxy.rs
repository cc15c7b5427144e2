//! Clients of a member of a group that does not lead, whose connections go on to the leader: `raft-follower-proxy`.
//!
//! From the first call on that the leader alone runs, the connection's bytes are handed on as they are, both ways. What
//! the client has said before, its user among that, the leader is told in front of them.

use crate::clients::session::Session;
use haypile_commands::Entry;
use haypile_commands::host::Replies;
use haypile_resp::Protocol;

/// The option of REPLCONF by which a member tells the leader for which client a connection is; and the first of the
/// words with which a client's connection leaves its event loop for that.
pub const PROXY: &str = "haypile-proxy";

/// Whether a client's connection can go to the leader: it waits here for nothing, nor is it between MULTI and EXEC.
pub(crate) fn can_go(session: &Session) -> bool {
    let state = &session.state;
    let waits = session.multi.is_some()
        || session.watching.is_some()
        || state.tracker.is_some()
        || state.monitors
        || state.subscriptions.iter().next().is_some();
    !waits && !state.proxied && state.replies == Replies::On
}

/// Returns the words with which a client's connection goes to the leader of a group, at this address. `has_password`:
/// the client has given one, or a certificate.
pub(crate) fn words_of(session: &Session, address: String, group: String, has_password: bool) -> Vec<Vec<u8>> {
    let state = &session.state;
    let flag = |is_set: bool| if is_set { b"yes".to_vec() } else { b"no".to_vec() };
    vec![
        PROXY.into(),
        address.into(),
        group.into(),
        state.user.name().to_vec(),
        state.database.to_string().into(),
        if state.protocol == Protocol::Resp3 { b"3".to_vec() } else { b"2".to_vec() },
        state.names.name.clone(),
        state.names.library_name.clone(),
        state.names.library_version.clone(),
        flag(state.no_evict),
        flag(state.no_touch),
        flag(has_password),
    ]
}

/// Whether a call needs no leader, and those behind it do: a block, and the keys that a client is told of.
pub(crate) fn begins_at_leader(session: &Session, entry: &Entry) -> bool {
    entry.command.begins_at_leader && !session.state.reads_here
}
