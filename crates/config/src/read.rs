//! Reads the lines of a configuration: of a file, of standard input, of the command line.
//!
//! Lines and words only; their meaning is `crate::load`'s affair. The command line is turned into lines as redis-server
//! does it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, Origin, os_text};
use crate::{table, words};

/// The size above which a file is no configuration.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The arguments of `haypile server`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// A configuration file.
    pub file: Option<PathBuf>,
    /// `-`: lines from standard input follow those of the file.
    pub stdin: bool,
    /// Lines that follow after all others, one for each `--directive`.
    pub options: Vec<Vec<u8>>,
}

/// A line that has words: the name of a directive, and the words behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub words: Vec<Vec<u8>>,
    pub origin: Origin,
}

impl CommandLine {
    /// Parses the arguments after `haypile server`, with redis-server's rules: the first argument is a file unless it
    /// begins with a dash; `-` as first or last argument is standard input; `--name` begins a line, to which all
    /// arguments up to the next `--name` belong, at least one (`--save` may have none).
    pub fn parse(arguments: &[OsString]) -> CommandLine {
        let mut parsed = CommandLine::default();
        let mut rest = arguments;
        if let [first, after @ ..] = arguments
            && !first.as_bytes().starts_with(b"-")
            && !first.is_empty()
        {
            parsed.file = Some(PathBuf::from(first));
            rest = after;
        }
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let mut name_may_follow = true;
        for (at, argument) in rest.iter().enumerate() {
            let bytes = argument.as_bytes();
            let is_first = at == 0 && parsed.file.is_none();
            let is_last = at + 1 == rest.len();
            if bytes == b"-" && (is_first || is_last) {
                parsed.stdin = true;
            } else if name_may_follow && bytes.starts_with(b"--") {
                let mut line = bytes[2..].to_vec();
                line.push(b' ');
                let alone = words::split(bytes).is_ok_and(|words| words.len() == 1);
                let next_is_name = rest.get(at + 1).is_some_and(|next| next.as_bytes().starts_with(b"--"));
                name_may_follow = !alone;
                if alone && bytes.eq_ignore_ascii_case(b"--save") && (is_last || next_is_name) {
                    line.extend(b"\"\"");
                    name_may_follow = true;
                }
                lines.push(line);
            } else {
                if lines.is_empty() {
                    lines.push(Vec::new());
                }
                let line = lines.last_mut().expect("a line was pushed if there was none");
                line.extend(words::quote(bytes).bytes());
                line.push(b' ');
                name_may_follow = true;
            }
        }
        parsed.options = lines.into_iter().map(|line| words::trim(&line).to_vec()).collect();
        parsed
    }

    pub(crate) fn lines(&self) -> Result<Vec<Line>, ConfigError> {
        let mut lines = Vec::new();
        for option in &self.options {
            let origin = Origin::CommandLine { text: String::from_utf8_lossy(option).into_owned() };
            lines.extend(line(option, origin)?);
        }
        Ok(lines)
    }
}

/// The lines of a text.
pub(crate) fn lines(text: &[u8], origin: impl Fn(u32, String) -> Origin) -> Result<Vec<Line>, ConfigError> {
    let mut lines = Vec::new();
    for (at, raw) in text.split(|byte| *byte == b'\n').enumerate() {
        let trimmed = words::trim(raw);
        let origin = origin(at as u32 + 1, String::from_utf8_lossy(trimmed).into_owned());
        lines.extend(line(trimmed, origin)?);
    }
    Ok(lines)
}

/// Parses a line; `None` if it is empty or a comment.
fn line(trimmed: &[u8], origin: Origin) -> Result<Option<Line>, ConfigError> {
    if trimmed.is_empty() || trimmed.starts_with(b"#") {
        return Ok(None);
    }
    if trimmed.contains(&0) {
        return Err(ConfigError::at(&origin, "The line has a NUL byte"));
    }
    match words::split(trimmed) {
        Ok(words) if words.is_empty() => Ok(None),
        Ok(words) => Ok(Some(Line { words, origin })),
        Err(words::Unbalanced) => {
            Err(ConfigError::at(&seen(trimmed, &origin), "Unbalanced quotes in configuration line").hint(
                "Close each quote, with a blank or nothing after it; write \\\" for a quote inside double quotes.",
            ))
        }
    }
}

/// Returns the place of a line that cannot be read, without its values where its directive's are secret.
fn seen(line: &[u8], origin: &Origin) -> Origin {
    let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    match table::find(name) {
        Some(found) if found.row.sensitive => origin.without_values(),
        _ => origin.clone(),
    }
}

/// The lines of a file.
pub(crate) fn file(path: &Path) -> Result<Vec<Line>, ConfigError> {
    let refused = |error: io::Error| {
        ConfigError::new(format!("Fatal error, can't open config file '{}': {}", path.display(), os_text(&error)))
    };
    let text = bounded(std::fs::File::open(path).map_err(refused)?).map_err(refused)?;
    lines(&text, |line, text| Origin::File { path: path.to_path_buf(), line, text })
}

/// Reads the lines of standard input, or of its stand-in.
pub(crate) fn input(stdin: &mut dyn Read) -> Result<Vec<Line>, ConfigError> {
    let text = bounded(stdin).map_err(|error| {
        ConfigError::new(format!("Can't read the configuration from standard input: {}", os_text(&error)))
    })?;
    lines(&text, |line, text| Origin::Input { line, text })
}

fn bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 64 MB"));
    }
    Ok(text)
}

/// Returns the files that an `include` names, in order: the path itself, or all that match it as a pattern, maybe none.
pub(crate) fn included(path: &[u8], below: &Path) -> Result<Vec<PathBuf>, String> {
    if !crate::glob::is_pattern(path) {
        return Ok(vec![below.join(OsStr::from_bytes(path))]);
    }
    let (Some(below), Ok(pattern)) = (below.to_str(), std::str::from_utf8(path)) else {
        return Err("A pattern of files, and the directory that it starts from, have to be UTF-8".into());
    };
    let pattern = Path::new(&glob::Pattern::escape(below)).join(pattern);
    let pattern = pattern.to_str().expect("both parts are UTF-8");
    let options =
        glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    let paths = glob::glob_with(pattern, options).map_err(|error| error.to_string())?;
    paths.collect::<Result<_, _>>().map_err(|error| error.to_string())
}
