//! Threads and timers of Redis that have no counterpart here.

use super::Row;
use super::kinds::*;
use crate::kind::Kind;

/// Redis's `CONFIG_MIN_HZ` and `CONFIG_MAX_HZ`.
const HZ: Kind = Kind::Clamped { min: 1, max: 500, unit: "" };

pub(super) const ROWS: &[Row] = &[
    Row::harmless("hz", HZ, "10", "How often a second Redis does its housekeeping."),
    Row::harmless("dynamic-hz", BOOL, "yes", "Does it more often with many clients."),
    Row::harmless(
        "active-expire-effort",
        int(1, 10),
        "1",
        "Effort to find expired keys; Haypile has an index of deadlines.",
    ),
    Row::harmless("activerehashing", BOOL, "yes", "Rehashes tables in the background."),
    Row::harmless("io-threads", int(1, 128), "1", "Threads that read and write sockets; see `workers`.").immutable(),
    Row::harmless("io-threads-do-reads", BOOL, "no", "Whether those threads read and parse.").immutable(),
];
