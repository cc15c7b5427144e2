//! etcd 3.4 as a control: a system that is known to be linearizable, driven over its gateway for JSON.
//!
//! Registers and pairs are etcd's own puts, ranges and transactions. All else is read, changed here and put back by a
//! transaction that asks whether the keys are as they were read.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::http::Http;
use crate::raft_chaos::memory::apply;
use crate::raft_chaos::operation::{Answer, Kind, Object, Operation, Outcome, Session};
use crate::raft_chaos::system::{Ability, Member, REPLY_MAX, Start, System, connect};

/// How often a change is tried again when somebody else was faster.
const TRIES: usize = 8;
/// The longest wait for an answer about the group, which needs no quorum.
const STATUS_MAX: Duration = Duration::from_millis(700);

/// Arguments of every node: elections soon, and snapshots often.
const ARGUMENTS: [&str; 6] = [
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--snapshot-count=300",
    "--initial-cluster-token=chaos",
    "--logger=zap",
    "--log-outputs=stderr",
];

pub struct Etcd {
    /// Nodes answer reads by what they have, without a quorum: that must be found not to be linearizable.
    pub serializable: bool,
}

impl System for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn can(&self, ability: Ability) -> bool {
        matches!(ability, Ability::Leads | Ability::Transfer | Ability::Members | Ability::FullDisk)
    }

    fn command(&self, start: &Start<'_>) -> Vec<String> {
        let node = start.node;
        let client = format!("http://{}:{}", node.ip, node.client_port);
        let all: Vec<_> =
            start.members.iter().map(|member| format!("{}={}", name(*member), peer_url(*member))).collect();
        let state = if start.joins { "existing" } else { "new" };
        let own = [
            ("name", name(node)),
            ("data-dir", start.dir.display().to_string()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer_url(node)),
            ("initial-advertise-peer-urls", peer_url(node)),
            ("initial-cluster", all.join(",")),
            ("initial-cluster-state", state.to_string()),
        ];
        let words = std::iter::once("etcd".to_string()).chain(ARGUMENTS.iter().map(|word| word.to_string()));
        words.chain(own.into_iter().map(|(option, value)| format!("--{option}={value}"))).collect()
    }

    fn session(&self, members: &[Member], first: usize, reply_max: Duration) -> Box<dyn Session> {
        Box::new(EtcdSession {
            members: members.to_vec(),
            at: first,
            reply_max,
            serializable: self.serializable,
            http: None,
        })
    }

    fn leads(&self, node: Member) -> Option<u64> {
        let status = ask(node, "/v3/maintenance/status", &json!({}), STATUS_MAX).ok()?;
        (status["leader"] == status["header"]["member_id"]).then(|| text(&status["raftTerm"]).parse().ok()).flatten()
    }

    fn transfer(&self, leader: Member, to: Member) -> Result<()> {
        let id = member_id(leader, to)?.context("the other node is a member")?;
        ask(leader, "/v3/maintenance/transfer-leadership", &json!({ "targetID": id }), REPLY_MAX).map(drop)
    }

    fn remove(&self, asked: Member, node: Member) -> Result<()> {
        let Some(id) = member_id(asked, node)? else { return Ok(()) };
        ask(asked, "/v3/cluster/member/remove", &json!({ "ID": id }), REPLY_MAX).map(drop)
    }

    fn add(&self, asked: Member, node: Member) -> Result<()> {
        if member_id(asked, node)?.is_some() {
            return Ok(());
        }
        ask(asked, "/v3/cluster/member/add", &json!({ "peerURLs": [peer_url(node)] }), REPLY_MAX).map(drop)
    }
}

fn name(member: Member) -> String {
    format!("node{}", member.number)
}

fn peer_url(member: Member) -> String {
    format!("http://{}:{}", member.ip, member.peer_port)
}

/// Asks a node over a connection of its own.
fn ask(node: Member, path: &str, body: &Value, wait_max: Duration) -> Result<Value> {
    let address = node.client_address();
    let mut http = Http::new(connect(address, wait_max)?, address);
    let (status, body) = http.post(path, &body.to_string())?;
    ensure!(status == 200, "{path} was answered by {status}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).context("an answer in JSON")
}

/// Returns the id that a node has in the group; None if it is no member. The list of members is that of the node which
/// is asked and may be old, so a linearizable read comes first: the node has applied all changes then.
fn member_id(asked: Member, node: Member) -> Result<Option<String>> {
    ask(asked, "/v3/kv/range", &json!({ "key": encode("any") }), REPLY_MAX)?;
    let all = ask(asked, "/v3/cluster/member/list", &json!({}), STATUS_MAX)?;
    let members = all["members"].as_array().context("a list of members")?;
    let url = peer_url(node);
    let found = members.iter().find(|member| member["peerURLs"][0] == url.as_str());
    Ok(found.map(|member| text(&member["ID"]).to_string()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

struct EtcdSession {
    members: Vec<Member>,
    at: usize,
    reply_max: Duration,
    serializable: bool,
    http: Option<Http>,
}

/// The reason why a request has no answer.
enum Fault {
    /// The request was not sent.
    Unsent(String),
    /// The request was sent, and the answer is an error or none.
    Unanswered(String),
    /// The answer makes no sense.
    Nonsense(String),
}

impl Fault {
    /// Returns the outcome of an operation whose request had this fault; one that may not have changed anything failed.
    fn outcome(self, may_have_changed: bool) -> Outcome {
        match self {
            Fault::Unanswered(text) if may_have_changed => Outcome::Unknown(text),
            Fault::Unsent(text) | Fault::Unanswered(text) => Outcome::Failed(text),
            Fault::Nonsense(text) => Outcome::Wrong(text),
        }
    }
}

/// A key as it was read.
struct Held {
    /// The revision at which the key was written; 0 for a key that is missing.
    revision: String,
    numbers: Vec<i64>,
}

impl Session for EtcdSession {
    fn call(&mut self, object: Object, operation: &Operation) -> Outcome {
        let keys = object.keys();
        let done = match operation {
            Operation::Read if object.kind == Kind::Register => self.range(&keys[0], object),
            Operation::Write(value) => self.put(&keys[0], *value),
            Operation::Swap { old, new } => self.swap(&keys[0], *old, *new),
            Operation::Both(first, second) => self.put_both(&keys, [*first, *second]),
            _ => self.change(object, &keys, operation),
        };
        match done {
            Ok(outcome) => outcome,
            Err(fault) => fault.outcome(!operation.is_read()),
        }
    }
}

impl EtcdSession {
    fn post(&mut self, path: &str, body: &Value) -> Result<Value, Fault> {
        let address = self.members[self.at % self.members.len()].client_address();
        let http = match &mut self.http {
            Some(http) => http,
            none => match connect(address, self.reply_max) {
                Ok(stream) => none.insert(Http::new(stream, address)),
                Err(error) => {
                    self.at += 1;
                    return Err(Fault::Unsent(error.to_string()));
                }
            },
        };
        let answer = http.post(path, &body.to_string());
        let fault = match answer {
            Ok((200, body)) => {
                return serde_json::from_slice(&body).map_err(|error| Fault::Nonsense(error.to_string()));
            }
            Ok((status, body)) => Fault::Unanswered(format!("{status}: {}", String::from_utf8_lossy(&body))),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Fault::Nonsense(error.to_string()),
            Err(error) => Fault::Unanswered(error.to_string()),
        };
        (self.http, self.at) = (None, self.at + 1);
        Err(fault)
    }

    fn range(&mut self, key: &str, object: Object) -> Result<Outcome, Fault> {
        let answer = self.post("/v3/kv/range", &json!({ "key": encode(key), "serializable": self.serializable }))?;
        let held = held(&answer)?;
        Ok(Outcome::Done(state(object.kind, &[held])))
    }

    fn put(&mut self, key: &str, value: i64) -> Result<Outcome, Fault> {
        self.post("/v3/kv/put", &json!({ "key": encode(key), "value": encode(&value.to_string()) }))?;
        Ok(Outcome::numbers([]))
    }

    fn put_both(&mut self, keys: &[String], values: [i64; 2]) -> Result<Outcome, Fault> {
        let puts: Vec<Value> = keys.iter().zip(values).map(|(key, value)| put_of(key, &[value])).collect();
        self.post("/v3/kv/txn", &json!({ "success": puts }))?;
        Ok(Outcome::numbers([]))
    }

    fn swap(&mut self, key: &str, old: i64, new: i64) -> Result<Outcome, Fault> {
        let compare = match old {
            0 => json!({ "key": encode(key), "target": "CREATE", "create_revision": "0" }),
            _ => json!({ "key": encode(key), "target": "VALUE", "value": encode(&old.to_string()) }),
        };
        let body = json!({ "compare": [compare], "success": [put_of(key, &[new])], "failure": [range_of(key, false)] });
        let answer = self.post("/v3/kv/txn", &body)?;
        if answer["succeeded"] == true {
            return Ok(Outcome::numbers([old]));
        }
        let held = held(&answer["responses"][0]["response_range"])?;
        Ok(Outcome::Done(state(Kind::Register, &[held])))
    }

    /// Reads an object, carries the operation out here, and puts back what it changes if nobody was faster.
    fn change(&mut self, object: Object, keys: &[String], operation: &Operation) -> Result<Outcome, Fault> {
        for _ in 0..TRIES {
            let ranges: Vec<Value> = keys.iter().map(|key| range_of(key, self.serializable)).collect();
            // A transaction that only reads changes nothing, whatever the operation.
            let answer = match self.post("/v3/kv/txn", &json!({ "success": ranges })) {
                Err(Fault::Unanswered(text)) => return Err(Fault::Unsent(text)),
                answer => answer?,
            };
            let parts = (0..keys.len()).map(|part| held(&answer["responses"][part]["response_range"]));
            let held = parts.collect::<Result<Vec<_>, _>>()?;
            let before = state(object.kind, &held);
            let mut after = before.clone();
            let outcome = apply(&mut after, operation);
            if operation.is_read() {
                return Ok(outcome);
            }
            let compare: Vec<Value> =
                keys.iter().zip(&held).map(|(key, held)| unchanged(key, &held.revision)).collect();
            let (before, after) = (lists(object.kind, before), lists(object.kind, after));
            let changed = (0..keys.len()).filter(|&part| before[part] != after[part]);
            let puts: Vec<Value> = changed.map(|part| put_of(&keys[part], &after[part])).collect();
            let answer = self.post("/v3/kv/txn", &json!({ "compare": compare, "success": puts }))?;
            if answer["succeeded"] == true {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Failed("others were faster".into()))
    }
}

fn encode(text: &str) -> String {
    BASE64.encode(text)
}

fn range_of(key: &str, serializable: bool) -> Value {
    json!({ "request_range": { "key": encode(key), "serializable": serializable } })
}

fn put_of(key: &str, numbers: &[i64]) -> Value {
    let words: Vec<String> = numbers.iter().map(i64::to_string).collect();
    json!({ "request_put": { "key": encode(key), "value": encode(&words.join(" ")) } })
}

fn unchanged(key: &str, revision: &str) -> Value {
    json!({ "key": encode(key), "target": "MOD", "mod_revision": revision })
}

/// Reads the answer of a range over one key.
fn held(range: &Value) -> Result<Held, Fault> {
    let Some(pair) = range["kvs"].get(0) else {
        return Ok(Held { revision: "0".into(), numbers: Vec::new() });
    };
    let numbers = || -> Option<Vec<i64>> {
        let value = String::from_utf8(BASE64.decode(text(&pair["value"])).ok()?).ok()?;
        value.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let numbers = numbers().ok_or_else(|| Fault::Nonsense(format!("a value that nobody writes: {pair}")))?;
    Ok(Held { revision: text(&pair["mod_revision"]).to_string(), numbers })
}

/// Returns an object's state, of what its keys hold.
fn state(kind: Kind, held: &[Held]) -> Answer {
    let first = |held: &Held| held.numbers.first().copied().unwrap_or(0);
    match kind {
        Kind::Register | Kind::Counter => vec![vec![first(&held[0])]],
        Kind::Pair => vec![held.iter().map(first).collect()],
        Kind::List | Kind::Sorted | Kind::Family => held.iter().map(|held| held.numbers.clone()).collect(),
    }
}

/// Returns what an object's keys hold, of its state.
fn lists(kind: Kind, state: Answer) -> Vec<Vec<i64>> {
    match kind {
        Kind::Pair => state.into_iter().flatten().map(|value| vec![value]).collect(),
        _ => state,
    }
}
