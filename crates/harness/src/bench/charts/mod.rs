//! The charts of docs/benchmarks.md: `bars` for the table of ratios, `curves` for the sweeps and the latencies.

pub mod bars;
pub mod curves;
