//! docs/info.md: what the fields of INFO mean, from their table. A test keeps the page current, and
//! `cargo run --release -p haypile-engine --example write_info` writes it.

use super::field::Field;
use super::figures::{FIGURES, Grows};
use super::{TABLE, clients, commands, group, metrics, persistence, replication};
use std::fmt::Write;

/// The whole page.
pub fn page() -> String {
    let mut page = String::new();
    let mut line = |text: &str| writeln!(page, "{text}").expect("a string takes any text");
    line("# INFO and /metrics");
    line("");
    line("Generated from the table of fields (`crates/engine/src/info`); change that, then run `make docs`.");
    line("");
    line("A *counter* grows until CONFIG RESETSTAT or the end of the process, a *gauge* goes up and down; both are in");
    line(
        "/metrics (`metrics-port`) under the name in the last column. A *constant* is a field of Redis that has no other value",
    );
    line("here, for the reason given.");
    for section in &TABLE {
        if section.fields.is_empty() {
            continue;
        }
        line("");
        line(&format!("## {}", section.shown.title));
        line("");
        line("| field | kind | | metric |");
        line("|---|---|---|---|");
        section.fields.iter().for_each(|field| line(&row(field)));
    }
    line("");
    line("## Persistence, while the log is replayed");
    line("");
    line("| field | kind | | metric |");
    line("|---|---|---|---|");
    persistence::LOADING.iter().for_each(|field| line(&row(field)));
    line("");
    line("## Replication, on a replica");
    line("");
    line("| field | kind | | metric |");
    line("|---|---|---|---|");
    replication::OF_REPLICA.iter().for_each(|field| line(&row(field)));
    line("");
    line("## Replication, where `replicas-to-ack` is set");
    line("");
    line("| field | kind | | metric |");
    line("|---|---|---|---|");
    replication::OF_ACKNOWLEDGED.iter().for_each(|field| line(&row(field)));
    line("");
    line("## Store, Log, Cache, RocksDB");
    line("");
    line("Those of RocksDB are as of the last half second: to ask it may take long.");
    line("");
    line("| field | kind | | metric |");
    line("|---|---|---|---|");
    for (name, grows, about) in FIGURES {
        let kind = if *grows == Grows::Yes { "counter" } else { "gauge" };
        line(&format!("| `{name}` | {kind} | {about} | `{}` |", metrics::figure_name(name, *grows)));
    }
    line("");
    line("## Fields whose names depend on what happens");
    line("");
    line("| section | field | |");
    line("|---|---|---|");
    let of_others = commands::PATTERNS.iter().chain(replication::PATTERNS).chain(group::PATTERNS);
    for (section, field, about) in clients::PATTERNS.iter().chain(of_others) {
        line(&format!("| {section} | `{field}` | {about} |"));
    }
    line("");
    line("## Metrics that are no fields of INFO");
    line("");
    line("| metric | type | |");
    line("|---|---|---|");
    for (name, kind, about) in metrics::FAMILIES {
        line(&format!("| `{name}` | {} | {about} |", kind.name()));
    }
    page
}

fn row(field: &Field) -> String {
    let metric = metrics::name_of(field).map_or(String::new(), |name| format!("`{name}`"));
    format!("| `{}` | {} | {} | {metric} |", field.name, field.kind(), field.about)
}
