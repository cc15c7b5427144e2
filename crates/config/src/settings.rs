//! CONFIG GET, CONFIG SET and CONFIG REWRITE: the configuration while the server runs.
//!
//! Settings are shared by all threads. Readers that need speed keep the `Arc<Config>` they got, and compare `version`
//! once in a while; code that has to act at once registers a listener, which may also refuse a change.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::config::{Config, Statements};
use crate::error::os_text;
use crate::glob;
use crate::rewrite;
use crate::table::{self, Found};
use crate::value::{Mode, Value};
use crate::values::Values;

/// The configuration while the server runs.
pub struct Settings {
    /// A number that grows by one with each CONFIG SET that changed something; written under `state`.
    version: AtomicU64,
    state: RwLock<State>,
    lines: Statements,
    /// The listeners. Locked during a CONFIG SET: one at a time.
    listeners: Mutex<Vec<Box<Listener>>>,
    /// The lock of a CONFIG REWRITE: one runs at a time.
    rewriting: Mutex<()>,
}

struct State {
    values: Values,
    config: Arc<Config>,
}

/// A function that is called with the directives that change, the configuration before and the one to come. An `Err`
/// refuses the change: it is the end of the error reply, as in `Unable to listen on this port. Check server logs.`
pub type Listener = dyn Fn(&[Changed], &Config, &Config) -> Result<(), Refused> + Send + Sync;

/// The reason why a change cannot take effect, and the directive that it is about, if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub directive: Option<&'static str>,
    pub text: String,
}

impl<T: Into<String>> From<T> for Refused {
    fn from(text: T) -> Refused {
        Refused { directive: None, text: text.into() }
    }
}

/// A directive that CONFIG SET gave another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub name: &'static str,
    /// The value as CONFIG GET prints it.
    pub value: Vec<u8>,
    /// Whether the value must not be logged.
    pub sensitive: bool,
}

impl Settings {
    pub(crate) fn new(values: Values, lines: Statements) -> Settings {
        let config = Arc::new(Config::from_values(&values, &lines));
        Settings {
            version: AtomicU64::new(0),
            state: RwLock::new(State { values, config }),
            lines,
            listeners: Mutex::new(Vec::new()),
            rewriting: Mutex::new(()),
        }
    }

    /// Returns the settings of a server that is started without any, in `dir`.
    pub fn defaults(dir: &std::path::Path) -> Settings {
        let mut values = Values::defaults();
        values.put(table::find(b"dir").expect("dir is in the table"), Value::Text(crate::config::path_bytes(dir)));
        Settings::new(values, Statements::default())
    }

    /// Returns the configuration of this moment.
    pub fn config(&self) -> Arc<Config> {
        self.state().config.clone()
    }

    /// Returns a number that changes with the configuration. One relaxed load.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Raises the version for something beside the directives that readers keep together with them.
    pub fn touch(&self) {
        let _state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Registers a listener, called before each change, in the order of registration, one change at a time. A listener
    /// must not call `set` or `listen`.
    pub fn listen(
        &self,
        listener: impl Fn(&[Changed], &Config, &Config) -> Result<(), Refused> + Send + Sync + 'static,
    ) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    /// Answers CONFIG GET: returns the directives that match one of the patterns, each once, names as they were asked
    /// for or as they match, with values as Redis prints them. Hidden directives answer to their exact name only.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        matching(&self.state().values, patterns)
    }

    /// Returns a copy of the configuration of this moment, for CONFIG SET within a transaction.
    pub fn draft(&self) -> Draft {
        Draft { values: self.state().values.clone() }
    }

    /// Carries out CONFIG SET of several pairs, all or none. The error is the text of the reply, `ERR` included. A
    /// directive that keeps its value is not among the changes, unless it names what may have changed, as a file.
    pub fn set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<Changed>, String> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, config) = {
            let state = self.state();
            (state.values.clone(), state.config.clone())
        };
        let after = with(&before, pairs)?;
        let mut changed = changes(&before, &after);
        add_volatile(&mut changed, pairs, &after);
        if changed.is_empty() {
            return Ok(changed);
        }
        let next = Arc::new(Config::from_values(&after, &self.lines));
        for (called, listener) in listeners.iter().enumerate() {
            if let Err(Refused { directive, text }) = listener(&changed, &config, &next) {
                let back = changes(&after, &before);
                for earlier in &listeners[..called] {
                    // Listeners that took the change a moment ago had the values before it in force: going back is
                    // theirs to manage.
                    let _ = earlier(&back, &next, &config);
                }
                return Err(failed(directive.unwrap_or(changed[0].name).as_bytes(), &text));
            }
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = State { values: after, config: next };
        self.version.fetch_add(1, Ordering::Release);
        Ok(changed)
    }

    /// Notes the server to follow, which REPLICAOF has changed: CONFIG GET and REWRITE know it.
    pub fn set_replicaof(&self, master: Option<(&str, u16)>) {
        let found = table::find(b"replicaof").expect("replicaof is in the table");
        let words =
            master.map_or(Vec::new(), |(host, port)| vec![host.as_bytes().to_vec(), port.to_string().into_bytes()]);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.values.put(found, Value::Words(words));
        state.config = Arc::new(Config::from_values(&state.values, &self.lines));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Carries out CONFIG REWRITE: puts the values of this moment into the configuration file, and the lines that
    /// `users` then makes in the place of all lines `user`. Waits for the disk, so no event loop may call it. The error
    /// is the operating system's text.
    pub fn rewrite(&self, file: &std::path::Path, users: impl FnOnce() -> Vec<Vec<u8>>) -> Result<(), String> {
        // The values are taken after an earlier rewriting has ended: the last one writes the newest.
        let _one = self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
        let values = self.state().values.clone();
        // Without the lock of the state: whoever makes them looks at the configuration.
        let users = users();
        rewrite::replace(file, |old| rewrite::rewritten(old, &values, &users)).map_err(|error| os_text(&error))
    }

    fn state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_struct("Settings").field("version", &self.version()).field("config", &self.config()).finish()
    }
}

/// A configuration with the changes of a transaction that has not taken effect: no listener knows of them.
#[derive(Clone, Debug)]
pub struct Draft {
    values: Values,
}

impl Draft {
    /// Sets like [`Settings::set`], without asking listeners.
    ///
    /// # Errors
    /// The text of the reply; nothing has changed.
    pub fn set(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), String> {
        self.values = with(&self.values, pairs)?;
        Ok(())
    }

    /// Answers CONFIG GET like [`Settings::get`].
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        matching(&self.values, patterns)
    }
}

/// Returns directives as CONFIG GET answers them: see [`Settings::get`].
fn matching(values: &Values, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: String, directive: Found| {
        if !found.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            found.push((name, directive.row.kind.print(values.at(directive.position))));
        }
    };
    for pattern in patterns {
        if !glob::is_pattern(pattern) {
            if let Some(directive) = table::find(pattern) {
                add(String::from_utf8_lossy(pattern).into_owned(), directive);
            }
            continue;
        }
        for (position, row) in table::rows().enumerate().filter(|(_, row)| !row.hidden) {
            for name in row.names().filter(|name| glob::matches(pattern, name.as_bytes(), true)) {
                add(name.into(), Found { name, row, position });
            }
        }
    }
    found
}

/// Returns the values with all pairs set, or the text of the reply that names the refused one.
fn with(before: &Values, pairs: &[(&[u8], &[u8])]) -> Result<Values, String> {
    let directives = settable(pairs, before)?;
    let mut after = before.clone();
    for (found, (_, value)) in directives.iter().zip(pairs) {
        set_one(&mut after, *found, value).map_err(|text| failed(found.name.as_bytes(), &text))?;
    }
    Ok(after)
}

/// Returns the directives of all pairs, or the text for the first that may not be set. A name and its alias are two
/// directives here, as in Redis, and the later one wins.
fn settable(pairs: &[(&[u8], &[u8])], values: &Values) -> Result<Vec<Found>, String> {
    let protected_allowed = *values.get("enable-protected-configs") != Value::Choice(0);
    let mut directives: Vec<Found> = Vec::with_capacity(pairs.len());
    for (name, _) in pairs {
        let Some(found) = table::find(name) else {
            // As Redis quotes bytes: a text of C ends at its first zero.
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                String::from_utf8_lossy(name)
            ));
        };
        if found.row.protected && !protected_allowed {
            return Err(failed(name, "can't set protected config"));
        }
        if found.row.immutable {
            return Err(failed(name, "can't set immutable config"));
        }
        if directives.iter().any(|earlier| earlier.name == found.name) {
            return Err(failed(name, "duplicate parameter"));
        }
        directives.push(found);
    }
    Ok(directives)
}

/// Sets one directive. Several words are separated by single blanks, and an empty text has none, as in Redis.
fn set_one(values: &mut Values, found: Found, value: &[u8]) -> Result<(), String> {
    let words: Vec<&[u8]> = match found.row.kind.takes_many_words() {
        true if value.is_empty() => Vec::new(),
        true => value.split(|byte| *byte == b' ').collect(),
        false => vec![value],
    };
    Ok(values.set(found, &words, Mode::Runtime)?)
}

/// Adds the directives that were set to the value that they had, and name what may have changed.
fn add_volatile(changed: &mut Vec<Changed>, pairs: &[(&[u8], &[u8])], values: &Values) {
    for found in pairs.iter().filter_map(|(name, _)| table::find(name)).filter(|found| found.row.volatile) {
        if !changed.iter().any(|other| other.name == found.row.name) {
            let value = found.row.kind.print(values.at(found.position));
            changed.push(Changed { name: found.row.name, value, sensitive: found.row.sensitive });
        }
    }
}

fn changes(before: &Values, after: &Values) -> Vec<Changed> {
    let rows = table::rows().enumerate().filter(|(position, _)| before.at(*position) != after.at(*position));
    rows.map(|(position, row)| Changed {
        name: row.name,
        value: row.kind.print(after.at(position)),
        sensitive: row.sensitive,
    })
    .collect()
}

fn failed(name: &[u8], text: &str) -> String {
    format!("ERR CONFIG SET failed (possibly related to argument '{}') - {text}", String::from_utf8_lossy(name))
}
