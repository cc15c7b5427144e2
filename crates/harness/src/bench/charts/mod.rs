//! The charts of docs/benchmarks.md, drawn from the tables of that page: so a chart shows what its table says, whoever
//! wrote it, and can be drawn anew without measuring.
//!
//! `table` reads a page's tables; `bars` and `curves` draw. Here is which chart takes what from which table.

mod bars;
mod curves;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::report::between;
use bars::Bar;
use curves::{Curve, Panel, Tone};
use table::Table;

/// A chart: its file beside the page, the marks between which its table stands, and how it is drawn.
struct Chart {
    file: &'static str,
    marks: &'static str,
    draw: fn(&[Table]) -> Result<String>,
}

const CHARTS: &[Chart] = &[
    Chart { file: "benchmarks.svg", marks: "bench", draw: ratios },
    Chart { file: "benchmarks-latency.svg", marks: "latency", draw: latency },
    Chart { file: "benchmarks-sizes.svg", marks: "sizes", draw: sizes },
    Chart { file: "benchmarks-workers.svg", marks: "workers", draw: workers },
];

/// The charts of a page as pairs of file name and SVG: each one whose table is there.
///
/// # Errors
/// A table lacks a column, or a figure in it is no number.
pub fn of_page(page: &str) -> Result<Vec<(&'static str, String)>> {
    let present = CHARTS.iter().filter_map(|chart| Some((chart, between(page, chart.marks)?)));
    present
        .map(|(chart, section)| {
            let svg = (chart.draw)(&Table::all(section)).with_context(|| format!("drawing {}", chart.file))?;
            Ok((chart.file, svg))
        })
        .collect()
}

/// Draws every chart whose table is in benchmarks.md of this directory.
///
/// # Errors
/// As [`of_page`], and those of the file system.
pub fn write(dir: &Path) -> Result<()> {
    let page = dir.join("benchmarks.md");
    let text = fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
    for (file, svg) in of_page(&text)? {
        fs::write(dir.join(file), svg).with_context(|| format!("writing {file}"))?;
    }
    Ok(())
}

fn ratios(tables: &[Table]) -> Result<String> {
    let table = table::first(tables)?;
    let (labels, ratios, targets) = (table.texts("case")?, table.numbers("of Redis")?, table.numbers("at most")?);
    let bars = labels.into_iter().zip(ratios.into_iter().zip(targets));
    Ok(bars::svg(&bars.map(|(label, (ratio, target))| Bar { label, ratio, target }).collect::<Vec<_>>()))
}

fn latency(tables: &[Table]) -> Result<String> {
    // The last two percentiles, a few requests each, are left to the table.
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
            places: SHOWN.map(str::to_string).to_vec(),
            curves: vec![curve("ours", "ours", Tone::First)?, curve("redis-server", "Redis", Tone::Redis)?],
            redis_is_one: false,
        })
    };
    let panels = table.distinct("load")?.into_iter().map(panel).collect::<Result<Vec<_>>>()?;
    Ok(curves::svg("Latency of many clients at pipeline 1 (lower is better)", "Percentiles over all rounds.", &panels))
}

const ONE: &str = "The red line is what stands at 1.";

fn sizes(tables: &[Table]) -> Result<String> {
    let table = table::first(tables)?;
    let panel = |pipeline: &str| -> Result<Panel> {
        let (get, set) = (format!("GET, {pipeline}"), format!("SET, {pipeline}"));
        Ok(Panel {
            title: pipeline.to_string(),
            places: table.only("case", &get)?.texts("value")?,
            curves: get_and_set(&table.only("case", &get)?, &table.only("case", &set)?, "of Redis")?,
            redis_is_one: true,
        })
    };
    let panels = [panel("pipeline 16")?, panel("pipeline 1")?];
    Ok(curves::svg("CPU time per request by the size of values, Redis = 1 (lower is better)", ONE, &panels))
}

fn workers(tables: &[Table]) -> Result<String> {
    let table = table::first(tables)?.except("workers", "redis-server")?;
    let panel = |title: &str, column: &str| -> Result<Panel> {
        let (get, set) = (table.only("case", "GET, pipeline 16")?, table.only("case", "SET, pipeline 16")?);
        Ok(Panel {
            title: title.to_string(),
            places: get.texts("workers")?,
            curves: get_and_set(&get, &set, column)?,
            redis_is_one: true,
        })
    };
    let panels = [panel("redis-server = 1", "of Redis")?, panel("one worker = 1", "of one worker")?];
    Ok(curves::svg("CPU time per request by the number of workers (lower is better)", ONE, &panels))
}

fn get_and_set(get: &Table, set: &Table, column: &str) -> Result<Vec<Curve>> {
    Ok(vec![
        Curve { name: "GET".to_string(), tone: Tone::First, values: get.numbers(column)? },
        Curve { name: "SET".to_string(), tone: Tone::Second, values: set.numbers(column)? },
    ])
}
