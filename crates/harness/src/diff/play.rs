//! Plays a sequence on two servers and says where they first differ.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::compare::{Context as Rules, rule_of, same, same_transaction, scan_page};
use super::dumps::Payloads;
use super::exceptions::{PFMERGE_OF_ONE, SORT_AFTER_A_RANGE_ERROR, exception_for, is_set_of_7_2};
use super::sequence::{CONNECTIONS, Command, Sequence, Step};
use super::{blocking, channels, functions, hyperloglogs, scripts, users};
use crate::client::{Client, Reply, info_field};
use crate::clock::now_ms;
use crate::quoted::{abbreviate, quote_short};
use crate::server::Server;

/// The time after which a server counts as silent.
const SILENCE: Duration = Duration::from_secs(10);
/// Steps between two comparisons of the whole keyspace.
const STEPS_PER_LOOK: usize = 16;
/// More pages than an iteration over the few keys of a case can need.
const PAGES_MAX: usize = 10_000;
const DATABASES: usize = 16;
/// Values of a hundred kilobytes that fill more than one small memtable.
const DISPLACING_VALUES: u32 = 24;
/// The longest wait for a flush: the sequence goes on while a slower one runs.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The two servers, and the counts over all sequences.
pub struct Pair {
    pub(super) theirs: Side,
    pub(super) ours: Side,
    pub commands: u64,
    /// The number of times that each exception explained a difference.
    pub excepted: BTreeMap<&'static str, u64>,
}

/// A difference, in words.
#[derive(Debug)]
pub struct Difference {
    pub step: usize,
    pub text: String,
}

/// One of the two servers.
pub(super) struct Side {
    pub(super) port: u16,
    /// The connection for commands that are no part of a case.
    pub(super) admin: Client,
}

impl Side {
    fn new(port: u16) -> Result<Side> {
        Ok(Side { port, admin: Client::connect(port, SILENCE)? })
    }
}

impl Pair {
    pub fn new(theirs: &Server, ours: &Server) -> Result<Pair> {
        Ok(Pair {
            theirs: Side::new(theirs.port()).context("connecting to the base")?,
            ours: Side::new(ours.port()).context("connecting to the server under test")?,
            commands: 0,
            excepted: BTreeMap::new(),
        })
    }

    /// Plays a sequence from empty servers. An `Err` is a failure of the base or of this program.
    pub fn play(&mut self, sequence: &Sequence) -> Result<Option<Difference>> {
        if channels::is_of_channels(sequence) {
            return channels::play(self, sequence);
        }
        if blocking::is_of_blocking(sequence) {
            return blocking::play(self, sequence);
        }
        match self.prepare(sequence) {
            Ok(()) => {}
            Err(error) => return Ok(Some(Difference { step: 0, text: format!("before the first step: {error:#}") })),
        }
        let connections = (0..CONNECTIONS).map(|_| None).collect();
        let mut game = Game {
            rules: Rules::of(sequence),
            connections,
            payloads: Payloads::default(),
            pair: self,
            has_ended: false,
        };
        for (number, step) in sequence.iter().enumerate() {
            let mut text = game.step(step)?;
            if game.has_ended {
                return Ok(None);
            }
            if text.is_none() && ((number + 1) % STEPS_PER_LOOK == 0 || number + 1 == sequence.len()) {
                text = game.look()?;
            }
            if let Some(text) = text {
                return Ok(Some(Difference { step: number, text }));
            }
        }
        Ok(None)
    }

    /// Empties both servers and resets the settings, scripts and libraries that sequences change.
    fn prepare(&mut self, sequence: &Sequence) -> Result<()> {
        let has = |is: &dyn Fn(&Command) -> bool| {
            sequence.iter().any(|step| matches!(step, Step::Send { commands, .. } if commands.iter().any(is)))
        };
        let configures = has(&|command| command[0].eq_ignore_ascii_case(b"config") && command.len() > 3);
        let needs_loaded = has(&functions::is_about_loaded);
        for (name, side) in [("the base", &mut self.theirs), ("the server under test", &mut self.ours)] {
            users::forget(&mut side.admin).with_context(|| format!("removing users of {name}"))?;
            let mut wanted = vec!["FLUSHALL"];
            if configures {
                wanted.push("CONFIG SET timeout 0 tcp-keepalive 300");
            }
            if needs_loaded {
                wanted.extend(["SCRIPT FLUSH", "FUNCTION FLUSH"]);
            }
            for words in wanted {
                let reply = side.admin.command(words).with_context(|| format!("{words} on {name}"))?;
                ensure!(reply.is_ok(), "{words} on {name} was answered by {reply}");
            }
            if needs_loaded {
                scripts::load_library(&mut side.admin).with_context(|| format!("on {name}"))?;
            }
        }
        Ok(())
    }
}

/// A connection to each server, and the commands that it has queued.
struct Both {
    theirs: Client,
    ours: Client,
    /// The commands queued since MULTI.
    queued: Option<Vec<Command>>,
}

/// One sequence being played.
struct Game<'a> {
    pair: &'a mut Pair,
    connections: Vec<Option<Both>>,
    rules: Rules,
    payloads: Payloads,
    /// Whether nothing that follows can be compared.
    has_ended: bool,
}

impl Game<'_> {
    fn step(&mut self, step: &Step) -> Result<Option<String>> {
        match step {
            Step::Send { connection, commands } => self.send(*connection, commands),
            Step::Scan { connection, command } => self.scan(*connection, command),
            Step::Wait { ms } => {
                // The step is about time itself: deadlines pass on both servers.
                sleep(Duration::from_millis(*ms));
                Ok(None)
            }
            Step::Raw { bytes } => self.raw(bytes),
            Step::Cool => self.cool(),
            // The mark has a meaning only at the beginning.
            Step::Channels | Step::Blocking => Ok(None),
        }
    }

    fn both(&mut self, connection: usize) -> Result<&mut Both> {
        let slot = &mut self.connections[connection];
        if slot.is_none() {
            *slot = Some(Both {
                theirs: Client::connect(self.pair.theirs.port, SILENCE)?,
                ours: Client::connect(self.pair.ours.port, SILENCE)?,
                queued: None,
            });
        }
        Ok(slot.as_mut().expect("it was filled above"))
    }

    fn send(&mut self, connection: usize, commands: &[Command]) -> Result<Option<String>> {
        let filled: Vec<_> = commands.iter().map(|command| self.payloads.fill(command)).collect();
        let both = self.both(connection)?;
        for [theirs, ours] in &filled {
            both.theirs.push(theirs);
            both.ours.push(ours);
        }
        both.theirs.flush().context("writing to the base")?;
        if let Err(error) = both.ours.flush() {
            return Ok(Some(format!("writing {} commands to the server failed: {error}", commands.len())));
        }
        for command in commands {
            let both = self.both(connection)?;
            let theirs = both.theirs.read();
            let ours = both.ours.read();
            let (theirs, ours) = match (theirs, ours) {
                (Ok(theirs), Ok(ours)) => (theirs, ours),
                (Err(error), _) => return Err(anyhow!("{}: the base failed: {error}", quote_short(command))),
                (Ok(theirs), Err(error)) => {
                    let text = differ(quote_short(command), cut(&theirs), format!("no reply: {error}"));
                    return Ok(Some(text));
                }
            };
            self.pair.commands += 1;
            if let Some(text) = self.compare(connection, command, &theirs, &ours)? {
                return Ok(Some(text));
            }
            if self.has_ended {
                return Ok(None);
            }
        }
        if commands.last().is_some_and(|c| c[0].eq_ignore_ascii_case(b"quit")) {
            self.connections[connection] = None;
        }
        Ok(None)
    }

    fn compare(
        &mut self,
        connection: usize,
        command: &Command,
        theirs: &Reply,
        ours: &Reply,
    ) -> Result<Option<String>> {
        let both = self.both(connection)?;
        let name = command[0].to_ascii_lowercase();
        let was_queued = matches!(theirs, Reply::Simple(text) if text == b"QUEUED");
        let transaction = match (&name[..], &mut both.queued) {
            (b"multi", queued @ None) if theirs.is_ok() => {
                *queued = Some(Vec::new());
                None
            }
            (b"exec", queued) if theirs.elements().is_some() || theirs.is_nil() => queued.take(),
            (b"exec", queued) if theirs.error().is_some_and(|e| e.starts_with("EXECABORT")) => {
                *queued = None;
                None
            }
            (b"reset", queued) if theirs.error().is_none() => {
                *queued = None;
                None
            }
            (b"discard", queued) if theirs.is_ok() => {
                *queued = None;
                None
            }
            (_, Some(queued)) if was_queued => {
                queued.push(command.clone());
                None
            }
            _ => None,
        };
        match (&transaction, theirs.elements(), ours.elements()) {
            (Some(queued), Some(theirs), Some(ours)) => {
                let replies = queued.iter().zip(theirs.iter().zip(ours));
                replies.for_each(|(command, (theirs, ours))| self.payloads.note(command, theirs, ours));
            }
            _ => self.payloads.note(command, theirs, ours),
        }
        let equal = match &transaction {
            Some(queued) => same_transaction(queued, theirs, ours, &self.rules),
            None if was_queued => theirs == ours,
            None => same(rule_of(command), theirs, ours, &self.rules),
        };
        if equal {
            return Ok(None);
        }
        if self.excepted(command, transaction.as_deref(), theirs, ours) {
            // A command that the base refuses to queue makes its EXEC fail.
            self.has_ended |= matches!(ours, Reply::Simple(text) if text == b"QUEUED");
            return Ok(None);
        }
        let detail = transaction.map(|queued| inside(&queued, theirs, ours, &self.rules));
        let text = differ(quote_short(command), cut(theirs), cut(ours));
        Ok(Some(text + &detail.unwrap_or_default()))
    }

    /// Returns whether exceptions explain the difference; in a transaction, that of every command that differs.
    fn excepted(&mut self, command: &Command, queued: Option<&[Command]>, theirs: &Reply, ours: &Reply) -> bool {
        let parts: Vec<(&Command, &Reply, &Reply)> = match (queued, theirs, ours) {
            (Some(queued), Reply::Array(a), Reply::Array(b)) if a.len() == b.len() => {
                queued.iter().zip(a.iter().zip(b)).map(|(c, (a, b))| (c, a, b)).collect()
            }
            _ => vec![(command, theirs, ours)],
        };
        let mut names = Vec::new();
        for (command, theirs, ours) in parts {
            if !same(rule_of(command), theirs, ours, &self.rules) {
                let exception = scripts::calls(command).iter().find_map(|call| exception_for(call, theirs, ours));
                match exception {
                    Some(exception) => {
                        names.push(exception.name);
                        self.has_ended |= [SORT_AFTER_A_RANGE_ERROR, PFMERGE_OF_ONE].contains(&exception.name);
                    }
                    None if self.has_ended => break,
                    None => return false,
                }
            }
        }
        for name in names {
            *self.pair.excepted.entry(name).or_default() += 1;
        }
        true
    }

    /// Iterates to the end on both sides and compares the sets of keys. Skipped in a transaction, where there is no
    /// cursor.
    fn scan(&mut self, connection: usize, command: &Command) -> Result<Option<String>> {
        let both = self.both(connection)?;
        if both.queued.is_some() {
            return Ok(None);
        }
        let theirs = iterate(&mut both.theirs, command).context("an iteration on the base")?;
        let ours = match iterate(&mut both.ours, command) {
            Ok(ours) => ours,
            Err(error) => return Ok(Some(format!("{}: {error:#}", quote_short(command)))),
        };
        self.pair.commands += 1;
        let are_refused = matches!((&theirs, &ours), (Err(a), Err(b)) if users::normal(a) == users::normal(b));
        if theirs == ours || are_refused {
            return Ok(None);
        }
        let show = |result: &std::result::Result<BTreeSet<Vec<u8>>, Reply>| match result {
            Ok(keys) => keys.iter().map(|k| abbreviate(k)).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        let title = format!("full {}", quote_short(command));
        Ok(Some(differ(title, show(&theirs), show(&ours))))
    }

    /// Fills memtables of [`SMALL_STORE`](super::SMALL_STORE) on both sides, and waits for a flush on ours.
    fn cool(&mut self) -> Result<Option<String>> {
        displace(&mut self.pair.theirs.admin).context("cooling the base")?;
        let ours = &mut self.pair.ours.admin;
        let result = flushes(ours).and_then(|before| {
            displace(ours)?;
            let begin = Instant::now();
            // Only polling shows a flush; a server that is not ours has no flushes to wait for.
            while before.is_some() && flushes(ours)? <= before && begin.elapsed() < FLUSH_MAX {
                sleep(Duration::from_millis(2));
            }
            Ok(())
        });
        Ok(result.err().map(|error| format!("other data could not be written: {error:#}")))
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<Option<String>> {
        let theirs =
            Client::connect(self.pair.theirs.port, SILENCE)?.exchange_raw(bytes).context("raw bytes to the base")?;
        let ours = match Client::connect(self.pair.ours.port, SILENCE)?.exchange_raw(bytes) {
            Ok(ours) => abbreviate(&ours),
            Err(error) => format!("no answer: {error}"),
        };
        self.pair.commands += 1;
        let theirs = abbreviate(&theirs);
        Ok((theirs != ours).then(|| differ(format!("raw {}", abbreviate(bytes)), theirs, ours)))
    }

    /// Compares the whole keyspaces of both servers key by key.
    fn look(&mut self) -> Result<Option<String>> {
        let theirs = Keyspace::read(&mut self.pair.theirs.admin).context("the keyspace of the base")?;
        let ours = match Keyspace::read(&mut self.pair.ours.admin) {
            Ok(ours) => ours,
            Err(error) => return Ok(Some(format!("the keyspace cannot be read: {error:#}"))),
        };
        Ok(theirs.difference(&ours, &self.rules))
    }
}

/// Returns the text of a difference.
fn differ(title: String, theirs: String, ours: String) -> String {
    format!("{title}\n  theirs: {theirs}\n  ours:   {ours}")
}

/// Returns a reply as a short text for a terminal.
fn cut(reply: &Reply) -> String {
    const CHARACTERS_MAX: usize = 600;
    let mut text: String = reply.to_string();
    if let Some((end, _)) = text.char_indices().nth(CHARACTERS_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Writes some megabytes to the last database and removes them.
fn displace(admin: &mut Client) -> Result<()> {
    let value = vec![b'c'; 100_000];
    admin.push(&["SELECT".to_string(), (DATABASES - 1).to_string()]);
    for number in 0..DISPLACING_VALUES {
        admin.push(&[b"SET", format!("displace:{number}").as_bytes(), &value]);
    }
    admin.push(&["FLUSHDB"]);
    admin.flush()?;
    for _ in 0..DISPLACING_VALUES + 2 {
        let reply = admin.read()?;
        ensure!(reply.is_ok(), "answered by {reply}");
    }
    Ok(())
}

fn flushes(admin: &mut Client) -> Result<Option<u64>> {
    let info = admin.info("store")?.unwrap_or_default();
    Ok(info_field(&info, "flushes_completed").and_then(|count| count.parse().ok()))
}

/// Says which of a transaction's replies differ.
fn inside(queued: &[Command], theirs: &Reply, ours: &Reply, rules: &Rules) -> String {
    let (Reply::Array(a), Reply::Array(b)) = (theirs, ours) else { return String::new() };
    let pairs = queued.iter().zip(a.iter().zip(b));
    let differing = pairs.filter(|(c, (a, b))| !same(rule_of(c), a, b, rules));
    let line = |(c, (a, b)): (&Command, (&Reply, &Reply))| {
        format!("\n  in it {}: theirs {}, ours {}", quote_short(c), cut(a), cut(b))
    };
    differing.map(line).collect()
}

/// Returns all keys of an iteration, or the error that it was answered with.
fn iterate(client: &mut Client, command: &Command) -> Result<std::result::Result<BTreeSet<Vec<u8>>, Reply>> {
    let mut found = BTreeSet::new();
    let mut cursor = 0;
    for _ in 0..PAGES_MAX {
        let mut page = command.clone();
        // SCAN has its cursor first, HSCAN and its like behind the key.
        let at = if command[0].eq_ignore_ascii_case(b"scan") { 1 } else { 2 };
        page.insert(at.min(page.len()), cursor.to_string().into_bytes());
        let reply = client.call(&page)?;
        if reply.error().is_some() {
            return Ok(Err(reply));
        }
        let (next, keys) = scan_page(&reply).with_context(|| format!("not a page of SCAN: {reply}"))?;
        found.extend(keys);
        if next == 0 {
            return Ok(Ok(found));
        }
        cursor = next;
    }
    Err(anyhow!("an iteration did not end within {PAGES_MAX} pages"))
}

/// A key as a server reports it.
struct Content {
    kind: Reply,
    /// The answer of GET: a string's value.
    value: Reply,
    digest: Reply,
    encoding: Reply,
    /// The deadline in milliseconds, or a negative number; asked for last.
    deadline: Reply,
}

impl Content {
    fn read(client: &mut Client) -> Result<Content> {
        let mut next = || client.read();
        Ok(Content { kind: next()?, value: next()?, digest: next()?, encoding: next()?, deadline: next()? })
    }

    /// Returns whether the key ended while it was asked about.
    fn has_ended(&self) -> bool {
        self.deadline.integer() == Some(-2)
    }

    /// Returns whether the key has ended at `now`.
    fn is_over(&self, now: i64) -> bool {
        self.has_ended() || self.deadline.integer().is_some_and(|deadline| (0..=now).contains(&deadline))
    }

    /// Returns whether two keys are alike. The encoding of a string in Redis depends on what was done to it, and 7.0
    /// has a single encoding for lists: neither is compared.
    fn is_like(&self, other: &Content, rules: &Rules) -> bool {
        let is_a = |name: &[u8]| matches!(&self.kind, Reply::Simple(kind) if kind == name);
        let is_encoding_of_7_2 = is_a(b"set") && is_set_of_7_2(&self.encoding, &other.encoding);
        let deadline = rule_of(&vec![b"PEXPIRETIME".to_vec()]);
        let is_equal = (&self.value, &self.digest) == (&other.value, &other.digest)
            || is_a(b"string") && hyperloglogs::are_same(&self.value, &other.value);
        is_equal
            && self.kind == other.kind
            && same(deadline, &self.deadline, &other.deadline, rules)
            && (is_a(b"string") || is_a(b"list") || is_encoding_of_7_2 || self.encoding == other.encoding)
    }
}

/// Everything that a server says it holds.
struct Keyspace {
    sizes: Vec<i64>,
    keys: BTreeMap<(usize, Vec<u8>), Content>,
}

impl Keyspace {
    fn read(client: &mut Client) -> Result<Keyspace> {
        for database in 0..DATABASES {
            client.push(&["SELECT".to_string(), database.to_string()]);
            client.push(&["DBSIZE"]);
        }
        client.flush()?;
        let mut sizes = Vec::new();
        for database in 0..DATABASES {
            let selected = client.read()?;
            ensure!(selected.is_ok(), "SELECT {database}: {selected}");
            let size = client.read()?;
            sizes.push(size.integer().with_context(|| format!("DBSIZE was answered by {size}"))?);
        }
        let mut keys = BTreeMap::new();
        for database in (0..DATABASES).filter(|d| sizes[*d] != 0) {
            Keyspace::read_database(client, database, &mut keys)?;
        }
        Ok(Keyspace { sizes, keys })
    }

    fn read_database(
        client: &mut Client,
        database: usize,
        into: &mut BTreeMap<(usize, Vec<u8>), Content>,
    ) -> Result<()> {
        client.call(&["SELECT".to_string(), database.to_string()])?;
        let names = client.call(&["KEYS", "*"])?;
        let names = names.elements().with_context(|| format!("KEYS * was answered by {names}"))?.to_vec();
        let names: Vec<Vec<u8>> = names.iter().filter_map(|n| n.bytes().map(<[u8]>::to_vec)).collect();
        for name in &names {
            for command in ["TYPE", "GET", "DEBUG DIGEST-VALUE", "OBJECT ENCODING", "PEXPIRETIME"] {
                let words = command.split(' ').map(str::as_bytes);
                client.push(&words.chain([&name[..]]).collect::<Vec<_>>());
            }
        }
        client.push(&["RANDOMKEY"]);
        client.flush()?;
        for name in &names {
            let content = Content::read(client)?;
            let twice = into.insert((database, name.clone()), content).is_some();
            ensure!(!twice, "KEYS names {} twice", abbreviate(name));
        }
        let random = client.read()?;
        let listed = random.bytes().is_some_and(|key| names.iter().any(|name| name == key));
        ensure!(listed || names.is_empty(), "RANDOMKEY gave {random}, which KEYS does not name");
        Ok(())
    }

    /// Returns the first difference. A database's size counts keys whose deadline has passed until they are removed, at
    /// a time that is each server's own: sizes are compared only where there is no such key. Ours was asked last, and
    /// long after the base where a value has hundreds of megabytes: what had a deadline may be gone by then.
    fn difference(&self, ours: &Keyspace, rules: &Rules) -> Option<String> {
        let show = |content: Option<&Content>| match content {
            Some(Content { kind, value, deadline, digest, encoding }) => {
                format!("{kind} {value} until {deadline}, {encoding}, digest {digest}")
            }
            None => "no such key".to_string(),
        };
        let now = now_ms() as i64;
        let places = self.keys.keys().chain(ours.keys.keys().filter(|p| !self.keys.contains_key(*p)));
        for place in places {
            let (theirs, ours) = (self.keys.get(place), ours.keys.get(place));
            let equal = match (theirs, ours) {
                (Some(a), Some(b)) => a.is_like(b, rules) || a.is_over(now) && b.has_ended(),
                (Some(a), None) => a.is_over(now),
                (None, _) => false,
            };
            if !equal {
                let title = format!("key {} of database {}", abbreviate(&place.1), place.0);
                return Some(differ(title, show(theirs), show(ours)));
            }
        }
        (self.sizes != ours.sizes && !rules.expired_keys)
            .then(|| differ("DBSIZE".to_string(), format!("{:?}", self.sizes), format!("{:?}", ours.sizes)))
    }
}
