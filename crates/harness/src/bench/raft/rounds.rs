//! The loads on both groups, one after the other in alternating rounds, with what the disk takes measured in each.

use anyhow::{Context, Result};

use super::cases::{Case, Figures, Op, chosen};
use super::{Options, disk, etcd, haypile};
use crate::bench::compare::median;

/// The rounds of one case, each with etcd's figures and ours.
pub struct Outcome {
    pub case: &'static Case,
    pub rounds: Vec<(Figures, Figures)>,
}

impl Outcome {
    pub fn etcd(&self, figure: fn(&Figures) -> f64) -> f64 {
        median(&self.rounds.iter().map(|(etcd, _)| figure(etcd)).collect::<Vec<_>>())
    }

    pub fn ours(&self, figure: fn(&Figures) -> f64) -> f64 {
        median(&self.rounds.iter().map(|(_, ours)| figure(ours)).collect::<Vec<_>>())
    }

    /// Returns the median of the rounds' ratios of ours to etcd's.
    pub fn ratio(&self, figure: fn(&Figures) -> f64) -> f64 {
        median(&self.ratios(figure))
    }

    fn ratios(&self, figure: fn(&Figures) -> f64) -> Vec<f64> {
        self.rounds.iter().map(|(etcd, ours)| figure(ours) / figure(etcd)).collect()
    }

    /// Returns the least and the greatest factor of throughput.
    pub fn spread(&self) -> (f64, f64) {
        let times = self.ratios(|f| f.rate);
        (times.iter().copied().fold(f64::NAN, f64::min), times.iter().copied().fold(f64::NAN, f64::max))
    }

    /// Returns the parts of the machine that others took in all rounds.
    pub fn others(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().flat_map(|(etcd, ours)| [etcd.others, ours.others])
    }

    /// Returns the median of the rounds' parts of what the disk took in them, for a load that writes large values.
    pub fn of_disk(&self, disk: &[f64]) -> Option<f64> {
        self.case.of_disk_min?;
        let part =
            |((_, ours), took): (&(Figures, Figures), &f64)| ours.rate * self.case.load.value_bytes as f64 / took;
        Some(median(&self.rounds.iter().zip(disk).map(part).collect::<Vec<_>>()))
    }

    pub fn is_fast(&self, disk: &[f64]) -> bool {
        let case = self.case;
        self.ratio(|f| f.rate) >= case.times_min
            || self.of_disk(disk).zip(case.of_disk_min).is_some_and(|(part, least)| part >= least)
    }

    pub fn is_prompt(&self) -> bool {
        self.ratio(|f| f.p99_ms) <= self.case.p99_max
    }

    pub fn is_cheap(&self) -> bool {
        self.case.cpu_max.is_none_or(|most| self.ratio(|f| f.cpu_us) <= most)
    }
}

/// All cases, and what the disk takes.
pub struct Measured {
    pub outcomes: Vec<Outcome>,
    /// Bytes a second of each of three files, by round; empty if no case is about the disk.
    pub disk: Vec<f64>,
}

impl Measured {
    pub fn is_met(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.is_fast(&self.disk) && outcome.is_prompt() && outcome.is_cheap())
    }
}

/// Measures the cases, and prints each round.
pub fn run(options: &Options) -> Result<Measured> {
    let client = etcd::Client::build()?;
    let outcome = |case: &'static Case| Outcome { case, rounds: Vec::new() };
    let outcomes = chosen(&options.cases)?.into_iter().map(outcome).collect();
    let mut measured = Measured { outcomes, disk: Vec::new() };
    for _ in 0..options.rounds {
        if measured.outcomes.iter().any(|outcome| outcome.case.of_disk_min.is_some()) {
            let bytes = disk::bytes_a_second_of_each(&options.dir, options.window)?;
            println!("the disk takes {:.0} MB/s of each of three files", bytes / 1e6);
            measured.disk.push(bytes);
        }
        for outcome in &mut measured.outcomes {
            let case = outcome.case;
            let context = || format!("measuring {}", case.id);
            let etcd = again(|| etcd::measure(options, &client, case.load)).with_context(context)?;
            println!("{}", line(case, "etcd", &etcd));
            let own = || haypile::measure(options, &options.server, options.mode(), case.load);
            let ours = again(own).with_context(context)?;
            println!("{}", line(case, "ours", &ours));
            outcome.rounds.push((etcd, ours));
        }
    }
    Ok(measured)
}

/// Measures anew, twice at most, if an election on a busy machine has ended a load.
pub fn again(measure: impl Fn() -> Result<Figures>) -> Result<Figures> {
    for _ in 0..2 {
        match measure() {
            Ok(figures) => return Ok(figures),
            Err(error) => println!("measured again, because of: {error:#}"),
        }
    }
    measure()
}

fn line(case: &Case, who: &str, figures: &Figures) -> String {
    format!(
        "{:10} {who} {:>7.0} {}/s  p50 {:6.2} ms  p99 {:6.2} ms  CPU {:6.1} us of all servers, {:.1} us of the client, \
         {:.0} % of the machine for others",
        case.id,
        figures.rate,
        if case.load.op == Op::Put { "puts" } else { "gets" },
        figures.p50_ms,
        figures.p99_ms,
        figures.cpu_us,
        figures.client_cpu_us,
        figures.others * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    fn figures(rate: f64, p99_ms: f64, cpu_us: f64) -> Figures {
        Figures { rate, p99_ms, cpu_us, ..Figures::default() }
    }

    #[test]
    fn what_the_disk_takes_is_enough() {
        let rounds = vec![(figures(10_000.0, 30.0, 100.0), figures(20_000.0, 10.0, 20.0))];
        let outcome = Outcome { case: &CASES[0], rounds };
        let (wide, narrow) = (4096.0 * 100_000.0, 4096.0 * 25_000.0);
        assert!(!outcome.is_fast(&[wide]) && outcome.is_fast(&[narrow]), "twice etcd's, or four fifths of the disk");
        assert!(outcome.is_prompt() && outcome.is_cheap());
        assert_eq!(outcome.spread(), (2.0, 2.0));
        let outcome = Outcome { case: &CASES[2], rounds: outcome.rounds };
        assert!(!outcome.is_fast(&[narrow]), "small values are not bound by the disk");
    }
}
