//! The benches in their shortest form: that they run and count, not what they measure.

use std::time::Duration;

use haypile_harness::bench::compare::Plan;
use haypile_harness::bench::rows::ROWS;
use haypile_harness::bench::{BASE, DIRECTIVES, collections, import, latency, raft, sweep};
use haypile_harness::server::{Template, Workplace, haypile_binary};

fn servers() -> (Template, Template) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let marks = "the template has its marks";
    (Template::parse(BASE).expect(marks), Template::haypile(&binary, DIRECTIVES).expect(marks))
}

/// The page and the charts that a run has written.
fn check_written(place: &Workplace, charts: &[&str]) {
    let page = std::fs::read_to_string(place.data().join("benchmarks.md")).expect("the page is written");
    for name in charts {
        let file = format!("benchmarks-{name}.svg");
        assert!(page.contains(&format!("<!-- {name}:begin -->\n*Measured 2")) && page.contains("; one round.*\n\n"));
        assert!(page.contains(&format!("({file})")), "{page}");
        let chart = std::fs::read_to_string(place.data().join(file)).expect("the chart is written");
        let document = roxmltree::Document::parse(&chart).expect("the chart is well-formed");
        let curves = document.descendants().filter(|node| node.has_tag_name("polyline"));
        let curves: Vec<_> = curves.filter_map(|node| node.attribute("points")).collect();
        // Two panels, two curves in each; all was measured.
        assert_eq!(curves.len(), 4, "{name}");
        assert!(curves.iter().all(|points| !points.is_empty()), "{name}");
    }
    assert!(!page.contains("NaN"), "{page}");
}

#[test]
fn a_row_is_measured_on_both_servers() {
    let (base, server) = servers();
    let plan = Plan {
        base,
        server,
        rounds: 1,
        scale: 0.1,
        flushes: false,
        idle_max: Duration::from_secs(4),
        server_cpu: 0,
        client_cpu: 0,
    };
    let row = ROWS.iter().find(|row| row.id == "set").expect("the table has this row");
    let outcome = plan.measure(row).expect("both servers run");
    assert_eq!(outcome.rounds.each.len(), 1);
    let (base, ours) = outcome.rounds.each[0];
    for measured in [base, ours] {
        assert!(measured.cpu_us > 0.0 && measured.rate > 0.0 && measured.p99_ms > 0.0, "{measured:?}");
    }
}

#[test]
fn cases_of_collections_are_measured_on_both_servers_and_written() {
    let (base, server) = servers();
    let place = Workplace::new("collections-page", None).expect("the temporary directory is writable");
    let options = collections::Options {
        base,
        server,
        cases: vec!["get".to_string(), "mset".to_string()],
        rounds: 1,
        scale: 0.01,
        idle_max: Duration::ZERO,
        server_cpu: 0,
        client_cpu: 0,
        write_to: Some(place.data()),
    };
    collections::run(&options).expect("both servers run");
    let page = std::fs::read_to_string(place.data().join("benchmarks.md")).expect("the page is written");
    assert_eq!(page.matches("| 16 |").count(), 2, "{page}");
}

#[test]
fn latency_counts_every_request_of_both_servers_and_writes_the_page() {
    let (base, server) = servers();
    let place = Workplace::new("latency-page", None).expect("the temporary directory is writable");
    let options = latency::Options {
        base,
        server,
        connections: 20,
        window: Duration::from_millis(500),
        rounds: 1,
        rate: Some(1000.0),
        server_cpu: None,
        idle_max: Duration::ZERO,
        seed: 1,
        write_to: Some(place.data()),
    };
    let all = latency::run(&options).expect("both servers run");
    assert_eq!(all.len(), 2);
    let requests = |windows: &latency::Windows| {
        let (base, ours) = &windows.rounds[0];
        [base, ours].map(|window| window.seen.latency_ns.len())
    };
    for count in requests(&all[0]) {
        assert!(count >= 20, "each connection was answered: {count}");
    }
    // A thousand a second arrive for half a second, however slow the machine is.
    for count in requests(&all[1]) {
        assert!((380..620).contains(&count), "{count}");
    }
    check_written(&place, &["latency"]);
}

#[test]
fn the_sweeps_measure_every_size_and_number_of_workers_and_write_the_page() {
    let (base, server) = servers();
    let place = Workplace::new("sweep-page", None).expect("the temporary directory is writable");
    let options = sweep::Options {
        base,
        server,
        parts: vec![],
        sizes: vec![128, 100 << 10],
        workers_max: 2,
        rounds: 1,
        scale: 0.1,
        idle_max: Duration::ZERO,
        server_cpu: 0,
        client_cpu: 0,
        write_to: Some(place.data()),
    };
    let results = sweep::run(&options).expect("both servers run");
    assert_eq!(results.sizes.len(), 2 * 4);
    for point in &results.sizes {
        let (base, ours) = point.rounds.each[0];
        assert!(base.cpu_us > 0.0 && ours.cpu_us > 0.0 && ours.rate > 0.0, "{point:?}");
    }
    let workers: Vec<_> = results.workers.iter().map(|crew| crew.workers).collect();
    assert_eq!(workers, [None, Some(1), Some(2)]);
    assert!(results.workers.iter().flat_map(|crew| [&crew.get[0], &crew.set[0]]).all(|m| m.cpu_us > 0.0));
    check_written(&place, &["sizes", "workers"]);
    let unknown = sweep::Options { parts: vec!["colours".to_string()], ..options };
    assert!(sweep::run(&unknown).expect_err("no such part").to_string().contains("sizes, workers"));
}

#[test]
fn an_import_is_measured_killed_and_read_and_writes_the_page() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let place = Workplace::new("import-page", None).expect("the temporary directory is writable");
    let options = import::Options {
        base: Template::redis("").expect("the template has its marks"),
        server: Template::haypile(&binary, "").expect("the template has its marks"),
        binary,
        keys: 20_000,
        rounds: 1,
        dir: place.data(),
        write_to: Some(place.data()),
    };
    import::run(&options).expect("it is imported");
    let page = std::fs::read_to_string(place.data().join("benchmarks.md")).expect("the page is written");
    assert!(page.contains("| redis-server | ") && page.contains("| `haypile import` | "), "{page}");
    assert!(page.contains("all 20000 keys were there") && !page.contains("NaN"), "{page}");
}

/// etcd's client is built from its module, which the first build fetches.
#[test]
fn one_server_is_measured_beside_three_of_etcd_and_writes_the_page() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let place = Workplace::new("raft-page", None).expect("the temporary directory is writable");
    let options = raft::Options {
        server: Template::haypile(&binary, "").expect("the template has its marks"),
        standalone: true,
        parts: vec![],
        cases: vec!["put-4k-50".to_string(), "get-16-200".to_string()],
        rounds: 1,
        window: Duration::from_millis(300),
        kills: 1,
        election: Duration::from_secs(1),
        dir: place.data(),
        write_to: Some(place.data()),
    };
    raft::run(&options).expect("both run");
    let page = std::fs::read_to_string(place.data().join("benchmarks.md")).expect("the page is written");
    assert!(page.contains("| put of 4 KB, 50 connections | **") && page.contains("take "), "{page}");
    assert!(page.contains("| linearizable get of 16 B, ") && page.contains("at pipeline 16, "), "{page}");
    assert!(!page.contains("NaN"), "{page}");
    let unknown = raft::Options { parts: vec!["colours".to_string()], ..options };
    assert!(raft::run(&unknown).expect_err("no such part").to_string().contains("etcd, single, "));
}
