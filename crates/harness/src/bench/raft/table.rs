//! The tables of the page.

use super::cases::Figures;
use super::engines;
use super::rounds::{Measured, Outcome};
use crate::bench::compare::median;

/// The target of a row.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A line of the second table.
pub struct Row {
    pub name: String,
    pub found: String,
    pub value: f64,
    pub bound: Option<Bound>,
}

impl Row {
    pub fn is_met(&self) -> bool {
        match self.bound {
            Some(Bound::AtLeast(least)) => self.value >= least,
            Some(Bound::AtMost(most)) => self.value <= most,
            None => true,
        }
    }
}

/// Returns the median of the rounds' ratios of a figure.
pub fn ratio(of: &[Figures], to: &[Figures], figure: fn(&Figures) -> f64) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| figure(of) / figure(to)).collect::<Vec<_>>())
}

fn missed(is_met: bool) -> &'static str {
    if is_met { "" } else { " (missed)" }
}

/// Returns the table of the loads that both groups got, and what the disk takes below it.
pub fn beside_etcd(measured: &Measured) -> String {
    let mut out = String::from(
        "| case | times etcd's throughput | spread | at least | requests a second, ours | etcd | p50 ms, ours | etcd | \
         p99 ms, ours | etcd | of etcd's | at most | CPU µs of all servers a request, ours | etcd | of etcd's | at most | \
         CPU µs of the client, ours | etcd |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for outcome in &measured.outcomes {
        out += &line(outcome, &measured.disk);
    }
    let others: Vec<f64> = measured.outcomes.iter().flat_map(Outcome::others).collect();
    out += &format!(
        "\nOther processes and the kernel took {:.0} % of the machine in the middle one of these measurements, {:.0} % in \
         the worst.\n",
        median(&others) * 100.0,
        others.iter().copied().fold(0.0, f64::max) * 100.0
    );
    if !measured.disk.is_empty() {
        let disk = median(&measured.disk);
        let parts = measured.outcomes.iter().filter_map(|outcome| {
            let part = outcome.of_disk(&measured.disk)?;
            Some(format!("{}: {:.0} % of that", outcome.case.title, part * 100.0))
        });
        out += &format!(
            "\nThree files that are written at the same time and synced take {:.0} MB/s each, or {:.0} values of 4 KB a \
             second. {}.\n",
            disk / 1e6,
            disk / 4096.0,
            parts.collect::<Vec<_>>().join("; ")
        );
    }
    out
}

fn line(outcome: &Outcome, disk: &[f64]) -> String {
    let case = outcome.case;
    let (low, high) = outcome.spread();
    let or_disk = case.of_disk_min.map_or(String::new(), |part| format!(", or {:.0} % of the disk", part * 100.0));
    let cpu_max = case.cpu_max.map_or("-".to_string(), |most| format!("{most:.2}"));
    format!(
        "| {} | **{:.2}**{} | {low:.2} to {high:.2} | {}{or_disk} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | \
         **{:.2}**{} | {:.2} | {:.1} | {:.1} | **{:.2}**{} | {cpu_max} | {:.1} | {:.1} |\n",
        case.title,
        outcome.ratio(|f| f.rate),
        missed(outcome.is_fast(disk)),
        case.times_min,
        outcome.ours(|f| f.rate),
        outcome.etcd(|f| f.rate),
        outcome.ours(|f| f.p50_ms),
        outcome.etcd(|f| f.p50_ms),
        outcome.ours(|f| f.p99_ms),
        outcome.etcd(|f| f.p99_ms),
        outcome.ratio(|f| f.p99_ms),
        missed(outcome.is_prompt()),
        case.p99_max,
        outcome.ours(|f| f.cpu_us),
        outcome.etcd(|f| f.cpu_us),
        outcome.ratio(|f| f.cpu_us),
        missed(outcome.is_cheap()),
        outcome.ours(|f| f.client_cpu_us),
        outcome.etcd(|f| f.client_cpu_us),
    )
}

/// Returns the table of single figures.
pub fn rows(rows: &[Row]) -> String {
    let mut out = String::from("| what | found | target | |\n|---|---|---|---|\n");
    for row in rows {
        let bound = match row.bound {
            Some(Bound::AtLeast(least)) => format!("at least {least:.2}"),
            Some(Bound::AtMost(most)) => format!("at most {most:.2}"),
            None => "-".to_string(),
        };
        out += &format!("| {} | **{:.2}**{} | {bound} | {} |\n", row.name, row.value, missed(row.is_met()), row.found);
    }
    out
}

/// Returns the table of our engines.
pub fn engines(outcomes: &[engines::Outcome]) -> String {
    let mut out = String::from(
        "| case, 200 connections | engine | requests a second | p50 ms | p99 ms | CPU µs of all servers a request |\n\
         |---|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        let of = |figure: fn(&Figures) -> f64| median(&outcome.rounds.iter().map(figure).collect::<Vec<_>>());
        out += &format!(
            "| {} | {} | {:.0} | {:.2} | {:.2} | {:.1} |\n",
            outcome.title,
            outcome.engine,
            of(|f| f.rate),
            of(|f| f.p50_ms),
            of(|f| f.p99_ms),
            of(|f| f.cpu_us)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_it_is_met() {
        let row = |value, bound| Row { name: "x".into(), found: "1 of 2".into(), value, bound };
        let text = rows(&[row(1.0, Some(Bound::AtLeast(2.0))), row(1.0, Some(Bound::AtMost(2.0))), row(1.0, None)]);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| x | **1.00** (missed) | at least 2.00 | 1 of 2 |",
                "| x | **1.00** | at most 2.00 | 1 of 2 |",
                "| x | **1.00** | - | 1 of 2 |"
            ]
        );
    }
}
