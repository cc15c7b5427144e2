//! A server of a handful of commands for tests of scripts, and how their replies are shown.
#![allow(dead_code, reason = "each test file uses its part")]

use haypile_resp::{Args, Protocol, Reply};
use haypile_script::{Bounds, Halted, Interpreter, LogLevel, Outcome, Program, Run, Server, sha1_hex};

/// A server that knows a handful of commands.
#[derive(Default)]
pub struct Fake {
    /// Calls after which the run is ended.
    pub calls_max: Option<u32>,
    /// Instructions, in some thousands, after which the run is ended.
    pub steps_max: Option<u32>,
    pub calls: u32,
    pub asked: u32,
    pub steps: u32,
    pub logged: Vec<String>,
}

impl Server for Fake {
    fn call(&mut self, args: Args<'_>) -> Result<Reply, Halted> {
        self.calls += 1;
        if self.calls_max.is_some_and(|max| self.calls > max) {
            return Err(Halted::Dropped);
        }
        Ok(match args.get(0) {
            b"echo" => Reply::bulk(args.get(1).to_vec()),
            b"ping" => Reply::Simple("PONG"),
            b"null" => Reply::Null,
            b"count" => Reply::Integer(7),
            b"list" => Reply::array([Reply::bulk(&b"a"[..]), Reply::Null, Reply::Integer(3)]),
            b"map" => Reply::Map(vec![(Reply::bulk(&b"k"[..]), Reply::bulk(&b"v"[..]))]),
            b"set" => Reply::Set(vec![Reply::bulk(&b"m"[..])]),
            b"double" => Reply::Double(1.5),
            b"big" => Reply::BigNumber("123".to_owned()),
            b"text" => Reply::Verbatim("txt", haypile_resp::Bytes::from(b"abc".to_vec())),
            b"boolean" => Reply::Boolean(true),
            b"nested" => Reply::array([Reply::error("ERR inner"), Reply::array([Reply::Simple("OK")])]),
            _ => Reply::error("ERR Unknown Redis command called from script"),
        })
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn permits(&mut self, args: Args<'_>) -> Option<bool> {
        (args.get(0) == b"get").then_some(true)
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.logged.push(format!("{level:?} {}", String::from_utf8_lossy(text)));
    }

    fn takes_long(&mut self) -> Result<(), Halted> {
        self.asked += 1;
        Ok(())
    }

    fn goes_on(&mut self) -> Result<(), Halted> {
        self.steps += 1;
        match self.steps_max {
            Some(max) if self.steps > max => Err(Halted::Failed("ERR too long".to_owned())),
            _ => Ok(()),
        }
    }
}

pub fn interpreter() -> Interpreter {
    Interpreter::new("7.2.0", Bounds { memory_bytes: 16 << 20 }).expect("an interpreter")
}

pub fn run_on(interpreter: &mut Interpreter, text: &[u8], server: &mut Fake) -> Outcome {
    let name = sha1_hex(text);
    let run = Run {
        name: &name,
        program: Program::Script { text, head_bytes: 0 },
        keys: &[b"key"],
        args: &[b"one", b"two"],
        seed: 9,
        memory_bytes: 16 << 20,
        memory_rule: "of a test",
    };
    interpreter.run(&run, server)
}

pub fn shown(outcome: Outcome, protocol: Protocol) -> String {
    match outcome {
        Outcome::Halted(why) => format!("{why:?}"),
        Outcome::Reply(reply) => {
            let mut bytes = Vec::new();
            reply.encode(protocol, &mut bytes);
            bytes
                .escape_ascii()
                .to_string()
                .replace("\\r\\n", " ")
                .replace("\\\"", "\"")
                .replace("\\'", "'")
                .trim_end()
                .to_owned()
        }
    }
}

/// Runs each script, twice in one interpreter, and compares the reply. `SHA` stands for the script's name.
pub fn check_as(protocol: Protocol, rows: &[(&str, &str)]) {
    let mut interpreter = interpreter();
    let mut wrong = Vec::new();
    for (text, expected) in rows {
        for _ in 0..2 {
            let reply = shown(run_on(&mut interpreter, text.as_bytes(), &mut Fake::default()), protocol);
            let reply = reply.replace(&sha1_hex(text.as_bytes()), "SHA");
            if reply != *expected {
                wrong.push(format!("{text}\n  expected {expected}\n  answered {reply}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

pub fn check(rows: &[(&str, &str)]) {
    check_as(Protocol::Resp2, rows);
}
