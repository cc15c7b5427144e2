//! Readers of the change stream: by the command, and by the program that prints it.

use super::{Client, Server, wait_until};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Somebody who follows.
pub struct Follower {
    pub client: Client<TcpStream>,
    pub history: String,
    pub index: u64,
}

impl Follower {
    pub fn at(server: &Server, words: &str) -> Follower {
        let mut client = server.client();
        client.send(format!("CHANGES.FOLLOW {words}\r\n").as_bytes());
        let (kind, begun) = message(&mut client);
        assert_eq!((&*kind, begun["version"].as_u64()), ("begin", Some(1)), "{begun}");
        let history = begun["history"].as_str().expect("it has one").to_owned();
        Follower { client, history, index: begun["index"].as_u64().expect("it is a number") }
    }

    /// Returns the next record, which is behind the one before.
    pub fn record(&mut self) -> Value {
        loop {
            let (kind, record) = message(&mut self.client);
            let index = record["index"].as_u64().expect("each message has one");
            if kind == "record" {
                assert!(index > self.index, "{record} behind {}", self.index);
                self.index = index;
                return record;
            }
            assert_eq!(kind, "heartbeat");
            self.index = index;
        }
    }

    /// Whether a command comes before the connection ends.
    pub fn try_through(&mut self, call: &[&str]) -> bool {
        loop {
            let mut byte = [0];
            if !matches!(self.client.socket.peek(&mut byte), Ok(1)) {
                return false;
            }
            let (kind, message) = message(&mut self.client);
            self.index = message["index"].as_u64().expect("each message has one");
            match &*kind {
                "begin" => self.history = text(&message["history"]),
                "record" => {
                    let changes = message["changes"].as_array().expect("it is an array");
                    if changes.iter().any(|change| words_of(change).iter().map(String::as_str).eq(call.iter().copied()))
                    {
                        return true;
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the changes through one of this command's name and arguments.
    pub fn through(&mut self, call: &[&str]) -> Vec<Value> {
        let mut found = Vec::new();
        loop {
            let record = self.record();
            assert_eq!(record["unsaid"], Value::Null, "{record}");
            found.extend(record["changes"].as_array().expect("it is an array").clone());
            let last = found.last().expect("a record has changes");
            if words_of(last).iter().map(String::as_str).eq(call.iter().copied()) {
                return found;
            }
        }
    }
}

/// Returns the next message: what it is, and its JSON.
pub fn message(client: &mut Client<TcpStream>) -> (String, Value) {
    let reply = client.reply();
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let [head, _, kind, _, json, ""] = lines[..] else { panic!("{reply}") };
    assert!(head == "*2" || head == ">2", "{reply}");
    (kind.to_owned(), serde_json::from_str(json).expect("it is JSON"))
}

/// Returns a string; of what is no text, its object.
pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a change's command.
pub fn words_of(change: &Value) -> Vec<String> {
    let args = change["args"].as_array().expect("it is an array").iter().map(text);
    std::iter::once(text(&change["op"])).chain(args).collect()
}

/// `haypile log --follow --json`, whose lines a test reads.
pub struct Printer(Child, BufReader<std::process::ChildStdout>);

impl Printer {
    pub fn start(port: u16, more: &[&str]) -> Printer {
        let port = port.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
        command.args(["log", "--follow", "--json", "--port", &port]).args(more).stderr(Stdio::null());
        Printer::of(command)
    }

    /// A program that prints such lines.
    pub fn of(mut command: Command) -> Printer {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("it has one"));
        Printer(child, out)
    }

    /// Waits for the program's end; returns whether it says that all was well.
    pub fn succeeds(&mut self) -> bool {
        wait_until("the program ends", || self.0.try_wait().expect("it was started").is_some());
        self.0.wait().expect("it has ended").success()
    }

    /// Returns the next line; `None` at the end.
    pub fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.1.read_line(&mut line).expect("it can be read");
        (read > 0).then(|| serde_json::from_str(&line).expect("it is JSON"))
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
