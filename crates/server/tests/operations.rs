//! docs/operations.md stays true where a test can say so: the fields of INFO and the directives that it names are
//! there.

mod process;

use process::{Server, TempDir};
use std::path::PathBuf;

fn page() -> String {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    std::fs::read_to_string(package.join("../../docs/operations.md")).expect("the page is there")
}

/// Returns the texts between backticks in the first cells of the tables below `heading`.
fn first_cells<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, rest) = page.split_once(heading).unwrap_or_else(|| panic!("there is {heading}"));
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn what_the_page_names_is_there() {
    let page = page();
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let info = client.ask("INFO everything");
    let fields = first_cells(&page, "\n## Watch\n");
    assert!(fields.len() > 10, "{fields:?}");
    for field in fields.iter().filter(|field| !field.starts_with("...")) {
        assert!(info.contains(&format!("\n{field}:")), "INFO has {field}");
    }
    let directives = [first_cells(&page, "\n## Set at the beginning\n"), first_cells(&page, "\n## Tune\n")].concat();
    assert!(directives.len() > 15, "{directives:?}");
    for directive in directives {
        assert!(client.ask(&format!("CONFIG GET {directive}")).starts_with("*2\r\n"), "there is {directive}");
    }
    server.stop();
}
