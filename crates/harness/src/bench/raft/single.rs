//! Our server beside itself: a pipeline beside none, and a leader beside the same server without a group.

use anyhow::Result;

use super::cases::{Figures, Load, Op};
use super::haypile::{self, Mode};
use super::rounds::again;
use super::table::{Bound, Row};
use super::{Options, table};
use crate::bench::compare::median;

const SET: Load = Load { op: Op::Put, value_bytes: 16, connections: 200, pipeline: 1 };
const PIPELINED: Load = Load { pipeline: 16, ..SET };

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let measure = |mode, load| {
        let figures = again(|| haypile::measure(options, &options.server, mode, load))?;
        println!("{}", line(mode, load, &figures));
        anyhow::Ok(figures)
    };
    let (mut single, mut pipelined, mut alone) = (vec![], vec![], vec![]);
    for _ in 0..options.rounds {
        single.push(measure(options.mode(), SET)?);
        pipelined.push(measure(options.mode(), PIPELINED)?);
        if !options.standalone {
            alone.push(measure(Mode::Standalone, PIPELINED)?);
        }
    }
    let of = |all: &[Figures], figure: fn(&Figures) -> f64| median(&all.iter().map(figure).collect::<Vec<_>>());
    let mut rows = vec![Row {
        name: "SET of 16 B at pipeline 16, 200 connections: times the throughput without a pipeline".into(),
        found: format!("{:.0} a second of {:.0}", of(&pipelined, |f| f.rate), of(&single, |f| f.rate)),
        value: table::ratio(&pipelined, &single, |f| f.rate),
        bound: Some(Bound::AtLeast(5.0)),
    }];
    if !options.standalone {
        let cpu = |f: &Figures| f.leader_cpu_us;
        rows.push(Row {
            name: "the same: CPU time of the leader, of one server without a group with `durability fsync`".into(),
            found: format!("{:.2} µs of {:.2}", of(&pipelined, cpu), of(&alone, cpu)),
            value: table::ratio(&pipelined, &alone, cpu),
            bound: Some(Bound::AtMost(1.6)),
        });
    }
    Ok(rows)
}

fn line(mode: Mode, load: Load, figures: &Figures) -> String {
    format!(
        "SET at pipeline {:2}, {mode:?}: {:.0} a second, p99 {:.2} ms, CPU {:.2} us of the leader, {:.2} of all servers",
        load.pipeline, figures.rate, figures.p99_ms, figures.leader_cpu_us, figures.cpu_us
    )
}
