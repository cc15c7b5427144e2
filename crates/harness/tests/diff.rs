//! The short form of `make diff`: kept sequences and generated ones, ours beside redis-server.

use haypile_harness::diff::{Kind, Options, SMALL_STORE, replay, run, sequence};
use haypile_harness::server::{Template, haypile_binary};

fn servers() -> (Template, Template) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let base = Template::redis("").expect("the template has its marks");
    let ours = Template::haypile(&binary, SMALL_STORE).expect("the template has its marks");
    (base, ours)
}

#[test]
fn kept_sequences_have_no_difference() {
    let (base, ours) = servers();
    let kept = sequence::kept_from_text(include_str!("data/diff-seeds.txt")).expect("the file is well formed");
    assert!(kept.len() > 10);
    let failed = replay(&base, &ours, &kept).expect("both servers run");
    assert!(failed.is_empty(), "these differ: {failed:?}");
}

#[test]
fn generated_sequences_have_no_difference() {
    let (base, server) = servers();
    // Always the same seeds, so that a change is told apart from luck; `make diff` looks further with every run.
    let runs = [(1, 200, Kind::Commands), (2, 200, Kind::Commands), (3, 150, Kind::Channels), (4, 40, Kind::Blocking)];
    for (seed, cases, kind) in runs {
        let save_to = std::env::temp_dir().join("haypile-diff");
        let options = Options {
            base: base.clone(),
            server: server.clone(),
            seed,
            first_case: 0,
            cases,
            kind,
            failures_max: 1,
            save_to,
        };
        assert!(run(&options).expect("both servers run"), "seed {seed} found a difference");
    }
}
