//! The protocol of a run stands once in the engine, what a run holds is given back by guards, and a command returns its
//! changes beside rows.

use crate::source::sources;

/// The engine's files in which some code occurs, each as often as it does.
fn files_with(code: &str) -> Vec<String> {
    files_of("engine", code)
}

fn files_of(name: &str, code: &str) -> Vec<String> {
    let sources = sources(name);
    sources.iter().flat_map(|source| source.code.matches(code).map(|_| source.path.clone())).collect()
}

#[test]
fn one_function_of_the_engine_commits() {
    assert_eq!(
        files_with(".commit("),
        ["run/protocol.rs"],
        "`conclude` commits: it keeps the order of what comes then"
    );
}

#[test]
fn one_function_of_the_engine_marks_and_then_tells() {
    for code in ["watches.any()", "watches.on_commit(", "watches.on_exchange(", "watches.on_record("] {
        assert_eq!(files_with(code), ["run/protocol.rs"], "`make_known` keeps the order: `{code}…`");
    }
    for code in [".invalidate_changed(", ".invalidate_key("] {
        assert_eq!(files_with(code), ["run/protocol.rs"], "`make_known` keeps the order: `{code}…`");
    }
}

#[test]
fn guards_give_back_what_a_run_holds() {
    for code in
        [".unlock(", ".try_lock(", ".leave_pool(", ".enter_pool(", "exclusion.open()", "exclusion.ask_exclusive("]
    {
        let others: Vec<String> = files_with(code).into_iter().filter(|path| path != "keys/admission.rs").collect();
        assert!(others.is_empty(), "`keys::admission` has guards that do `{code}…)` in {others:?}");
    }
}

#[test]
fn only_turns_of_event_loops_enter_the_exclusion_by_hand() {
    for code in ["exclusion.enter(", "exclusion.leave("] {
        let places = ["keys/admission.rs", "run/worker.rs"];
        assert_eq!(files_with(code), places, "a guard does `{code}…)`, but for an event loop's turns");
    }
}

#[test]
fn every_transaction_of_a_run_is_prepared() {
    // A run of `together` only looks for rows that have to be loaded: it has no reply and no effect.
    let runs = |path: &str| path.starts_with("run/") && path != "run/together.rs";
    for source in sources("engine").iter().filter(|source| runs(&source.path)) {
        let count = |code: &str| source.code.matches(code).count();
        let begun = count("store.begin(");
        assert!(count(" prepare(") >= begun, "run/{}: {begun} transactions begin, and fewer are prepared", source.path);
    }
}

#[test]
fn commands_only_ask_their_host() {
    let mut changing = files_of("commands", "&mut self");
    changing.retain(|path| path.starts_with("table/host/"));
    assert_eq!(changing, ["table/host/mod.rs"], "`in_transaction` alone writes; other changes are acts");
}
