//! The language in which an entry of the table writes down its arguments, and the tree that COMMAND DOCS shows of them.
//!
//! ```text
//! arguments = item *( " " item )
//! item      = "[" repeated "]" / repeated                     ; [...]: optional
//! repeated  = argument [ "..." / "*" ]                        ; several times; "*": each with its word
//! argument  = TOKEN [since]                                   ; a word by itself, named after itself
//!           / [ TOKEN " " ] name [":" type] [since]           ; a value, perhaps after a word
//!           / [ TOKEN " " ] name [since] "=(" items ")"       ; several arguments as one
//!           / [ TOKEN " " ] name [since] "=(" item 1*( " | " item ) ")"   ; one of several arguments
//! TOKEN     = upper-case word / "'" word "'"
//! since     = "@" version                                     ; later than the command itself
//! ```
//!
//! Most types follow from the name ([`Kind::usual`]); `protover:integer` states an unusual one. So `SET` is `key value
//! [condition@2.6.12=(NX | XX)] [GET@6.2.0] ...`. A law of the table says that every entry parses. Nothing on the way
//! of a command reads this.

use std::fmt;

/// One argument of a command, as COMMAND DOCS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: Kind,
    /// The word before the value, or the word that is the argument.
    pub token: Option<&'static str>,
    pub since: Option<&'static str>,
    pub optional: bool,
    pub multiple: bool,
    /// Whether the word stands before each repetition of the argument.
    pub multiple_token: bool,
    /// The arguments of a block or a choice.
    pub arguments: Vec<Argument>,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Key => "key",
            Self::Pattern => "pattern",
            Self::UnixTime => "unix-time",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }

    /// The type of a value that does not say its type.
    fn usual(name: &str) -> Self {
        match name {
            "key" | "newkey" => Self::Key,
            "pattern" => Self::Pattern,
            "start" | "end" | "offset" | "index" | "index1" | "index2" | "count" | "cursor" => Self::Integer,
            "increment" | "decrement" | "seconds" | "milliseconds" => Self::Integer,
            name if name.starts_with("unix-time") => Self::UnixTime,
            _ => Self::String,
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::String, Self::Integer, Self::Double, Self::Key, Self::Pattern, Self::UnixTime, Self::PureToken]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// The place where a syntax does not parse: a mistake in an entry of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub rest: &'static str,
    pub expected: &'static str,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "expected {} at {:?}", self.expected, self.rest)
    }
}

/// The arguments that a syntax describes.
pub fn parse(syntax: &'static str) -> Result<Vec<Argument>, SyntaxError> {
    let mut text = Text { rest: syntax };
    let arguments = if syntax.is_empty() { Vec::new() } else { text.items(" ")? };
    if text.rest.is_empty() { Ok(arguments) } else { Err(text.expected("the end")) }
}

/// The arguments as HELP shows them to people: `<key> [NX|XX] [EX <seconds>]`.
pub fn shown(arguments: &[Argument]) -> String {
    joined(arguments, " ")
}

fn joined(arguments: &[Argument], between: &str) -> String {
    arguments.iter().map(shown_one).collect::<Vec<_>>().join(between)
}

fn shown_one(argument: &Argument) -> String {
    let value = match argument.kind {
        Kind::PureToken => String::new(),
        Kind::Block => joined(&argument.arguments, " "),
        Kind::OneOf if argument.optional => joined(&argument.arguments, "|"),
        Kind::OneOf => format!("({})", joined(&argument.arguments, "|")),
        _ => format!("<{}>", argument.name),
    };
    let parts = [argument.token.map(str::to_owned), Some(value).filter(|value| !value.is_empty())];
    let once = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    match (argument.optional, argument.multiple) {
        (false, false) => once,
        (false, true) => format!("{once} [{once} ...]"),
        (true, false) => format!("[{once}]"),
        (true, true) if argument.multiple_token => format!("[{once} [{once} ...]]"),
        (true, true) => format!("[{once} ...]"),
    }
}

/// The rest of a syntax that is to be parsed.
struct Text {
    rest: &'static str,
}

impl Text {
    fn items(&mut self, between: &str) -> Result<Vec<Argument>, SyntaxError> {
        let mut items = vec![self.item()?];
        while self.take(between) {
            items.push(self.item()?);
        }
        Ok(items)
    }

    fn item(&mut self) -> Result<Argument, SyntaxError> {
        let optional = self.take("[");
        let mut argument = self.argument()?;
        argument.multiple_token = self.take("*");
        argument.multiple = argument.multiple_token || self.take("...");
        argument.optional = optional;
        if optional && !self.take("]") {
            return Err(self.expected("]"));
        }
        Ok(argument)
    }

    fn argument(&mut self) -> Result<Argument, SyntaxError> {
        let token = self.token();
        // A name is in lower case, so a word before one belongs to it, and a word before another word does not.
        let alone = !self.rest.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        if let (Some(token), true) = (token, alone) {
            return Ok(Argument { token: Some(token), ..self.plain(token.to_ascii_lowercase(), Kind::PureToken) });
        }
        if token.is_some() {
            self.take(" ");
        }
        let name = self.word();
        if name.is_empty() {
            return Err(self.expected("a name"));
        }
        let kind = if self.take(":") {
            Kind::named(self.word()).ok_or_else(|| self.expected("a type that exists before this"))?
        } else {
            Kind::usual(name)
        };
        let mut argument = Argument { token, ..self.plain(name.to_owned(), kind) };
        if self.take("=(") {
            let first = self.item()?;
            let (kind, between) = if self.rest.starts_with(" | ") { (Kind::OneOf, " | ") } else { (Kind::Block, " ") };
            argument.kind = kind;
            argument.arguments.push(first);
            if self.take(between) {
                argument.arguments.extend(self.items(between)?);
            }
            if !self.take(")") {
                return Err(self.expected(")"));
            }
        }
        Ok(argument)
    }

    /// An argument without parts, its version read from here.
    fn plain(&mut self, name: String, kind: Kind) -> Argument {
        let since = self.take("@").then(|| self.version());
        Argument {
            name,
            kind,
            token: None,
            since,
            optional: false,
            multiple: false,
            multiple_token: false,
            arguments: Vec::new(),
        }
    }

    fn token(&mut self) -> Option<&'static str> {
        if let Some(quoted) = self.rest.strip_prefix('\'') {
            let (token, rest) = quoted.split_once('\'')?;
            self.rest = rest;
            return Some(token);
        }
        let token = self.rest.starts_with(|c: char| c.is_ascii_uppercase()).then(|| self.word());
        token.filter(|token| !token.is_empty())
    }

    fn word(&mut self) -> &'static str {
        self.split(self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')))
    }

    fn version(&mut self) -> &'static str {
        let digits_and_dots = self.rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(self.rest.len());
        // Dots at the end are not the version's: they say "several".
        self.split(Some(self.rest[..digits_and_dots].trim_end_matches('.').len()))
    }

    fn split(&mut self, at: Option<usize>) -> &'static str {
        let (front, rest) = self.rest.split_at(at.unwrap_or(self.rest.len()));
        self.rest = rest;
        front
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expected(&self, expected: &'static str) -> SyntaxError {
        SyntaxError { rest: self.rest, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree, written down so that each property of each argument shows.
    fn shown(arguments: &[Argument]) -> String {
        let one = |a: &Argument| {
            let mut text = format!("{}:{}", a.name, a.kind.name());
            text += &a.token.map_or(String::new(), |token| format!(" token={token}"));
            text += &a.since.map_or(String::new(), |since| format!(" since={since}"));
            text += if a.optional { " optional" } else { "" };
            text += if a.multiple { " multiple" } else { "" };
            text += if a.multiple_token { " multiple_token" } else { "" };
            if a.arguments.is_empty() { text } else { format!("{text} {{ {} }}", shown(&a.arguments)) }
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(syntax: &'static str, expected: &str) {
        assert_eq!(shown(&parse(syntax).unwrap_or_else(|error| panic!("{syntax}: {error}"))), expected);
    }

    #[test]
    fn each_form_gives_its_tree() {
        check("", "");
        check("key start end", "key:key, start:integer, end:integer");
        check("key...", "key:key multiple");
        check("[message]", "message:string optional");
        check("[name...]", "name:string optional multiple");
        check("[GET@6.2.0]", "get:pure-token token=GET since=6.2.0 optional");
        check("[GET pattern*]", "pattern:pattern token=GET optional multiple multiple_token");
        check("[ALPHA sorting:pure-token]", "sorting:pure-token token=ALPHA optional");
        check("[COUNT count]", "count:integer token=COUNT optional");
        check("'lib-name' libname", "libname:string token=lib-name");
        check("protover:integer@6.0.0...", "protover:integer since=6.0.0 multiple");
        check("pair=(key value)...", "pair:block multiple { key:key, value:string }");
        check("one=(key)", "one:block { key:key }");
        check(
            "[when@7.0.0=(NX | EX seconds@2.6.12)]",
            "when:oneof since=7.0.0 optional { nx:pure-token token=NX, seconds:integer token=EX since=2.6.12 }",
        );
        check(
            "[AUTH login=(user [password])] NOW",
            "login:block token=AUTH optional { user:string, password:string optional }, now:pure-token token=NOW",
        );
    }

    #[test]
    fn people_read_the_usual_form() {
        let check = |syntax, expected: &str| assert_eq!(super::shown(&parse(syntax).unwrap()), expected);
        check("key...", "<key> [<key> ...]");
        check("pair=(name value)...", "<name> <value> [<name> <value> ...]");
        check("attr=('lib-name' libname | 'lib-ver' libver)", "(lib-name <libname>|lib-ver <libver>)");
        check("[when=(NX | EX seconds)] [NOW] [name...]", "[NX|EX <seconds>] [NOW] [<name> ...]");
    }

    #[test]
    fn a_mistake_is_refused() {
        for syntax in ["key ", " key", "[key", "key]", "a=(b", "a=()", "a:nothing", "a | b", "a=(b | c d)", "'x"] {
            assert!(parse(syntax).is_err(), "{syntax}");
        }
    }
}
