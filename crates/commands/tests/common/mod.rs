//! A session without an engine, for the commands that ask only their session.

use haypile_acl::{Fresh, User};
use haypile_commands::function::Functions;
use haypile_commands::host::{
    Act, Audience, Channels, ClientFilter, Clients, Clock, Cluster, ClusterFacts, CommandLog, CommandTimes, Config,
    Connection, DebugAccess, Host, InfoSection, LatencyEvent, Library, LoggedCall, Memory, MemoryFacts, Process,
    PubSub, Reload, Replication, Replies, Role, Rows, RunningFunction, Scripts, SessionChange, Shown, Shutdown,
    Statistics, Storage, Tracking, TrackingOptions, Users, Wait,
};
use haypile_commands::{Body, CommandId, Error, Result, Table};
use haypile_resp::{OwnedArgs, Protocol, Reply};
use haypile_store::Txn;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Records what commands did to it.
#[derive(Default)]
pub struct Session {
    pub table: Table,
    pub protocol: Protocol,
    pub name: Vec<u8>,
    pub library: Vec<(Library, Vec<u8>)>,
    pub database: u32,
    /// Needed to be authenticated, with the user `default`.
    pub password: Option<&'static [u8]>,
    /// The user that the client has logged in as.
    pub user: Option<Arc<User>>,
    pub default_user: OnceLock<Arc<User>>,
    pub tracking: Option<TrackingOptions>,
    pub caches_next: bool,
    pub closing: bool,
    /// The master that it was told to follow, or none.
    pub follows: Option<Option<(String, u16)>>,
    pub handed_over: Option<Vec<Vec<u8>>>,
    /// The words that a Redis which is to follow has said of itself.
    pub replica_says: Vec<Vec<u8>>,
    pub wait: Option<Wait>,
    pub in_memory: bool,
    pub is_in_block: bool,
    pub reloads: Vec<Reload>,
    /// The cluster that it is a node of.
    pub cluster: Option<ClusterFacts>,
    /// Whether a backup was asked for.
    pub backs_up: bool,
    pub memory: MemoryFacts,
    pub purged: bool,
    pub debug_access: DebugAccess,
    pub local: bool,
    pub active_expire: Option<bool>,
    pub logged: Vec<u8>,
    pub crashed: Option<String>,
    pub replies: Replies,
    pub channels: BTreeSet<(Channels, Vec<u8>)>,
    /// The filter that was asked for last.
    pub filter: RefCell<Option<ClientFilter>>,
    /// All other acts, in words.
    pub done: Vec<String>,
    pub shutdown: Option<Shutdown>,
    pub slowlog: Vec<LoggedCall>,
    pub events: Vec<LatencyEvent>,
}

impl Session {
    /// Runs a command given as words between spaces; an empty word is `""`.
    pub fn call(&mut self, line: &str) -> Reply {
        let args = args(line);
        let run = match self.table.resolve(args.as_args().into()) {
            Ok(entry) => entry.command.body,
            Err(error) => return error.into_reply(),
        };
        match run {
            Body::Host(run) => run(self, args.as_args().into()).unwrap_or_else(Error::into_reply),
            Body::Act(run) => match run(self, args.as_args().into()) {
                Ok(answer) => answer.acts.into_iter().fold(answer.reply, |reply, act| self.carry_out(act, reply)),
                Err(error) => error.into_reply(),
            },
            _ => panic!("{line}: not a session command"),
        }
    }

    /// Records an act. Returns the reply of its command.
    fn carry_out(&mut self, act: Act, reply: Reply) -> Reply {
        match act {
            Act::Wait(wait) => self.wait = Some(wait),
            Act::Follow(master) => self.follows = Some(master),
            Act::Reload(how) => self.reloads.push(how),
            Act::BeginBackup if self.backs_up => return Reply::error("ERR Background save already in progress"),
            Act::BeginBackup => self.backs_up = true,
            Act::PurgeMemory => self.purged = true,
            Act::SetActiveExpire(is_on) => self.active_expire = Some(is_on),
            Act::LogLine(text) => self.logged = text,
            Act::Crash(why) => self.crashed = Some(why),
            Act::Shutdown(how) => self.shutdown = Some(how),
            Act::AbortShutdown if self.shutdown.take().is_none() => {
                return Reply::error("ERR No shutdown in progress.");
            }
            Act::AbortShutdown => {}
            Act::ResetLog(_) => self.slowlog.clear(),
            Act::ResetLatency(names) => {
                self.events
                    .retain(|event| !names.is_empty() && !names.iter().any(|name| name == event.name.as_bytes()));
            }
            Act::Session(change) => self.change(change),
            act => self.done.push(format!("{act:?}")),
        }
        reply
    }

    fn change(&mut self, change: SessionChange) {
        match change {
            SessionChange::Login(user) => self.user = Some(user),
            SessionChange::Name(name) => self.name = name,
            SessionChange::Library(part, value) => self.library.push((part, value)),
            SessionChange::Protocol(protocol) => self.protocol = protocol,
            SessionChange::Database(index) => self.database = index,
            SessionChange::Replies(replies) => self.replies = replies,
            SessionChange::NoEvict(on) => self.done.push(format!("no-evict {on}")),
            SessionChange::ReadsHere(on) => self.done.push(format!("reads-here {on}")),
            SessionChange::NoTouch(on) => self.done.push(format!("no-touch {on}")),
            SessionChange::Track(options) => self.tracking = options,
            SessionChange::CacheNext => self.caches_next = true,
            SessionChange::Proxied => self.done.push("proxied".to_owned()),
            SessionChange::Monitor => self.done.push("monitor".to_owned()),
            SessionChange::Close => self.closing = true,
            SessionChange::HandOver(words) | SessionChange::Synchronize(words) => self.handed_over = Some(words),
            SessionChange::ReplicaSays(said) => self.replica_says.extend(said),
            SessionChange::Subscribe(kind, name) => {
                assert!(self.channels.insert((kind, name.to_vec())), "a subscription begins once");
            }
            SessionChange::Unsubscribe(kind, name) => {
                assert!(self.channels.remove(&(kind, name.to_vec())), "a subscription ends once");
            }
        }
    }
}

pub fn args(line: &str) -> OwnedArgs {
    let mut args = OwnedArgs::default();
    for word in line.split(' ') {
        args.push(if word == "\"\"" { b"" } else { word.as_bytes() });
    }
    args
}

impl Host for Session {
    fn table(&self) -> &Table {
        &self.table
    }
}

impl Clock for Session {
    fn now_us(&self) -> u64 {
        1_700_000_000_000_042
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = 0xa0_u8.wrapping_add(at as u8));
    }
}

impl Rows for Session {
    fn in_transaction(&mut self, _run: &mut dyn FnMut(&mut Txn) -> Result<Reply>) -> Result<Reply> {
        panic!("there is no data")
    }
}

impl Connection for Session {
    fn client_id(&self) -> u64 {
        7
    }

    fn client_name(&self) -> &[u8] {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn is_local(&self) -> bool {
        self.local
    }

    fn database(&self) -> u32 {
        self.database
    }

    fn databases(&self) -> u32 {
        16
    }

    fn monitors(&self) -> bool {
        false
    }

    fn is_bound_to_channels(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.channels.is_empty()
    }

    fn is_in_block(&self) -> bool {
        self.is_in_block
    }
}

impl Users for Session {
    fn users(&self) -> Arc<haypile_acl::Users> {
        let mut users = haypile_acl::Users::new(self.table.catalog());
        users.put(users.default_user().with_only_password(self.password.unwrap_or_default()));
        Arc::new(users)
    }

    fn user(&self) -> &Arc<User> {
        self.user.as_ref().unwrap_or_else(|| self.default_user.get_or_init(|| self.users().default_user().clone()))
    }

    fn let_in(&self, name: &[u8]) -> Result<Option<Arc<User>>> {
        Ok(self.users().get(name).cloned())
    }

    fn fresh_rights(&self) -> Fresh {
        Fresh::default()
    }

    fn authenticated(&self) -> bool {
        self.password.is_none() || self.user.is_some()
    }

    fn login(&self, name: &[u8], password: &[u8]) -> Result<Option<Arc<User>>> {
        Ok(self.users().get(name).filter(|user| user.accepts(password)).cloned())
    }

    fn check_hashed_bytes(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn denials(&self, _count: usize) -> Vec<haypile_acl::log::Entry> {
        Vec::new()
    }

    fn has_user_file(&self) -> bool {
        false
    }
}

impl Clients for Session {
    fn clients(&self, filter: &ClientFilter) -> Result<String> {
        self.filter.replace(Some(filter.clone()));
        Ok("id=7\n".to_owned())
    }

    fn find_clients(&self, filter: &ClientFilter) -> Vec<u64> {
        self.filter.replace(Some(filter.clone()));
        if filter.address.as_deref() == Some(b"nowhere:1") { Vec::new() } else { vec![8] }
    }
    fn is_blocked(&self, client: u64) -> bool {
        client == 8
    }
}

impl PubSub for Session {
    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>> {
        self.channels.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.as_slice().into()).collect()
    }

    fn subscription_count(&self, kind: Channels) -> usize {
        let is_shard = |of: Channels| of == Channels::Shard;
        self.channels.iter().filter(|(of, _)| is_shard(*of) == is_shard(kind)).count()
    }

    fn is_subscribed(&self, kind: Channels, name: &[u8]) -> bool {
        self.channels.contains(&(kind, name.to_vec()))
    }

    fn audience(&self, kind: Channels, channel: &[u8]) -> Result<Audience> {
        Ok(Audience { count: self.subscribers(kind, channel), ..Audience::default() })
    }

    fn channels(&self, kind: Channels) -> Result<Vec<Arc<[u8]>>> {
        Ok(self.subscriptions(kind))
    }

    fn subscribers(&self, kind: Channels, name: &[u8]) -> usize {
        usize::from(self.channels.contains(&(kind, name.to_vec())))
    }

    fn patterns(&self) -> usize {
        self.subscriptions(Channels::Pattern).len()
    }
}

impl Tracking for Session {
    fn tracking(&self) -> Option<&TrackingOptions> {
        self.tracking.as_ref()
    }

    fn caches_next(&self) -> bool {
        self.caches_next
    }

    fn redirect_is_broken(&self) -> bool {
        false
    }

    fn has_client(&self, id: u64) -> bool {
        id < 10
    }
}

impl Config for Session {
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let known = [("maxmemory", "0"), ("port", "6379")];
        let asked = |name: &str| patterns.contains(&name.as_bytes());
        known
            .iter()
            .filter(|(name, _)| asked(name))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    fn has_config_file(&self) -> bool {
        false
    }
}

impl Memory for Session {
    fn memory(&self) -> MemoryFacts {
        self.memory.clone()
    }

    fn allocator_report(&self) -> String {
        "all well".to_owned()
    }
}

impl Statistics for Session {
    fn logged_calls(&self, _: CommandLog, count: usize) -> Vec<LoggedCall> {
        self.slowlog.iter().take(count).cloned().collect()
    }

    fn logged_count(&self, _: CommandLog) -> usize {
        self.slowlog.len()
    }

    fn latency_events(&self) -> Vec<LatencyEvent> {
        self.events.clone()
    }

    fn command_times(&self, id: CommandId) -> Option<CommandTimes> {
        let name = &self.table.entry(id).full_name;
        ["get", "config|get"]
            .contains(&name.as_str())
            .then(|| CommandTimes { calls: 3, until_us: vec![(1, 2), (33, 3)] })
    }

    fn info_sections(&self) -> &'static [InfoSection] {
        &[
            InfoSection { name: "server", title: "Server", shown: Shown::Always },
            InfoSection { name: "commandstats", title: "Commandstats", shown: Shown::WithAll },
            InfoSection { name: "keyspace", title: "Keyspace", shown: Shown::Always },
            InfoSection { name: "sizes", title: "Sizes", shown: Shown::Never },
        ]
    }

    fn expect_wait(&self) -> Result<()> {
        Ok(())
    }

    fn info(&self, section: &str, out: &mut String) {
        out.push_str(match section {
            "server" => "tcp_port:6379\r\n",
            "commandstats" => "cmdstat_get:calls=1\r\n",
            _ => "",
        });
    }
}

impl Scripts for Session {
    fn has_script(&self, name: &[u8]) -> bool {
        name == b"there"
    }

    fn check_script(&self, text: &[u8]) -> Result<String> {
        if text == b"wrong" { Err(Error::text("ERR wrong script")) } else { Ok("there".to_owned()) }
    }

    fn running_function(&self) -> Option<RunningFunction> {
        let command = vec![b"fcall".to_vec(), b"f".to_vec(), b"0".to_vec()];
        Some(RunningFunction { name: b"f".to_vec(), command, duration_ms: 5 })
    }

    fn functions(&self) -> Functions {
        Functions::default()
    }
}

impl Storage for Session {
    fn has_disk(&self) -> bool {
        !self.in_memory
    }

    fn last_backup_s(&self) -> u64 {
        1_700_000_000
    }
}

impl Replication for Session {
    fn role(&self) -> Role {
        Role::Master { offset: 0, replicas: Vec::new() }
    }

    fn hello(&self) -> Option<Vec<String>> {
        None
    }

    fn led_group(&self) -> Option<String> {
        None
    }
}

impl Process for Session {
    fn debug_access(&self) -> DebugAccess {
        self.debug_access
    }
}

impl Cluster for Session {
    fn cluster(&self) -> Option<ClusterFacts> {
        self.cluster.clone()
    }
}
