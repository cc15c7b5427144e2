//! Clients that wait for a backup, and what is said while one is made and when it has failed.

mod server;

use haypile_engine::{Archive, Made};
use haypile_log::Index;
use haypile_store::Store;
use server::{PATIENCE, Server};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An archive that makes each backup when the test says how it ends.
struct Scripted {
    begun: Mutex<Sender<Index>>,
    outcomes: Mutex<Receiver<Result<(), String>>>,
    tidied: Arc<Mutex<u32>>,
}

impl Archive for Scripted {
    fn back_up(&self, store: &Store, goes_on: &dyn Fn() -> bool) -> Result<Made, String> {
        let index = store.log().last();
        self.begun.lock().expect("no panic").send(index).map_err(|error| error.to_string())?;
        let outcomes = self.outcomes.lock().expect("no panic");
        let since = Instant::now();
        while goes_on() && since.elapsed() < PATIENCE {
            if let Ok(outcome) = outcomes.recv_timeout(Duration::from_millis(1)) {
                return outcome.map(|()| Made { name: format!("backup-{index}"), index, bytes: 42 });
            }
        }
        Err("broken off".into())
    }

    fn tidy(&self) -> Option<Duration> {
        let mut tidied = self.tidied.lock().expect("no panic");
        *tidied += 1;
        // Something to do after each backup, three pieces of it.
        (!tidied.is_multiple_of(3)).then_some(Duration::ZERO)
    }
}

struct Script {
    begun: Receiver<Index>,
    outcomes: Sender<Result<(), String>>,
    tidied: Arc<Mutex<u32>>,
}

impl Script {
    fn wait_begun(&self) -> Index {
        self.begun.recv_timeout(PATIENCE).expect("a backup begins")
    }

    fn end(&self, outcome: Result<(), &str>) {
        self.outcomes.send(outcome.map_err(str::to_owned)).expect("somebody waits");
    }
}

fn serve() -> (Server, Script) {
    let server = Server::loading();
    let ((begin, begun), (outcomes, told)) = (channel(), channel());
    let tidied = Arc::new(Mutex::new(0));
    server.engine.keep_backups(Box::new(Scripted {
        begun: Mutex::new(begin),
        outcomes: Mutex::new(told),
        tidied: tidied.clone(),
    }));
    server.engine.serve(server.store.store.clone()).expect("threads can start");
    (server, Script { begun, outcomes, tidied })
}

fn wait_until(server: &mut Server, field: &str, value: &str) {
    let since = Instant::now();
    while server.info(0, field) != value {
        assert!(since.elapsed() < PATIENCE, "{field} does not become {value}");
        std::thread::yield_now();
    }
}

#[test]
fn save_waits_and_nobody_else_does() {
    let (mut server, script) = serve();
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    server.send_together(1, &["SET mine 1", "SAVE", "GET mine"]);
    let index = script.wait_begun();
    assert!(server.waits(1));
    assert_eq!(server.reply_of_what_ran(1), "+OK", "only what came before it");
    assert_eq!(server.ask(0, "SET k w"), "+OK");
    assert_eq!(server.ask(0, "GET k"), "$1 w");
    assert_eq!(server.info(0, "rdb_bgsave_in_progress"), "1");
    assert_eq!(server.info(0, "rdb_current_bgsave_time_sec"), "0");
    let busy = "-ERR Background save already in progress";
    for command in ["SAVE", "BGSAVE", "BGSAVE SCHEDULE"] {
        assert_eq!(server.ask(0, command), busy, "{command}");
    }
    script.end(Ok(()));
    assert_eq!(server.reply(1), "+OK $1 1");
    assert_eq!(server.info(0, "rdb_bgsave_in_progress"), "0");
    assert_eq!(server.info(0, "rdb_current_bgsave_time_sec"), "-1");
    assert_eq!(server.info(0, "rdb_last_bgsave_time_sec"), "0");
    assert_eq!(server.info(0, "rdb_saves"), "1");
    assert_eq!(server.info(0, "backup_last_name"), format!("backup-{index}"));
    assert_eq!(server.info(0, "rdb_changes_since_last_save"), "1");
}

#[test]
fn a_failed_backup_says_why_in_one_line() {
    let (mut server, script) = serve();
    let start = server.ask(0, "LASTSAVE");
    server.send(0, "SAVE");
    script.wait_begun();
    script.end(Err("IO error:\r\nno room"));
    assert_eq!(server.reply(0), "-ERR the backup failed: IO error:  no room");
    assert_eq!(server.info(0, "rdb_last_bgsave_status"), "err");
    assert_eq!(server.ask(0, "LASTSAVE"), start);
    assert_eq!(server.ask(0, "BGSAVE"), "+Background saving started");
    script.wait_begun();
    script.end(Ok(()));
    wait_until(&mut server, "rdb_last_bgsave_status", "ok");
    assert_eq!(server.info(0, "rdb_saves"), "2");
    let since = Instant::now();
    // Nobody asks for another one: the last piece goes without that.
    while !script.tidied.lock().expect("no panic").is_multiple_of(3) {
        assert!(since.elapsed() < PATIENCE, "what is left is removed between backups");
        std::thread::yield_now();
    }
}

#[test]
fn in_a_block_a_backup_is_put_off_until_its_effects_are_there() {
    let (mut server, script) = serve();
    for (command, reply) in [("MULTI", "+OK"), ("BGSAVE", "+QUEUED"), ("SET k v", "+QUEUED")] {
        assert_eq!(server.ask(0, command), reply);
    }
    assert_eq!(server.ask(0, "EXEC"), "*2 +Background saving scheduled +OK");
    assert_eq!(server.info(0, "rdb_bgsave_in_progress"), "0");
    let last = server.store.store.log().last();
    server.engine.begin_scheduled_backup();
    assert!(script.wait_begun() >= last);
    script.end(Ok(()));
    wait_until(&mut server, "rdb_bgsave_in_progress", "0");
    server.engine.begin_scheduled_backup();
    assert_eq!(server.info(0, "rdb_saves"), "1", "it was asked for once");
}

#[test]
fn a_stop_does_not_wait_for_a_backup() {
    let (mut server, script) = serve();
    assert_eq!(server.ask(0, "BGSAVE"), "+Background saving started");
    script.wait_begun();
    let since = Instant::now();
    server.engine.close();
    assert!(since.elapsed() < PATIENCE / 2);
}

#[test]
fn without_a_place_there_are_no_backups() {
    let mut server = Server::new();
    assert_eq!(server.ask(0, "SAVE"), "-ERR this server has no place for backups");
    assert_eq!(server.ask(0, "BGSAVE"), "-ERR this server has no place for backups");
    let mut loading = Server::loading();
    assert!(loading.ask(0, "SAVE").starts_with("-LOADING"));
    assert!(loading.ask(0, "LASTSAVE").starts_with(':'));
}

/// The fields of redis-server 7.0 with `appendonly yes`, in its order.
const REDIS_FIELDS: &str = "loading async_loading current_cow_peak current_cow_size current_cow_size_age current_fork_perc \
    current_save_keys_processed current_save_keys_total rdb_changes_since_last_save rdb_bgsave_in_progress \
    rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves \
    rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress \
    aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_rewrites \
    aof_rewrites_consecutive_failures aof_last_write_status aof_last_cow_size module_fork_in_progress \
    module_fork_last_cow_size aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length aof_pending_bio_fsync \
    aof_delayed_fsync";

const REDIS_FIELDS_OF_LOADING: &str = "loading_start_time loading_total_bytes loading_rdb_used_mem loading_loaded_bytes \
    loading_loaded_perc loading_eta_seconds";

#[test]
fn info_has_the_fields_of_redis_for_persistence() {
    let fields = |server: &mut Server| -> Vec<String> {
        let text = server.ask(0, "INFO persistence");
        let fields = text.split(' ').filter_map(|field| field.split_once(':'));
        fields.map(|(name, _)| name.to_owned()).collect()
    };
    let of_redis = |names: &str| -> Vec<String> { names.split_whitespace().map(str::to_owned).collect() };
    let (mut server, _script) = serve();
    let found = fields(&mut server);
    let known: Vec<String> = found.iter().filter(|name| REDIS_FIELDS.contains(&***name)).cloned().collect();
    assert_eq!(known, of_redis(REDIS_FIELDS));
    assert_eq!(server.info(0, "aof_enabled"), "1");
    assert_eq!(server.ask(0, "SET k v"), "+OK");
    assert!(server.info(0, "aof_current_size").parse::<u64>().expect("a number") > 4096);
    assert_eq!(server.info(0, "rdb_changes_since_last_save"), "1");
    assert_eq!(server.info(0, "aof_last_write_status"), "ok");
    let found = fields(&mut Server::loading());
    assert!(of_redis(REDIS_FIELDS_OF_LOADING).iter().all(|name| found.contains(name)), "{found:?}");
}
