//! Our engine under Raft, by the loads of this field's published numbers: writes of 4 KB and reads of 5 KB.

use anyhow::Result;

use super::Options;
use super::cases::{Figures, Load, Op};
use super::haypile::{self, Mode};
use super::rounds::again;

/// The engines, and the directives that choose them. A member keeps what it has acknowledged: `engine memory` is none
/// of a group.
const ENGINES: [(&str, &str); 1] = [("rocksdb", "")];

const LOADS: [(&str, Load); 2] = [
    ("SET of 4 KB", Load { op: Op::Put, value_bytes: 4096, connections: 200, pipeline: 1 }),
    ("GET of 5 KB", Load { op: Op::Get, value_bytes: 5120, connections: 200, pipeline: 1 }),
];

/// An engine under a load, and its figures by round.
pub struct Outcome {
    pub title: &'static str,
    load: Load,
    pub engine: &'static str,
    directives: &'static str,
    pub rounds: Vec<Figures>,
}

pub fn run(options: &Options) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (title, load) in LOADS {
        outcomes.extend(ENGINES.map(|(engine, directives)| Outcome {
            title,
            load,
            engine,
            directives,
            rounds: vec![],
        }));
    }
    for _ in 0..options.rounds {
        for outcome in &mut outcomes {
            let server = options.server.with(outcome.directives)?;
            let figures = again(|| haypile::measure(options, &server, Mode::Group, outcome.load))?;
            let (title, engine) = (outcome.title, outcome.engine);
            println!("{title}, {engine}: {:.0} a second, p99 {:.2} ms", figures.rate, figures.p99_ms);
            outcome.rounds.push(figures);
        }
    }
    Ok(outcomes)
}
