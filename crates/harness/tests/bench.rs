//! The bench in its shortest form: that it runs and counts, not what it measures.

use std::time::Duration;

use haypile_harness::bench::compare::Plan;
use haypile_harness::bench::rows::ROWS;
use haypile_harness::bench::{BASE, DIRECTIVES};
use haypile_harness::server::{Template, haypile_binary};

#[test]
fn a_row_is_measured_on_both_servers() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let plan = Plan {
        base: Template::parse(BASE).expect("the template has its marks"),
        server: Template::haypile(&binary, DIRECTIVES).expect("the template has its marks"),
        rounds: 1,
        scale: 0.1,
        flushes: false,
        idle_max: Duration::from_secs(4),
        server_cpu: 0,
        client_cpu: 0,
    };
    let row = ROWS.iter().find(|row| row.id == "set").expect("the table has this row");
    let outcome = plan.measure(row).expect("both servers run");
    assert_eq!(outcome.rounds.len(), 1);
    let (base, ours) = outcome.rounds[0];
    for measured in [base, ours] {
        assert!(measured.cpu_us > 0.0 && measured.rate > 0.0 && measured.p99_ms > 0.0, "{measured:?}");
    }
}
