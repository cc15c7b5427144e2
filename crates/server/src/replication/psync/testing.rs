//! The checks of what a master sends behind its data, for the fuzz target `master` and a seeded test.
//!
//! A session that is a model takes the commands, as the engine's does: it keeps blocks until their end, and refuses the
//! commands whose name is `no`. Where it ends the commands, and which ones it runs, may not depend on how they come.

use super::received::Received;
use super::request;
use haypile_resp::{Limits, Parser};

/// A command's words.
type Words = Vec<Vec<u8>>;

/// The events of a stream that a session takes.
#[derive(Debug, Default, PartialEq)]
pub struct Course {
    /// Commands that have had their effect, with the database that they ran in.
    pub ran: Vec<(u32, Words)>,
    /// Commands and blocks that were refused, as people see them.
    pub skipped: Vec<String>,
    /// Bytes whose commands have ended.
    pub ended: usize,
    /// Commands are malformed behind that.
    pub is_malformed: bool,
}

/// The model of a session, from its beginning to a refusal.
struct Session {
    parser: Parser,
    /// Bytes of the stream that it was given, and those whose commands have ended.
    at: usize,
    done: usize,
    database: u32,
    block: Option<Vec<Words>>,
    has_refused: bool,
}

/// The reason why a session does not go on.
enum Stopped {
    Refused { through: usize },
    Malformed,
}

impl Session {
    fn new(at: usize, database: u32) -> Session {
        let parser = Parser::new(Limits::default());
        Session { parser, at, done: at, database, block: None, has_refused: false }
    }

    /// Runs the commands that `input` holds as a whole; returns their bytes.
    fn run(&mut self, input: &[u8], ran: &mut Vec<(u32, Words)>) -> Result<usize, Stopped> {
        let (mut consumed, mut ranges) = (0, Vec::new());
        loop {
            let request = self.parser.next(&input[consumed..], &mut ranges).map_err(|_| Stopped::Malformed)?;
            let Some(request) = request else { return Ok(consumed) };
            let words: Words = request.args(&input[consumed..], &ranges).iter().map(<[u8]>::to_vec).collect();
            consumed += request.bytes();
            self.at += request.bytes();
            self.take(words, ran)?;
            if self.block.is_none() {
                self.done = self.at;
            }
        }
    }

    fn take(&mut self, words: Words, ran: &mut Vec<(u32, Words)>) -> Result<(), Stopped> {
        let Some(name) = words.first().map(|name| name.to_ascii_lowercase()) else { return Ok(()) };
        self.has_refused |= name == b"no";
        let commands = match (&name[..], &mut self.block) {
            (b"multi", None) => {
                self.block = Some(Vec::new());
                return Ok(());
            }
            (b"exec", block) => block.take().unwrap_or_default(),
            (_, Some(block)) => {
                block.push(words);
                return Ok(());
            }
            (_, None) => vec![words],
        };
        if self.has_refused {
            return Err(Stopped::Refused { through: self.at });
        }
        for words in commands {
            self.database = selected(&words).unwrap_or(self.database);
            ran.push((self.database, words));
        }
        Ok(())
    }
}

/// Returns the database that a command selects; the highest number where it says none.
fn selected(words: &[Vec<u8>]) -> Option<u32> {
    let [name, number] = words else { return None };
    let number = || String::from_utf8(number.clone()).ok()?.parse().ok();
    name.eq_ignore_ascii_case(b"select").then(|| number().unwrap_or(u32::MAX))
}

/// Returns the name of the script that a command runs by name, as far as a name goes.
fn script_name(words: &[Vec<u8>]) -> Option<Vec<u8>> {
    let [command, name, ..] = words else { return None };
    let is_run = matches!(&command.to_ascii_lowercase()[..], b"evalsha" | b"evalsha_ro");
    is_run.then(|| name.iter().take(40).map(u8::to_ascii_lowercase).collect())
}

/// Follows a stream whose bytes come by `piece`.
fn follow(stream: &[u8], piece: usize) -> Course {
    let (mut received, mut course) = (Received::new(Vec::new()), Course::default());
    let (mut session, mut database) = (None, 0);
    let mut pieces = stream.chunks(piece);
    let mut come = 0;
    loop {
        let running = session.get_or_insert_with(|| Session::new(course.ended, database));
        let ran = running.run(received.rest(), &mut course.ran);
        let ended = running.done - course.ended;
        (course.ended, database) = (running.done, running.database);
        received.take(*ran.as_ref().unwrap_or(&0), ended);
        assert_eq!(received.all(), &stream[course.ended..come], "the bytes behind what has ended are kept");
        match ran {
            Ok(_) => {
                let Some(piece) = pieces.next() else { return course };
                received.add(piece);
                come += piece.len();
            }
            Err(stopped) => {
                session = None;
                received.begin_again();
                assert_eq!(received.rest(), received.all());
                let Stopped::Refused { through } = stopped else {
                    course.is_malformed = true;
                    return course;
                };
                course.skipped.push(request::first_words(received.all()));
                database = received.skip(through - course.ended).unwrap_or(database);
                course.ended = through;
            }
        }
    }
}

/// Returns the commands that `stream` holds as a whole, as they are read a byte at a time.
fn plain(stream: &[u8]) -> Vec<(usize, Words)> {
    let (mut parser, mut ranges, mut commands, mut at) = (Parser::new(Limits::default()), Vec::new(), Vec::new(), 0);
    for end in 1..=stream.len() {
        while let Ok(Some(request)) = parser.next(&stream[at..end], &mut ranges) {
            let words = request.args(&stream[at..end], &ranges).iter().map(<[u8]>::to_vec).collect();
            at += request.bytes();
            commands.push((at, words));
        }
    }
    commands
}

/// Reads `data` as a stream of commands, and its lines as words of such.
///
/// # Panics
/// The commands that run, are left out or are kept depend on the pieces in which the bytes come, or something is read
/// that is not there.
pub fn check_commands(data: &[u8]) {
    let Some(([piece, cut], data)) = data.split_first_chunk() else { return };
    for stream in [data, &stated(data)] {
        check_stream(stream, usize::from(*piece) + 1, usize::from(*cut));
    }
}

/// Returns the commands whose words the lines of `data` are.
pub fn stated(data: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for line in data.split(|byte| *byte == b'\n') {
        let words = line.split(|byte| *byte == b' ');
        haypile_resp::write::array_len(&mut stream, words.clone().count());
        words.for_each(|word| haypile_resp::write::bulk(&mut stream, word));
    }
    stream
}

fn check_stream(stream: &[u8], piece: usize, cut: usize) {
    let course = follow(stream, stream.len().max(1));
    assert_eq!(course, follow(stream, piece), "in pieces of {piece} bytes");
    assert!(course.ended <= stream.len());
    for shown in &course.skipped {
        assert!(shown.replace('…', "").is_ascii(), "people see it");
        assert!(shown.split(' ').all(|word| word.len() <= 4 * 40 + '…'.len_utf8()), "it is short");
    }
    let cut = cut.min(stream.len());
    for stream in [stream, &stream[..cut]] {
        let commands = plain(stream);
        let last = commands.iter().rev().find_map(|(_, words)| selected(words));
        assert_eq!(request::last_selected(stream), last, "the last SELECT");
        let names = commands.iter().filter_map(|(_, words)| script_name(words)).collect();
        assert_eq!(request::script_names(stream), names, "the scripts");
    }
    // A part of the stream shows a part of the words.
    let (shown, of_part) = (request::first_words(stream), request::first_words(&stream[..cut]));
    assert!(shown.starts_with(&of_part), "'{shown}' does not begin with '{of_part}'");
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::Random;

    #[test]
    fn commands_are_the_same_however_they_come() {
        let lines =
            ["SET k v", "select 3", "MULTI", "EXEC", "no", "SELECT x", "", "PING", "NO a b c d e f g", "EVALSHA Ab 0"];
        let mut random = Random(11);
        let (mut ran, mut skipped) = (0, 0);
        for _ in 0..5_000 {
            let lines: Vec<&str> = (0..random.below(12)).map(|_| lines[random.below(10) as usize]).collect();
            let mut data = lines.join("\n").into_bytes();
            for _ in 0..random.below(3).min(data.len() as u64) {
                let at = random.below(data.len() as u64) as usize;
                data[at] = b"*$\r\n 0\xff"[random.below(7) as usize];
            }
            let course = follow(&stated(&data), 7);
            (ran, skipped) = (ran + course.ran.len(), skipped + course.skipped.len());
            let choice = [random.below(256) as u8, random.below(256) as u8];
            check_commands(&[&choice[..], &data].concat());
            // The bytes of commands themselves, too.
            let mut stream = stated(&data);
            let at = random.below(stream.len() as u64) as usize;
            stream[at] = random.below(256) as u8;
            check_commands(&[&choice[..], &stream].concat());
        }
        assert!(ran > 5_000 && skipped > 3_000, "{ran} ran, {skipped} were skipped");
    }

    #[test]
    fn a_block_that_was_refused_goes_as_a_whole_and_its_database_stays() {
        let stream = stated(b"SET a 1\nMULTI\nSELECT 3\nno x\nEXEC\nSET b 2");
        let course = follow(&stream, 5);
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Words>();
        assert_eq!(course.ran, [(0, words("SET a 1")), (3, words("SET b 2"))]);
        assert_eq!((course.skipped, course.ended), (vec!["MULTI SELECT 3".to_owned()], stream.len()));
    }
}
