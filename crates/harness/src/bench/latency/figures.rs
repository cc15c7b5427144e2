//! The figures of a latency run: percentiles of both servers, their ratio in each round and over all, as a table and as
//! a chart.

use hdrhistogram::Histogram;

use super::crowd::{Seen, histogram};
use crate::bench::compare::median;

/// One server in one window.
#[derive(Debug)]
pub struct Window {
    pub seen: Seen,
    pub server_cpu_seconds: f64,
    /// Flushes completed in the window.
    pub flushes: u64,
}

/// The windows of one pace, the base's and ours of each round.
#[derive(Debug)]
pub struct Windows {
    pub title: String,
    pub rounds: Vec<(Window, Window)>,
}

/// Percentiles that are shown, with their names.
pub const PERCENTILES: &[(&str, f64)] =
    &[("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("max", 100.0)];
/// The percentile that counts.
const TAIL: f64 = 99.9;

/// All windows of one server together.
pub struct Summary {
    pub latency_ns: Histogram<u64>,
    late_ns: Histogram<u64>,
    /// Requests a second, the median of the rounds.
    pub rate: f64,
    /// CPU time over wall time, of the server and of the client.
    server_cores: f64,
    client_cores: f64,
    flushes: u64,
}

impl Summary {
    fn of<'a>(windows: impl Iterator<Item = &'a Window> + Clone) -> Summary {
        let (mut latency_ns, mut late_ns) = (histogram(), histogram());
        for window in windows.clone() {
            const SAME: &str = "histograms of the same bounds add up";
            latency_ns.add(&window.seen.latency_ns).expect(SAME);
            late_ns.add(&window.seen.late_ns).expect(SAME);
        }
        let seconds: f64 = windows.clone().map(|w| w.seen.seconds).sum();
        let rates: Vec<f64> = windows.clone().map(|w| w.seen.latency_ns.len() as f64 / w.seen.seconds).collect();
        Summary {
            latency_ns,
            late_ns,
            rate: median(&rates),
            server_cores: windows.clone().map(|w| w.server_cpu_seconds).sum::<f64>() / seconds,
            client_cores: windows.clone().map(|w| w.seen.client_cpu_seconds).sum::<f64>() / seconds,
            flushes: windows.map(|w| w.flushes).sum(),
        }
    }

    fn ms(&self, percentile: f64) -> f64 {
        milliseconds(&self.latency_ns, percentile)
    }
}

fn milliseconds(histogram: &Histogram<u64>, percentile: f64) -> f64 {
    histogram.value_at_percentile(percentile) as f64 / 1e6
}

impl Windows {
    pub fn base(&self) -> Summary {
        Summary::of(self.rounds.iter().map(|(base, _)| base))
    }

    pub fn ours(&self) -> Summary {
        Summary::of(self.rounds.iter().map(|(_, ours)| ours))
    }

    /// Returns our percentile over that of the base, for each round.
    pub fn ratios(&self, percentile: f64) -> Vec<f64> {
        let of = |window: &Window| milliseconds(&window.seen.latency_ns, percentile);
        self.rounds.iter().map(|(base, ours)| of(ours) / of(base)).collect()
    }

    /// Returns our percentile of all rounds together over that of the base.
    pub fn ratio(&self, percentile: f64) -> f64 {
        self.ours().ms(percentile) / self.base().ms(percentile)
    }
}

/// Returns a line for the terminal, after each round.
pub fn line(title: &str, round: u32, (base, ours): &(Window, Window)) -> String {
    let text = |window: &Window| {
        let of = |percentile| milliseconds(&window.seen.latency_ns, percentile);
        format!(
            "{:.0}/s p50 {:.3} p99 {:.3} p99.9 {:.3} max {:.3} ms",
            window.seen.latency_ns.len() as f64 / window.seen.seconds,
            of(50.0),
            of(99.0),
            of(TAIL),
            of(100.0)
        )
    };
    let tail = |window: &Window| milliseconds(&window.seen.latency_ns, TAIL);
    let ratio = tail(ours) / tail(base);
    format!("{title}, round {round}: p99.9 of Redis {ratio:.2}  ours {}  base {}", text(ours), text(base))
}

/// Returns two tables: the figures, and the ratios of the tails.
pub fn table(all: &[Windows]) -> String {
    let names: Vec<&str> = PERCENTILES.iter().map(|(name, _)| *name).collect();
    let mut out = format!(
        "| load | server | requests a second | {} | late p99.9 | cores, server | client | flushes |\n|---|---|---|{}---|---|---|---|\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for windows in all {
        for (name, summary) in [("ours", windows.ours()), ("Redis", windows.base())] {
            let times: Vec<String> = PERCENTILES.iter().map(|(_, p)| format!("{:.3}", summary.ms(*p))).collect();
            out += &format!(
                "| {} | {name} | {:.0} | {} | {:.3} | {:.2} | {:.2} | {} |\n",
                windows.title,
                summary.rate,
                times.join(" | "),
                milliseconds(&summary.late_ns, TAIL),
                summary.server_cores,
                summary.client_cores,
                if name == "ours" { summary.flushes.to_string() } else { "-".to_string() }
            );
        }
    }
    out += "\n| load | of Redis: p50 | p99 | **p99.9** | max | p99.9 by round |\n|---|---|---|---|---|---|\n";
    for windows in all {
        let by_round: Vec<String> = windows.ratios(TAIL).iter().map(|ratio| format!("{ratio:.2}")).collect();
        out += &format!(
            "| {} | {:.2} | {:.2} | **{:.2}** | {:.2} | {} |\n",
            windows.title,
            windows.ratio(50.0),
            windows.ratio(99.0),
            windows.ratio(TAIL),
            windows.ratio(100.0),
            by_round.join(", ")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a window of a thousand requests, one microsecond to one millisecond, times `factor`.
    fn window(factor: u64, seconds: f64) -> Window {
        let mut latency_ns = histogram();
        for us in 1..=1000 {
            latency_ns.record(us * 1000 * factor).expect("within the bounds");
        }
        let seen = Seen { latency_ns, late_ns: histogram(), seconds, client_cpu_seconds: seconds / 2.0 };
        Window { seen, server_cpu_seconds: seconds / 4.0, flushes: 2 }
    }

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.005, "{value} is not {expected}");
    }

    #[test]
    fn ratios_are_of_each_round_and_of_all_requests_together() {
        let rounds = vec![(window(1, 1.0), window(2, 2.0)), (window(1, 1.0), window(4, 1.0))];
        let windows = Windows { title: "a load".to_string(), rounds };
        let by_round = windows.ratios(TAIL);
        near(by_round[0], 2.0);
        near(by_round[1], 4.0);
        // Two of 2000 requests are above the percentile, both of the slower round.
        near(windows.ours().ms(TAIL), 4.0 * 0.998);
        near(windows.ratio(TAIL), 4.0 * 0.998 / 0.999);
        near(windows.ratio(100.0), 4.0);
        let ours = windows.ours();
        near(ours.rate, 750.0);
        near(ours.client_cores, 0.5);
        near(ours.server_cores, 0.25);
        assert_eq!(ours.flushes, 4);
    }

    #[test]
    fn tables_have_a_line_for_each_server_and_as_many_cells_as_titles() {
        let rounds = vec![(window(1, 1.0), window(2, 2.0))];
        let text = table(&[Windows { title: "a load".to_string(), rounds }]);
        for part in text.split("\n\n") {
            let cells: Vec<usize> = part.lines().map(|line| line.matches('|').count()).collect();
            assert!(cells.iter().all(|count| *count == cells[0]), "{part}");
        }
        assert_eq!(text.matches("| a load |").count(), 3);
        assert!(text.contains("**2.00**"), "{text}");
    }
}
