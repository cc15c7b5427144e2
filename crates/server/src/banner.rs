//! Log lines about the start of a server.

use crate::storage::Budget;
use haypile_config::{Config, Engine};

/// Logs the version, the data directory and how the memory is split.
pub fn starting(config: &Config, workers: usize, budget: &Budget) {
    let mib = |bytes: u64| format!("{} MB", bytes >> 20);
    let engine = match config.engine {
        Engine::RocksDb => "rocksdb",
        Engine::Memory => "memory (nothing is kept after a stop)",
    };
    tracing::info!("{} starts, process id {}", haypile_config::cli::VERSION, std::process::id());
    tracing::info!(
        "data in {}, engine {engine}, durability {}, {workers} event loops, {} threads for reads",
        config.dir.display(),
        config.durability.name(),
        config.io_pool
    );
    tracing::info!(
        "memory budget {}: memtables {}, row cache {}, block cache {}, log {}, presence {}, the rest for all else",
        mib(budget.total),
        mib(budget.memtables()),
        mib(budget.row_cache),
        mib(budget.block_cache),
        mib(budget.unsynced),
        mib(budget.presence)
    );
}
