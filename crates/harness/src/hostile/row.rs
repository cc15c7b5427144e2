//! The table of a run: how long the innocent client has waited beside each attack and how much memory the server took,
//! and the same as ratios to a run without an attack and to redis-server.

use std::time::Duration;

use super::Judged;
use super::innocent::Waits;

/// The longest wait of the innocent client in all but one of a hundred requests.
const P99_MAX: Duration = Duration::from_millis(5);
/// The longest wait of the innocent client.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The effects of an attack on others.
pub(super) struct Row {
    /// The number of attacks that have come to their end.
    pub rounds: u64,
    /// Whether the figures say something: the attack came to its end, and the innocent client to its requests.
    pub is_measured: bool,
    pub waits: Waits,
    /// The time in which the machine let a processor or more stand still.
    pub withheld: Duration,
    /// The most resident memory of the server.
    pub resident_bytes: u64,
}

impl Row {
    /// Returns whether nobody innocent had to wait, and memory was bounded, as far as that is judged.
    pub fn is_ok(&self, judged: Judged) -> bool {
        let is_served = self.waits.p99() < P99_MAX && self.waits.longest() < PAUSE_MAX;
        self.is_measured
            && (is_served || !judged.waits)
            && judged.resident_bytes_max.is_none_or(|most| self.resident_bytes < most)
    }
}

/// The rows of the run without an attack, which the others are compared with.
#[derive(Default)]
pub(super) struct Comparison {
    calm: Option<Row>,
}

/// Prints the head of a table in Markdown.
pub(super) fn print_head() {
    let columns = [
        "attacks",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "MB",
        "withheld ms",
        "p99 / none",
        "p99 / Redis",
        "longest / Redis",
        "MB / Redis",
    ];
    println!("| attack | {} | ok |", columns.join(" | "));
    println!("|---|{}---|", "---:|".repeat(columns.len()));
}

impl Comparison {
    /// Prints a row of the table; `base` is that of redis-server, if it could be attacked like this.
    pub fn print(&mut self, name: &str, row: Row, base: Option<Row>, judged: Judged) {
        let ms = |wait: Duration| wait.as_secs_f64() * 1e3;
        let to_calm = self.calm.as_ref().map(|calm| ratio(ms(row.waits.p99()), ms(calm.waits.p99())));
        let to_base = |figure: fn(&Row) -> f64| base.as_ref().map(|base| ratio(figure(&row), figure(base)));
        let ratios = [
            to_calm,
            to_base(|row| row.waits.p99().as_secs_f64()),
            to_base(|row| row.waits.longest().as_secs_f64()),
            to_base(|row| row.resident_bytes as f64),
        ];
        println!(
            "| {name} | {} | {:.2} | {:.2} | {:.1} | {} | {:.0} | {} | {} |",
            row.rounds,
            ms(row.waits.p50()),
            ms(row.waits.p99()),
            ms(row.waits.longest()),
            row.resident_bytes / 1_000_000,
            ms(row.withheld),
            ratios.map(|ratio| ratio.unwrap_or_else(|| "-".into())).join(" | "),
            if row.is_ok(judged) { "yes" } else { "NO" }
        );
        self.calm.get_or_insert(row);
    }
}

/// Returns a ratio with two digits that count.
fn ratio(ours: f64, other: f64) -> String {
    let ratio = ours / other;
    match ratio {
        _ if ratio < 0.1 => format!("{ratio:.3}"),
        _ if ratio < 10.0 => format!("{ratio:.2}"),
        _ => format!("{ratio:.0}"),
    }
}
