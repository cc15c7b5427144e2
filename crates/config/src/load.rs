//! Loads the configuration: file, standard input and command line in this order, later lines winning.
//!
//! The first mistake stops the start. Directives without effect are handed back as notes, for the log.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::{Rename, Statements, UserLine, path_bytes};
use crate::error::{ConfigError, Origin, os_text};
use crate::read::{self, CommandLine, Line};
use crate::settings::Settings;
use crate::suggest;
use crate::table::{self, Class, Found, Role};
use crate::value::{Mode, Value};
use crate::values::Values;

/// The depth of files within files: a file that includes itself ends here.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Files in all: patterns that include themselves would otherwise multiply up to `INCLUDE_DEPTH_MAX`.
const FILES_MAX: usize = 1000;

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    /// Directives that were set and have no effect here, each once, in the order of the table.
    pub notes: Vec<Note>,
    /// The configuration file, absolute.
    pub file: Option<PathBuf>,
}

/// A directive without effect that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub name: &'static str,
    /// Whether the directive was set to something else than its default.
    pub changed: bool,
    pub origin: Origin,
    /// The sentence of the documentation.
    pub doc: &'static str,
}

/// Reads all files and lines that the command line names. Relative paths start at the working directory, and at `dir`
/// after a line that sets it, as in Redis, which changes its working directory there. Nothing is created.
pub fn load(command_line: &CommandLine, stdin: &mut dyn Read) -> Result<Loaded, ConfigError> {
    let directory = std::env::current_dir()
        .map_err(|error| ConfigError::new(format!("Can't tell the working directory: {}", os_text(&error))))?;
    let mut loader = Loader::new(directory.clone());
    let file = command_line.file.as_ref().map(|file| directory.join(file));
    if let Some(file) = &file {
        loader.file(file, 0)?;
    }
    if command_line.stdin {
        loader.lines(read::input(stdin)?, 0)?;
    }
    loader.lines(command_line.lines()?, 0)?;
    let (settings, notes) = loader.finish()?;
    Ok(Loaded { settings, notes, file })
}

struct Loader {
    values: Values,
    /// The last line that set each row.
    origins: Vec<Option<Origin>>,
    statements: Statements,
    /// The directory where relative paths start: first the working directory, then `dir`.
    directory: PathBuf,
    files: usize,
}

impl Loader {
    fn new(directory: PathBuf) -> Loader {
        let mut values = Values::defaults();
        let dir = table::find(b"dir").expect("dir is in the table");
        values.put(dir, Value::Text(path_bytes(&directory)));
        Loader {
            values,
            origins: vec![None; table::rows().count()],
            statements: Statements::default(),
            directory,
            files: 0,
        }
    }

    fn file(&mut self, path: &Path, depth: usize) -> Result<(), ConfigError> {
        self.files += 1;
        self.lines(read::file(path)?, depth)
    }

    fn lines(&mut self, lines: Vec<Line>, depth: usize) -> Result<(), ConfigError> {
        lines.iter().try_for_each(|line| self.line(line, depth))
    }

    fn line(&mut self, line: &Line, depth: usize) -> Result<(), ConfigError> {
        if is_of_pika(&line.words) {
            return Err(ConfigError::at(&shown(&line.words[0], &line.origin), "Bad directive or wrong number of arguments").hint(
                "The line has the form of a pika.conf, with a colon; here it is a name and a value: 'port 6379'. docs/pika.md \
                 has a command that changes the file, and what takes the place of each setting.",
            ));
        }
        let (name, words) = line.words.split_first().expect("a line has a word");
        if let Some(found) = table::find(name) {
            return self.directive(found, words, line);
        }
        let Some(statement) = table::statement(name) else {
            return Err(unknown(name, &line.origin));
        };
        if !statement.words.contains(&words.len()) {
            return Err(ConfigError::at(&line.origin, "Bad directive or wrong number of arguments")
                .hint(format!("The form is: {}", statement.syntax)));
        }
        match statement.role {
            Role::Include => self.include(&words[0], line, depth),
            Role::RenameCommand => {
                let (command, to) = (words[0].clone(), words[1].clone());
                self.statements.renames.push(Rename { command, to, origin: line.origin.clone() });
                Ok(())
            }
            Role::User => {
                let (words, origin) = (words.to_vec(), line.origin.without_values());
                self.statements.users.push(UserLine { words, origin });
                Ok(())
            }
            Role::LoadModule => Err(not_yet(&line.origin, "loadmodule", "Haypile loads no modules.")),
            Role::Sentinel => Err(ConfigError::at(&line.origin, "sentinel directive while not in sentinel mode")
                .hint("Haypile is no Sentinel; take the line out.")),
            Role::Obsolete => Ok(()),
        }
    }

    fn directive(&mut self, found: Found, words: &[Vec<u8>], line: &Line) -> Result<(), ConfigError> {
        let row = found.row;
        let origin = if row.sensitive { line.origin.without_values() } else { line.origin.clone() };
        let refused = |message: String| {
            ConfigError::at(&origin, message).hint(format!("'{}' takes {}.", row.name, row.kind.expects()))
        };

        // A single quoted word may hold all words of a directive that takes several: `--bind "127.0.0.1 ::1"`.
        let inner;
        let words = match words {
            [single] if row.kind.takes_many_words() && !single.is_empty() => {
                inner = crate::words::split(single)
                    .map_err(|_| refused("Unbalanced quotes in configuration line".into()))?;
                &inner[..]
            }
            words => words,
        };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let first = self.origins[found.position].is_none();
        let mode = if first { Mode::FirstLine } else { Mode::LaterLine };
        self.values.set(found, &words, mode).map_err(|message| refused(message.into_owned()))?;
        if row.name == "dir" {
            self.enter(found, words[0]).map_err(refused)?;
        }
        self.origins[found.position] = Some(origin);
        Ok(())
    }

    /// Makes `dir` absolute.
    fn enter(&mut self, found: Found, dir: &[u8]) -> Result<(), String> {
        let path = self.directory.join(std::ffi::OsStr::from_bytes(dir));
        // The whole path: an earlier line may have set where this one starts.
        let missing = |error: std::io::Error| format!("{}: {}", path.display(), os_text(&error));
        let path = path.canonicalize().map_err(missing)?;
        if !path.metadata().map_err(missing)?.is_dir() {
            return Err(format!("{}: Not a directory", path.display()));
        }
        self.values.put(found, Value::Text(path_bytes(&path)));
        self.directory = path;
        Ok(())
    }

    fn include(&mut self, path: &[u8], line: &Line, depth: usize) -> Result<(), ConfigError> {
        let paths = read::included(path, &self.directory).map_err(|error| ConfigError::at(&line.origin, error))?;
        for path in paths {
            if depth + 1 >= INCLUDE_DEPTH_MAX || self.files >= FILES_MAX {
                return Err(ConfigError::at(&line.origin, "Too many files include each other")
                    .hint("At most 16 files may be nested and 1000 be read; does a file include itself?"));
            }
            self.file(&path, depth + 1).map_err(|error| match error.origin {
                Some(_) => error,
                None => ConfigError { origin: Some(line.origin.clone()), ..error },
            })?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(Settings, Vec<Note>), ConfigError> {
        let mut notes = Vec::new();
        for (position, row) in table::rows().enumerate() {
            let Some(origin) = &self.origins[position] else {
                continue;
            };
            let value = self.values.at(position);
            match row.class {
                Class::Used => {}
                Class::Harmless => {
                    let changed = *value != row.default_value();
                    notes.push(Note { name: row.name, changed, origin: origin.clone(), doc: row.doc });
                }
                Class::NotYet { .. } if row.off_value().as_ref() == Some(value) => {}
                Class::NotYet { off } => {
                    let hint = format!("Take it out, or set it to {off}.");
                    return Err(not_yet(origin, row.name, &hint));
                }
            }
        }
        let has_file = *self.values.get("aclfile") != Value::Text(Vec::new());
        if let (Some(line), true) = (self.statements.users.first(), has_file) {
            return Err(ConfigError::at(
                &line.origin,
                "Configuring Redis with users defined in redis.conf and at the same setting an ACL file path is invalid. \
                 This setup is very likely to lead to configuration errors and security holes, please define either an \
                 ACL file or declare users directly in your redis.conf, but not both.",
            ));
        }
        Ok((Settings::new(self.values, self.statements), notes))
    }
}

/// Returns the place of a line, without its values where these may be secret.
fn shown(name: &[u8], origin: &Origin) -> Origin {
    let name = name.strip_suffix(b":").unwrap_or(name);
    let is_secret = table::find(name).is_some_and(|found| found.row.sensitive);
    if is_secret || name.eq_ignore_ascii_case(b"userpass") { origin.without_values() } else { origin.clone() }
}

/// Returns whether a line separates name and value by a colon, as those of a pika.conf do.
fn is_of_pika(words: &[Vec<u8>]) -> bool {
    let is_known = |name: &[u8]| {
        table::find(name).is_some() || table::statement(name).is_some() || table::pika::instead(name).is_some()
    };
    let (name, colon) = match words {
        [name, colon, ..] if colon == b":" => (name.as_slice(), true),
        [name, ..] => (name.strip_suffix(b":").unwrap_or(name), name.ends_with(b":")),
        [] => (&[][..], false),
    };
    colon && is_known(name)
}

fn not_yet(origin: &Origin, name: &str, hint: &str) -> ConfigError {
    ConfigError::at(origin, format!("'{name}' is not supported yet, and the server would not do what it asks for"))
        .hint(hint)
}

fn unknown(name: &[u8], origin: &Origin) -> ConfigError {
    let name_text = String::from_utf8_lossy(name);
    let error = ConfigError::at(&shown(name, origin), "Bad directive or wrong number of arguments");
    if let Some(instead) = table::pika::instead(name) {
        return error.hint(format!("'{name_text}' is a setting of Pika: {instead}. See docs/pika.md."));
    }
    if let Some(nearest) = suggest::nearest(name) {
        return error.hint(format!("There is no directive '{name_text}'; did you mean '{nearest}'?"));
    }
    if name.contains(&b'.') {
        return error.hint(format!("'{name_text}' looks like a directive of a module; Haypile loads no modules."));
    }
    error.hint(format!("There is no directive '{name_text}'; docs/configuration.md lists them all."))
}
