//! The table of cases: the requests, and the most that each may cost against redis-server.

/// The state of the keys before a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The server has no keys: the case writes its own.
    Nothing,
    /// All keys are there.
    Filled,
    /// All keys are there, and out of the memtable: only the base has them.
    FilledAndFlushed,
}

/// One case.
#[derive(Debug)]
pub struct Row {
    /// The name for `--rows`.
    pub id: &'static str,
    pub title: &'static str,
    /// The arguments of redis-benchmark that choose the requests.
    pub load: &'static [&'static str],
    pub pipeline: u32,
    /// The key space.
    pub keys: u64,
    pub value_bytes: u32,
    /// Requests in one round, before a write row is made long enough for its flushes.
    pub requests: u64,
    pub before: Before,
    /// Whether the row writes, and so has to see [`FLUSHES_MIN`] complete flushes.
    pub writes: bool,
    /// The most that our CPU time per request may be over that of redis-server.
    pub target: f64,
    /// A command that each server runs before the load; none if empty.
    pub first: &'static [&'static str],
    /// Directives of our server for this row alone.
    pub directives: &'static str,
    /// Whether the load comes over TLS.
    pub tls: bool,
}

/// The fewest complete flushes in a row that writes, so that their cost is counted.
pub const FLUSHES_MIN: u64 = 3;

const RANDOM_KEY: &str = "key:__rand_int__";

/// A script that is as short as most are.
const GET_SCRIPT: &str = "return redis.call('get', KEYS[1])";

const GET_SET_SCRIPT: &str = "redis.call('get', KEYS[1]) return redis.call('set', KEYS[1], ARGV[1])";

/// A script whose key is not declared.
const UNDECLARED_SCRIPT: &str = "local key = ARGV[1] redis.call('get', key) return redis.call('set', key, ARGV[2])";

/// The value of scripts that write.
const VALUE: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// A library of the scripts as functions.
const LIBRARY: &[&str] = &[
    "FUNCTION",
    "LOAD",
    "REPLACE",
    "#!lua name=bench\n\
    redis.register_function('get', function(keys) return redis.call('get', keys[1]) end)\n\
    redis.register_function('get_set', function(keys, args)\n\
    redis.call('get', keys[1]) return redis.call('set', keys[1], args[1]) end)\n\
    redis.register_function('incrs', function(keys) for i = 1, 10 do redis.call('incr', keys[1]) end end)",
];

/// A user who may use the keys and the commands of the load only, and one who may do everything.
const RESTRICTED: &[&str] = &["ACL", "SETUSER", "bench", "on", ">secret", "~key:*", "-@all", "+get", "+set"];
const UNRESTRICTED: &[&str] = &["ACL", "SETUSER", "bench", "on", ">secret", "~*", "&*", "+@all"];

/// GET over keys that are in memory.
const HOT: Row = Row {
    id: "get",
    title: "GET, hot, pipeline 16, 100 thousand keys",
    load: &["-t", "get"],
    pipeline: 16,
    keys: 100_000,
    value_bytes: 128,
    requests: 2_000_000,
    before: Before::Filled,
    writes: false,
    target: 0.75,
    first: &[],
    directives: "",
    tls: false,
};

const WRITE: Row = Row {
    id: "set",
    title: "SET, pipeline 16, 100 thousand keys",
    load: &["-t", "set"],
    before: Before::Nothing,
    writes: true,
    target: 0.8,
    ..HOT
};

pub const ROWS: &[Row] = &[
    HOT,
    WRITE,
    Row { id: "set-1m", title: "SET, pipeline 16, 1 million keys", keys: 1_000_000, target: 1.1, ..WRITE },
    Row { id: "incr", title: "INCR, pipeline 16, 100 thousand keys", load: &["-t", "incr"], target: 1.0, ..WRITE },
    Row {
        id: "mset",
        title: "MSET of 10 keys, pipeline 16, 100 thousand keys",
        load: &["-t", "mset"],
        requests: 300_000,
        target: 1.0,
        ..WRITE
    },
    Row {
        id: "mget",
        title: "MGET of 10 keys, pipeline 16, 100 thousand keys",
        load: &[
            "MGET", RANDOM_KEY, RANDOM_KEY, RANDOM_KEY, RANDOM_KEY, RANDOM_KEY, RANDOM_KEY, RANDOM_KEY, RANDOM_KEY,
            RANDOM_KEY, RANDOM_KEY,
        ],
        requests: 300_000,
        target: 1.0,
        ..HOT
    },
    Row { id: "get-p1", title: "GET, hot, pipeline 1", pipeline: 1, requests: 400_000, target: 1.0, ..HOT },
    Row { id: "set-p1", title: "SET, pipeline 1", pipeline: 1, requests: 400_000, target: 1.0, ..WRITE },
    Row { id: "tls-get", title: "GET over TLS, hot, pipeline 16", requests: 1_000_000, target: 1.0, tls: true, ..HOT },
    Row { id: "tls-set", title: "SET over TLS, pipeline 16", requests: 1_000_000, target: 1.0, tls: true, ..WRITE },
    Row {
        id: "tls-get-p1",
        title: "GET over TLS, hot, pipeline 1",
        pipeline: 1,
        requests: 200_000,
        target: 1.0,
        tls: true,
        ..HOT
    },
    Row {
        id: "tls-set-p1",
        title: "SET over TLS, pipeline 1",
        pipeline: 1,
        requests: 200_000,
        target: 1.0,
        tls: true,
        ..WRITE
    },
    Row {
        id: "get-tracking",
        title: "GET by clients that track, hot, pipeline 16",
        load: &["--enable-tracking", "-t", "get"],
        requests: 1_000_000,
        target: 1.3,
        // Of fifty clients that keep a hundred thousand keys each the table has five million entries.
        directives: "--maxmemory 2gb",
        ..HOT
    },
    Row {
        id: "set-bcast",
        title: "SET while a client tracks all keys, pipeline 16",
        first: &["CLIENT", "TRACKING", "ON", "BCAST"],
        requests: 1_000_000,
        target: 1.3,
        ..WRITE
    },
    Row {
        id: "eval-get",
        title: "EVAL of a GET, pipeline 16",
        load: &["EVAL", GET_SCRIPT, "1", RANDOM_KEY],
        requests: 500_000,
        target: 1.2,
        ..HOT
    },
    Row {
        id: "evalsha-get",
        title: "EVALSHA of a GET, pipeline 16",
        load: &["EVALSHA", "4e6d8fc8bb01276962cce5371fa795a7763657ae", "1", RANDOM_KEY],
        first: &["SCRIPT", "LOAD", GET_SCRIPT],
        requests: 500_000,
        target: 1.2,
        ..HOT
    },
    Row {
        id: "evalsha-get-p1",
        title: "EVALSHA of a GET, pipeline 1",
        load: &["EVALSHA", "4e6d8fc8bb01276962cce5371fa795a7763657ae", "1", RANDOM_KEY],
        first: &["SCRIPT", "LOAD", GET_SCRIPT],
        pipeline: 1,
        requests: 200_000,
        target: 1.2,
        ..HOT
    },
    Row {
        id: "fcall-get",
        title: "FCALL of a GET, pipeline 16",
        load: &["FCALL", "get", "1", RANDOM_KEY],
        first: LIBRARY,
        requests: 500_000,
        target: 1.2,
        ..HOT
    },
    Row {
        id: "eval-get-set",
        title: "EVAL of a GET and a SET, pipeline 16",
        load: &["EVAL", GET_SET_SCRIPT, "1", RANDOM_KEY, VALUE],
        requests: 500_000,
        target: 1.2,
        ..WRITE
    },
    Row {
        id: "evalsha-get-set",
        title: "EVALSHA of a GET and a SET, pipeline 16",
        load: &["EVALSHA", "68c3d2068721dc258a1f68ab1efd64d1d15a2cfa", "1", RANDOM_KEY, VALUE],
        first: &["SCRIPT", "LOAD", GET_SET_SCRIPT],
        requests: 500_000,
        target: 1.2,
        ..WRITE
    },
    Row {
        id: "fcall-get-set",
        title: "FCALL of a GET and a SET, pipeline 16",
        load: &["FCALL", "get_set", "1", RANDOM_KEY, VALUE],
        first: LIBRARY,
        requests: 500_000,
        target: 1.2,
        ..WRITE
    },
    Row {
        id: "evalsha-undeclared",
        title: "EVALSHA of a GET and a SET of a key that was not declared, pipeline 16",
        load: &["EVALSHA", "68a627607459271c4eb72460141d17b5aa09e9c7", "0", RANDOM_KEY, VALUE],
        first: &["SCRIPT", "LOAD", UNDECLARED_SCRIPT],
        requests: 500_000,
        target: 1.2,
        ..WRITE
    },
    Row {
        id: "eval-incrs",
        title: "EVAL of ten INCRs, pipeline 16",
        load: &["EVAL", "for i = 1, 10 do redis.call('incr', KEYS[1]) end", "1", RANDOM_KEY],
        requests: 200_000,
        target: 1.2,
        ..WRITE
    },
    Row {
        id: "fcall-incrs",
        title: "FCALL of ten INCRs, pipeline 16",
        load: &["FCALL", "incrs", "1", RANDOM_KEY],
        first: LIBRARY,
        requests: 200_000,
        target: 1.2,
        ..WRITE
    },
    Row {
        id: "get-restricted",
        title: "GET by a user with restrictions, hot, pipeline 16",
        load: &["--user", "bench", "-a", "secret", "-t", "get"],
        first: RESTRICTED,
        target: 1.0,
        ..HOT
    },
    Row {
        id: "set-restricted",
        title: "SET by a user with restrictions, pipeline 16",
        load: &["--user", "bench", "-a", "secret", "-t", "set"],
        first: RESTRICTED,
        target: 1.0,
        ..WRITE
    },
    Row {
        id: "get-named",
        title: "GET by a named user without restrictions, hot, pipeline 16",
        load: &["--user", "bench", "-a", "secret", "-t", "get"],
        first: UNRESTRICTED,
        target: 1.0,
        ..HOT
    },
    Row {
        id: "set-named",
        title: "SET by a named user without restrictions, pipeline 16",
        load: &["--user", "bench", "-a", "secret", "-t", "set"],
        first: UNRESTRICTED,
        target: 1.0,
        ..WRITE
    },
    Row {
        id: "set-10k",
        title: "SET of 10 KB, pipeline 1",
        pipeline: 1,
        keys: 10_000,
        value_bytes: 10_240,
        requests: 200_000,
        target: 1.0,
        ..WRITE
    },
    Row {
        id: "get-block-cache",
        title: "GET from the block cache alone, pipeline 16",
        before: Before::FilledAndFlushed,
        target: 3.0,
        directives: "--row-cache-size 0 --memtable-size 16mb",
        ..HOT
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own() {
        let mut ids: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| row.writes == (row.before == Before::Nothing)));
    }

    #[test]
    fn rows_of_evalsha_load_their_script_first() {
        use sha1::{Digest, Sha1};
        let name = |script: &str| Sha1::digest(script).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let rows: Vec<_> = ROWS.iter().filter(|row| row.load[0] == "EVALSHA").collect();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.first[..2] == ["SCRIPT", "LOAD"] && row.load[1] == name(row.first[2])));
    }
}
