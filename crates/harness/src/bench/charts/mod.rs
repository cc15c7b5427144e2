//! The charts of docs/benchmarks.md, drawn from the tables of that page: so a chart shows what its table says, and can
//! be drawn anew without measuring.
//!
//! `table` reads a page's tables; `bars` and `curves` draw, in the `frame` that they share. This file says which chart
//! is drawn from which table.

mod bars;
mod curves;
mod frame;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::report::between;
use super::rows::ROWS;
use bars::{Bar, Of, Section};
use curves::{Curve, Panel, Peak, Scale, Tone};
use table::Table;

/// A chart: its file beside the page, the marks between which its tables stand (those of the first marks must be
/// there), and the function that draws it from all of these tables.
struct Chart {
    file: &'static str,
    marks: &'static [&'static str],
    draw: fn(&[Table]) -> Result<String>,
}

const CHARTS: &[Chart] = &[
    Chart { file: "benchmarks.svg", marks: &["bench", "field"], draw: ratios },
    Chart { file: "benchmarks-latency.svg", marks: &["latency"], draw: latency },
    Chart { file: "benchmarks-sizes.svg", marks: &["sizes"], draw: sizes },
    Chart { file: "benchmarks-workers.svg", marks: &["workers"], draw: workers },
];

/// Returns the charts of a page whose tables are there, as pairs of file name and SVG.
///
/// # Errors
/// A table lacks a column, or a figure in it is no number.
pub fn of_page(page: &str) -> Result<Vec<(&'static str, String)>> {
    let is_there = |chart: &&Chart| chart.marks.first().is_some_and(|marks| between(page, marks).is_some());
    let draw = |chart: &Chart| {
        let sections = chart.marks.iter().filter_map(|marks| between(page, marks));
        let tables: Vec<Table> = sections.flat_map(Table::all).collect();
        let svg = (chart.draw)(&tables).with_context(|| format!("drawing {}", chart.file))?;
        Ok((chart.file, svg))
    };
    CHARTS.iter().filter(is_there).map(draw).collect()
}

/// Draws every chart whose table is in benchmarks.md of this directory.
///
/// # Errors
/// The errors of [`of_page`], and those of the file system.
pub fn write(dir: &Path) -> Result<()> {
    let page = dir.join("benchmarks.md");
    let text = fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
    for (file, svg) in of_page(&text)? {
        fs::write(dir.join(file), svg).with_context(|| format!("writing {file}"))?;
    }
    Ok(())
}

/// The commands that other servers were measured with, and the ids of the comparable rows of the table of ratios.
const FIELD: &[(&str, &str)] = &[("GET", "get"), ("SET", "set"), ("INCR", "incr")];

fn ratios(tables: &[Table]) -> Result<String> {
    let table = table::first(tables)?;
    let (labels, figures) = (table.texts("case")?, table.figures("of Redis")?);
    let targets = table.numbers("at most")?;
    let bars = labels.into_iter().zip(figures.into_iter().zip(targets));
    let bars = bars.map(|(label, ((figure, ratio), target))| {
        let target = Some(target);
        Bar { label, figure, ratio, target, of: Of::Haypile }
    });
    let mut sections = vec![Section { heading: "Haypile".to_string(), groups: vec![bars.collect()] }];
    if let Some(field) = tables.get(1) {
        let groups = FIELD.iter().filter_map(|(command, id)| others(table, field, command, id).transpose());
        let heading = "For scale: other disk-backed servers, pipeline 16, 100 thousand keys".to_string();
        sections.push(Section { heading, groups: groups.collect::<Result<_>>()? });
    }
    Ok(bars::svg("CPU time per request, redis-server 7.0 = 1 (shorter is better)", "redis-server 7.0 = 1", &sections))
}

/// Returns the bars of a command's cost, Haypile's and the other servers', if its row was measured.
fn others(table: &Table, field: &Table, command: &str, id: &str) -> Result<Option<Vec<Bar>>> {
    let title = ROWS.iter().find(|row| row.id == id).map_or(id, |row| row.title);
    let Ok(ours) = table.only("case", title) else { return Ok(None) };
    let bar = |server: &str, (figure, ratio): (String, f64), of| {
        let label = format!("{command}, {server}");
        Bar { label, figure, ratio, target: None, of }
    };
    let mut bars: Vec<Bar> =
        ours.figures("of Redis")?.into_iter().map(|figure| bar("Haypile", figure, Of::Haypile)).collect();
    let servers = field.texts("server")?.into_iter().zip(field.texts("measured")?);
    for ((server, date), figure) in servers.zip(field.figures(command)?) {
        bars.push(bar(&format!("{server} ({date})"), figure, Of::AnotherServer));
    }
    Ok(Some(bars))
}

fn latency(tables: &[Table]) -> Result<String> {
    // The last two percentiles rest on a few requests each and are left to the table.
    const SHOWN: [&str; 4] = ["p50", "p90", "p99", "p99.9"];
    let table = table::first(tables)?;
    let panel = |load: &str| -> Result<Panel> {
        let curve = |name: &str, server: &str, tone| -> Result<Curve> {
            let row = table.only("load", load)?.only("server", server)?;
            let values = SHOWN.iter().map(|title| row.numbers(title)).collect::<Result<Vec<_>>>()?.concat();
            Ok(Curve { name: name.to_string(), tone, values })
        };
        Ok(Panel {
            title: format!("{load}, ms"),
            ticks: SHOWN.map(str::to_string).to_vec(),
            curves: vec![curve("Haypile", "ours", Tone::First)?, curve("redis-server 7.0", "Redis", Tone::Redis)?],
            scale: Scale::Linear,
        })
    };
    let panels = table.distinct("load")?.into_iter().map(panel).collect::<Result<Vec<_>>>()?;
    let title = "Latency of many clients at pipeline 1 (lower is better)";
    Ok(curves::svg(title, None, "Percentiles over all rounds.", &panels, &[]))
}

/// The reasons why curves of the sweep of sizes are steep.
const PEAKS: &[Peak] = &[
    Peak {
        at: ("pipeline 16", "GET", "1 KB"),
        caption: "100 MB of values are more than the memtable and the row cache hold (72 MB here): most reads ask RocksDB.",
    },
    Peak {
        at: ("pipeline 1", "SET", "100 KB"),
        caption: "Overwritten values make room by compactions, which take most of the CPU time here.",
    },
];

fn sizes(tables: &[Table]) -> Result<String> {
    let table = table::first(tables)?;
    let panel = |pipeline: &str| -> Result<Panel> {
        let (get, set) = (format!("GET, {pipeline}"), format!("SET, {pipeline}"));
        Ok(Panel {
            title: pipeline.to_string(),
            ticks: table.only("case", &get)?.texts("value")?,
            curves: get_and_set(&table.only("case", &get)?, &table.only("case", &set)?, "of Redis")?,
            scale: Scale::Ratio,
        })
    };
    let panels = [panel("pipeline 16")?, panel("pipeline 1")?];
    let title = "CPU time per request by the size of values (lower is better)";
    Ok(curves::svg(title, Some("redis-server 7.0 = 1"), "", &panels, PEAKS))
}

fn workers(tables: &[Table]) -> Result<String> {
    let table = table::first(tables)?.except("workers", "redis-server")?;
    let panel = |title: &str, column: &str| -> Result<Panel> {
        let (get, set) = (table.only("case", "GET, pipeline 16")?, table.only("case", "SET, pipeline 16")?);
        Ok(Panel {
            title: title.to_string(),
            ticks: get.texts("workers")?,
            curves: get_and_set(&get, &set, column)?,
            scale: Scale::Ratio,
        })
    };
    let panels = [panel("beside redis-server 7.0", "of Redis")?, panel("beside one worker", "of one worker")?];
    let title = "CPU time per request by the number of workers (lower is better)";
    Ok(curves::svg(title, Some("1 = redis-server 7.0 on the left, one worker on the right"), "", &panels, &[]))
}

fn get_and_set(get: &Table, set: &Table, column: &str) -> Result<Vec<Curve>> {
    Ok(vec![
        Curve { name: "GET".to_string(), tone: Tone::First, values: get.numbers(column)? },
        Curve { name: "SET".to_string(), tone: Tone::Second, values: set.numbers(column)? },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_meets_a_text_in_the_charts_of_the_page() {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
        let page = fs::read_to_string(Path::new(&package).join("../../docs/benchmarks.md")).expect("the page is there");
        for (file, svg) in of_page(&page).expect("the tables are complete") {
            println!("{file}");
            frame::testing::no_text_is_met(&svg);
        }
    }
}
