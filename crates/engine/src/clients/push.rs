//! Messages that a client is sent unasked, and their place among its replies.

use crate::clients::checks::LIMITED;
use crate::clients::pubsub::{Payload, Sink, encode_head};
use crate::clients::session::{Session, Waiting};
use haypile_resp::{Protocol, write};
use std::sync::Arc;

/// Something that a client is sent unasked.
#[derive(Clone, Copy)]
pub enum Push<'a> {
    /// A message of a channel, whose head is given in RESP2, or a line of MONITOR, which has none.
    Message { head: &'a [u8], payload: &'a Arc<Payload> },
    /// Keys whose values count no more that the client has kept; all keys, if none are named. `is_redirected` says that
    /// another client has read them.
    Invalidation { is_redirected: bool, keys: Option<&'a Arc<Payload>> },
    /// The client that was to be sent its messages has gone.
    RedirectBroken(u64),
}

/// The channel on which a client that speaks RESP2 hears of keys that another one has read.
const INVALIDATIONS: &[u8] = b"__redis__:invalidate";

impl Session {
    /// Appends something, unless a reply is half out, or is under way and may be older: then it follows that. The
    /// record that it depends on was noted before, by `Engine::depend`.
    pub fn push(&mut self, push: Push<'_>, out: &mut impl Sink) {
        match push {
            Push::Message { head, payload } => self.append(head, payload, out),
            Push::Invalidation { is_redirected, keys } => self.push_invalidation(is_redirected, keys, out),
            Push::RedirectBroken(redirect) if self.state.protocol == Protocol::Resp3 => {
                let mut number = Vec::new();
                write::integer(&mut number, redirect as i64);
                self.append(&encode_head(&[b"tracking-redir-broken"]), &Payload::uncounted(number), out);
            }
            Push::RedirectBroken(_) => {}
        }
    }

    fn push_invalidation(&mut self, is_redirected: bool, keys: Option<&Arc<Payload>>, out: &mut impl Sink) {
        let head = match self.state.protocol {
            Protocol::Resp3 => encode_head(&[b"invalidate"]),
            Protocol::Resp2 if is_redirected && !self.state.subscriptions.is_empty() => {
                encode_head(&[b"message", INVALIDATIONS])
            }
            // In RESP2 a push cannot be told from a reply.
            Protocol::Resp2 => return,
        };
        let all = || {
            let mut null = Vec::new();
            write::null(self.state.protocol, &mut null);
            Payload::uncounted(null)
        };
        let keys = keys.cloned().unwrap_or_else(all);
        self.append(&head, &keys, out);
    }

    fn append(&mut self, head: &[u8], payload: &Arc<Payload>, out: &mut impl Sink) {
        let protocol = self.state.protocol;
        if self.checks & LIMITED != 0 {
            self.charge(head.len() + payload.bytes().len());
        }
        match self.holds_pushes() || !self.deferred.is_empty() {
            true => append(head, payload, protocol, &mut self.deferred),
            false => append(head, payload, protocol, out),
        }
    }

    /// Whether pushes have to wait: for the end of a reply that is half out, or for one that may be older than a
    /// message about its keys.
    fn holds_pushes(&self) -> bool {
        let may_be_older = self.state.tracker.is_some() && matches!(self.waiting, Waiting::Here(_) | Waiting::Pool);
        self.is_half_out() || may_be_older
    }

    /// Appends what has waited for the end of a reply, if it has come: to be called after each turn.
    #[inline]
    pub fn push_deferred(&mut self, out: &mut impl Sink) {
        if !self.deferred.is_empty() && !self.holds_pushes() {
            std::mem::take(&mut self.deferred).move_to(out);
        }
    }
}

fn append(head: &[u8], payload: &Arc<Payload>, protocol: Protocol, out: &mut impl Sink) {
    let bytes = out.bytes();
    let start = bytes.len();
    bytes.extend_from_slice(head);
    if protocol == Protocol::Resp3 && bytes.get(start) == Some(&b'*') {
        bytes[start] = b'>';
    }
    match payload.counted {
        Some(_) => out.share(payload),
        None => bytes.extend_from_slice(payload.bytes()),
    }
}

/// The reply of SUBSCRIBE and its relatives for one name has the form of a message, made by the command.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::client_memory::ClientMemory;
    use haypile_resp::Reply;

    #[test]
    fn a_message_is_encoded_as_its_reply_would_be() {
        let reply = Reply::Push(["message", "ch", "text"].map(Reply::bulk).into());
        let head = encode_head(&[b"message", b"ch"]);
        let config = haypile_config::Config::defaults(std::path::Path::new("/"));
        let payload = Payload::bulk(b"text", &Arc::new(ClientMemory::new(1, &config, Arc::default())));
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let (mut ours, mut expected) = (Vec::new(), Vec::new());
            append(&head, &payload, protocol, &mut ours);
            reply.encode(protocol, &mut expected);
            assert_eq!(ours, expected);
        }
    }
}
