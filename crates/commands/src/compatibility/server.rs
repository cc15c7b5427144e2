//! Deliberate differences in what is about the server and its clients: scripts, transactions, users, messages, the
//! configuration, and other nodes. Those in commands on data are in `values`.

use super::Difference;

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        commands: &["command|docs"],
        what: "Summaries are in our own words. The names and types of arguments are those of Redis 7.0, without the \
               `display_text` that 7.2 added.",
        why: "Clients read the structure, people the summaries; the structure is compared with redis-server 7.0.",
        test: "info_and_docs_equal_those_of_redis_server",
    },
    Difference {
        commands: &[
            "command|help",
            "config|help",
            "client|help",
            "pubsub|help",
            "acl|help",
            "module|help",
            "slowlog|help",
            "script|help",
            "function|help",
            "latency|help",
            "memory|help",
            "object|help",
            "xgroup|help",
            "xinfo|help",
            "cluster|help",
        ],
        what: "HELP lists the subcommands that this server has, with the summaries of COMMAND DOCS.",
        why: "It is made from the command table, so that it cannot promise what is not there.",
        test: "help_lists_the_subcommands_of_the_table",
    },
    Difference {
        commands: &["config|set"],
        what: "`maxclients` leaves 512 of the files that the process may have open, or half of them, to other uses, where Redis \
               leaves 32. The soft limit is raised to the hard one, which stays also where the process might raise it.",
        why: "The base keeps its files open. A hard limit is the administrator's word.",
        test: "maxclients_are_as_many_as_the_hard_limit_allows",
    },
    Difference {
        commands: &["eval", "eval_ro", "evalsha", "evalsha_ro"],
        what: "A script is one transaction, which may run several times until it has all its rows and keys, each time from its \
               beginning with the same random numbers; what is not in the data (`redis.log`) it may do more than once. If it \
               changes more than `txn-bytes-max`, or the store stops it, nothing of it stands.",
        why: "So a script is all or nothing across a crash, and one that reads from the disk stops nobody else.",
        test: "what_a_script_has_written_stands_as_a_whole_also_behind_an_error_and_a_kill",
    },
    Difference {
        commands: &["eval", "eval_ro", "evalsha", "evalsha_ro"],
        what: "Scripts that only EVAL has put into the cache stay as long as they are among the newest 500; those of SCRIPT LOAD \
               stay until SCRIPT FLUSH. Redis 7.4 does the same. Of the commands of a Redis that is followed, 10,000 \
               scripts (64 MiB) stay beside these, those that it has named the longest.",
        why: "Programs that put values into the text of their scripts would fill the memory. An old Redis sends a text \
              once, and the name alone from then on.",
        test: "loaded_scripts_stay_and_of_the_others_the_newest",
    },
    Difference {
        commands: &["eval", "eval_ro", "evalsha", "evalsha_ro"],
        what: "Tables that cannot be written to are empty ones that read through to others: `setmetatable` of one says `cannot \
               change a protected metatable`, `next` finds nothing in one, `getmetatable` is false; `pairs`, `rawget` and \
               `rawset` see them as Redis's do. An error of `pairs` or `xpcall` that is what a script returns has no line. \
               `collectgarbage` has no effect but for `count`.",
        why: "Lua 5.1 has no tables that are read-only; Redis has its own version of it. What a script does to the collector would \
              outlive it.",
        test: "globals_cannot_be_written_to",
    },
    Difference {
        commands: &["eval", "eval_ro", "evalsha", "evalsha_ro"],
        what: "A Lua pattern of more than 500 quantifiers (`*`, `+`, `-`, `?`, `%b`, `%1`) fails with `pattern too complex`. The \
               arguments of one call have at most 512 MB together; `cjson.encode` and `cmsgpack.pack` write at most 512 MB and 50 \
               million values; a line of `redis.log` is cut at 1024 bytes.",
        why: "Each would take the stack or the memory of the process, in one call that nothing interrupts.",
        test: "what_the_host_does_for_a_script_is_bounded",
    },
    Difference {
        commands: &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"],
        what: "A run takes at most a sixteenth of `maxmemory`, though no less than 8 MB and no more than 64 MB; one that needs more \
               fails with `not enough memory`, and the error names the bound.",
        why: "Scripts of several clients run at the same time, beside the data and within `maxmemory`.",
        test: "what_a_script_takes_is_bounded",
    },
    Difference {
        commands: &["eval", "evalsha", "fcall"],
        what: "`redis.set_repl` has no effect: all that a script writes is logged and replicated.",
        why: "A script is one record of the log, and a replica that lacks part of it would have other data than its master.",
        test: "a_script_cannot_keep_writes_from_replicas",
    },
    Difference {
        commands: &["script|debug"],
        what: "There is no debugger: the modes are accepted, and scripts run as ever.",
        why: "A session of the debugger holds a fork of Redis, or stops all clients; here a transaction would stay open.",
        test: "the_cache_of_scripts_is_that_of_redis",
    },
    Difference {
        commands: &["fcall", "fcall_ro"],
        what: "Locals of a library that its functions change are each thread's own, also count runs that were begun again, and \
               begin anew at a start or when an interpreter has grown too large.",
        why: "Every thread has its interpreter, so that functions of different clients run at the same time. What should last \
              belongs into keys.",
        test: "functions_get_keys_and_arguments_and_keep_their_locals",
    },
    Difference {
        commands: &["function|load", "function|delete", "function|flush", "function|restore"],
        what: "Libraries are durable as any write is, part of backups, and each command is all or nothing also in MULTI. A library \
               that takes more than 32 MB while it is loaded is an error.",
        why: "They are rows of the data set; Redis writes them to its files like keys.",
        test: "libraries_are_data_they_survive_kills_and_flushall_and_are_in_backups",
    },
    Difference {
        commands: &["function|stats", "function|kill"],
        what: "Only functions that run for long are shown and ended: of several, the one that has run longest is shown, and all that \
               have written nothing are ended. Where only scripts run, FUNCTION STATS shows none instead of an error.",
        why: "A function that runs for long has a thread of its own and the locks of its keys; others end within a millisecond.",
        test: "a_function_that_runs_for_long_is_shown_and_ends_by_function_kill",
    },
    Difference {
        commands: &["script|kill"],
        what: "It ends all scripts that run for long and have written nothing; several may run. Clients that want other keys than \
               theirs go on; those that want one of theirs wait for it. Nobody is told BUSY: `busy-reply-threshold` has no \
               effect.",
        why: "A script that runs for long has a thread of its own and the locks of its keys.",
        test: "a_script_that_runs_for_long_delays_only_who_wants_its_keys_and_can_be_killed",
    },
    Difference {
        commands: &[
            "cluster|addslots",
            "cluster|addslotsrange",
            "cluster|bumpepoch",
            "cluster|delslots",
            "cluster|delslotsrange",
            "cluster|failover",
            "cluster|flushslots",
            "cluster|forget",
            "cluster|meet",
            "cluster|replicate",
            "cluster|reset",
            "cluster|set-config-epoch",
            "cluster|setslot",
        ],
        what: "A member of a Raft group answers an error that says what takes their place: `RAFT.NODE` for members, \
               `RAFT.TRANSFER-LEADER` for the leader.",
        why: "The leader has all slots, and the group agrees on its members and elects its leader; the epoch is its term.",
        test: "a_group_does_not_change_by_commands_of_a_cluster",
    },
    Difference {
        commands: &["cluster|info", "cluster|links", "cluster|nodes", "cluster|shards", "cluster|slots"],
        what: "A Raft group is a cluster of one shard, whose master is the leader. The port of the bus is that of clients, and there \
               are no links, times of pings or counts of messages. The leader says which replicas it has not heard of \
               lately; other members know that of the leader alone.",
        why: "Members talk by the port of clients, and hear of each other through their leader.",
        test: "a_group_is_a_cluster_of_one_shard",
    },
    Difference {
        commands: &["cluster|countkeysinslot", "cluster|getkeysinslot"],
        what: "They are about the selected database and leave expired keys out. In a Raft group the leader answers them, and \
               after READONLY any member.",
        why: "They read data, as SCAN does, and what they say is as linearizable as other reads.",
        test: "a_client_of_a_cluster_follows_the_leader",
    },
    Difference {
        commands: &["role", "wait", "waitaof"],
        what: "In a Raft group the leader is the master, and members that it hears of are its replicas; offsets of ROLE are entries. WAIT \
               and WAITAOF count what makes a majority, and no more, as soon as the group has agreed on the client's writes.",
        why: "No reply to a write leaves before a majority has it on disk; who else has it is not asked.",
        test: "a_group_goes_on_without_any_one_of_its_members",
    },
    Difference {
        commands: &["acl|setuser", "acl|deluser"],
        what: "In a Raft group with `raft-users group` they run on the leader, and take effect on all members. They are \
               refused between MULTI and EXEC, and with more than 64 KB of rules.",
        why: "The users are the group's, which has to agree; without the directive they are each member's own, as in Redis.",
        test: "users_of_a_group_are_the_same_on_all_members",
    },
    Difference {
        commands: &["select", "swapdb", "move"],
        what: "Members of a Raft group have all databases, and commands may name keys of several slots: there is no `CROSSSLOT`.",
        why: "One member has all slots; nothing has to be forbidden.",
        test: "a_client_of_a_cluster_follows_the_leader",
    },
    Difference {
        commands: &["monitor"],
        what: "Where `client-output-buffer-limit` sets no limit for `normal` clients, a client in MONITOR has that of `pubsub`.",
        why: "What it is sent does not wait for it, as replies do: one that does not read would take all the memory.",
        test: "a_monitor_that_does_not_read_is_closed_at_the_limit_of_subscribers",
    },
    Difference {
        commands: &["client|list", "client|info"],
        what: "`argv-mem` counts the arguments of a command that waits, and is 0 of one that runs; `obl` counts all replies and \
               messages that have not left, `oll` and `omem` long messages that other clients are sent as well, and what a \
               long reply holds until it has been sent; `idle` is the time since the connection's last turn.",
        why: "Arguments are read where they were received, the replies of a connection lie in one buffer, and a long message \
              lies once in memory for all who get it.",
        test: "what_clients_take_is_counted_and_shown",
    },
    Difference {
        commands: &["config|get", "config|set"],
        what: "`maxmemory-clients` is 50% by default, where Redis has no bound. A share is one of the memory budget, also where \
               `maxmemory` is 0, and at least 32 MB. A message that many are sent counts once. Near the bound, clients with \
               large requests under way are read from slowly, fewer replies wait for each client, and who publishes waits for \
               those who are being closed. Clients that read their replies are closed last, when all together take a quarter \
               more. A command that would collect too long a reply in memory (KEYS) gets an error that begins with OOM.",
        why: "`maxmemory` bounds what the data takes. With a bound for what clients need, too, the process stays within 1.25 \
              of `maxmemory`, the bound of the clients, and 96 MB for what every process takes besides (its code, the stacks \
              of its threads, RocksDB's own), whatever clients do. Those who can wait do so before any is closed. A smaller \
              default would close clients for values that fit the data.",
        test: "twenty_sides_attack_and_the_process_stays_within_its_bound",
    },
    Difference {
        commands: &["config|get"],
        what: "`notify-keyspace-events` shows `n` also behind `A`, where Redis 7.2 leaves it out.",
        why: "CONFIG REWRITE writes down what is shown; Redis forgets `n` at the next start.",
        test: "the_classes_are_shown_in_the_order_of_redis",
    },
    Difference {
        commands: &["config|set"],
        what: "For `client-output-buffer-limit`, a reply that is sent piece by piece counts as far as its length is known \
               beforehand: strings and payloads of DUMP as a whole, a collection by the rows that are in memory. Replies up \
               to 16 KB count for no limit, as in Redis, whose clients have a buffer of that size anyway.",
        why: "How long elements are that lie on the disk, nobody knows before they are read.",
        test: "limits_of_output_count_at_once_and_for_the_whole_reply",
    },
    Difference {
        commands: &["client|tracking"],
        what: "SWAPDB tells those who track that nothing counts which they have kept; Redis tells nobody. Of a block's changes \
               its client is told when it has ended, also of keys that the block has read behind a change. A change while a \
               read waits for the disk is told, and the next one as well. Behind \
               a block that turns tracking on, its client is told that nothing counts. A client with several prefixes gets one message for \
               the keys of all of them. The table of keys takes no more than an eighth of `maxmemory`, however many keys it may \
               have.",
        why: "A message too many costs a read, one too few leaves a wrong value with the client.",
        test: "calls_of_a_script_and_of_a_block_are_reads_of_their_client",
    },
    Difference {
        commands: &["monitor"],
        what: "The line of a command comes before the messages that it sends, in Redis behind them. Of a HELLO or MIGRATE that \
               makes no sense no argument is shown, and of such a CONFIG SET none in the slow log.",
        why: "A command is shown when it begins, and what it sends leaves with its effects.",
        test: "generated_sequences_have_no_difference",
    },
    Difference {
        commands: &["exec"],
        what: "What a block does to keys is told first, then it publishes and subscribes; its own subscriptions begin and end, \
               and its changes to its own client show in PUBSUB and CLIENT LIST, when it has ended.",
        why: "A block takes effect as a whole.",
        test: "a_block_tells_of_keys_first_and_then_publishes_and_subscribes",
    },
    Difference {
        commands: &["exec"],
        what: "A block of which a command changes more than `txn-bytes-max`, finds no room on the disk, or meets a read that \
               fails has no effect as a whole: `EXECABORT Transaction discarded because of: ...`. A command that its own \
               handler refuses, say for a wrong type, leaves nothing of its own, and the others stand, as in Redis.",
        why: "What the other commands did may only be right together with it: a COPY that is refused and the DEL behind it \
              would lose the value.",
        test: "a_block_whose_copy_finds_no_room_keeps_what_it_was_to_replace",
    },
    Difference {
        commands: &["exec"],
        what: "What the commands of a block change of the server (CONFIG SET, CONFIG RESETSTAT, CLIENT PAUSE, DEBUG \
               SET-ACTIVE-EXPIRE) takes effect when the block has. CONFIG GET, SLOWLOG and LATENCY of the same block show it; the \
               other commands of the block run as before it.",
        why: "A block takes effect as a whole or not at all, and may run several times until then.",
        test: "a_block_that_is_discarded_has_done_nothing",
    },
    Difference {
        commands: &["client|info", "client|list"],
        what: "In a block they show its client as it was before the block, say in the database of then; in Redis as \
               the commands before have left it.",
        why: "What a block changes of its client is shown when it has taken effect as a whole.",
        test: "a_block_is_shown_to_itself_as_its_client_was_before_it",
    },
    Difference {
        commands: &["client|reply"],
        what: "OFF and SKIP in a block leave out the reply to EXEC as a whole, and SKIP also that to the command \
               behind EXEC. In Redis the replies behind OFF, or that to SKIP, are missing within the reply to EXEC.",
        why: "A reply with fewer parts than it announces cannot be read.",
        test: "a_block_that_turns_replies_off_gets_none_as_a_whole",
    },
    Difference {
        commands: &["acl"],
        what: "Rights by database, as Valkey 9.1 has them: `db=0,1`, `alldbs`, `resetdbs`. ACL LIST and GETUSER show them where a \
               user is restricted, `INFO stats` has `acl_access_denied_db`.",
        why: "Applications that share a server have databases of their own.",
        test: "channels_and_databases",
    },
    Difference {
        commands: &["acl"],
        what: "Limits of what all clients of a user may take of a node: `rate=OPS`, `bandwidth=BYTES`, `memory=BYTES`, \
               `connections=N`; `user-limit-policy` says whether calls beyond them wait or get the error `LIMIT`. ACL LIST and \
               GETUSER show them where there are any.",
        why: "Tenants that share a server do not take it from each other.",
        test: "limits_are_rules_of_a_user",
    },
    Difference {
        commands: &["config|set"],
        what: "TLS 1.0 and 1.1, ciphers without forward secrecy, and Diffie-Hellman over numbers are not there: a directive that asks \
               for one is refused with the names of those that are, `tls-dh-params-file` has no effect.",
        why: "rustls, which encrypts here, has left them out because they are not safe.",
        test: "a_wrong_configuration_of_tls_ends_the_start",
    },
    Difference {
        commands: &["acl|load"],
        what: "Clients stay connected if their user is still there, with its new rules, as in later versions of Redis; Redis 7.0 \
               closes all but those of the default user.",
        why: "A file that is read again for a new user interrupts nobody.",
        test: "a_file_of_users_is_read_at_the_start_and_by_acl_load",
    },
    Difference {
        commands: &["acl|log"],
        what: "An entry keeps the first 1024 bytes of a key or channel. A blocking command that is refused because its user lost the \
               right while it waited makes no entry.",
        why: "What is denied is to take no memory. A run that serves who waits may be dropped.",
        test: "the_log_counts_what_is_repeated",
    },
    Difference {
        commands: &["replicaof", "slaveof"],
        what: "Another Haypile can be followed with the same format of the log and the same number of databases, or a Redis, from \
               a server that is no `engine memory`; `INFO replication` says in `master_link_error` why a master is not followed. \
               Offsets are indexes of the log, or the Redis's own.",
        why: "A replica's log is a copy of its master's, record by record, so that each resync is a comparison. What a Redis does \
              becomes records here.",
        test: "others_are_no_masters",
    },
    Difference {
        commands: &["replicaof", "slaveof"],
        what: "A command of a master that is a Redis and that is refused here (it is unknown, finds another type, is too large) stops \
               the stream, with the reason in `master_link_error`, until it is taken; with `replica-refused-commands skip` it is \
               left out, in MULTI the block as a whole. Redis leaves it out and goes on.",
        why: "A replica that differs from its master should not look like one that does not.",
        test: "what_is_refused_stops_the_stream_or_is_left_out_as_a_whole",
    },
    Difference {
        commands: &["psync", "sync"],
        what: "A Redis that follows is told nothing of deadlines of fields but the deletion of a field whose time has passed, nothing of \
               the ids of producers of streams, and that an entry which XNACK has handed back is not pending. XDELEX, XACKDEL, XADD and \
               XTRIM with `DELREF` or `ACKED` arrive as the whole stream.",
        why: "Redis 7.0, which is to understand all of it, has no words for these.",
        test: "what_each_command_does_arrives_whatever_the_command",
    },
    Difference {
        commands: &["psync", "sync"],
        what: "A Redis that follows does not count for `replicas-to-ack`, WAITAOF and FAILOVER.",
        why: "It says what it has in memory, and may lose it.",
        test: "a_redis_counts_where_it_may_be_relied_on_and_nowhere_else",
    },
    Difference {
        commands: &["replicaof", "slaveof"],
        what: "A replica takes no writes of clients: `replica-read-only no` is refused, at start and by CONFIG SET.",
        why: "A replica that has what its master has not can only be told from it by a second copy.",
        test: "a_replica_that_takes_writes_is_refused",
    },
    Difference {
        commands: &["psubscribe", "subscribe"],
        what: "On a replica the keyspace events of what its master did are the master's: `expired`, `spop`. Redis's replica makes \
               events of the commands that it is sent instead: `del`, `srem`. Which of them are told is the replica's own \
               `notify-keyspace-events`, as in Redis. Of a Raft group the leader alone tells events of keys; messages are heard \
               on all members, as in a Redis Cluster.",
        why: "Who listens hears of one change by one name, on whichever node.",
        test: "subscribers_of_a_replica_hear_what_those_of_the_master_do",
    },
    Difference {
        commands: &["waitaof"],
        what: "It has the log synced at once, rather than waiting for the sync of the second. In a transaction it answers 1 if \
               the whole log is on the disk.",
        why: "Who waits does so for the disk, not for the clock.",
        test: "waitaof_answers_when_the_log_is_on_the_disk",
    },
    Difference {
        commands: &["bgrewriteaof"],
        what: "It is accepted and does nothing.",
        why: "The log does not grow for ever: what the base has by now goes.",
        test: "there_are_no_modules_and_nothing_to_rewrite",
    },
    Difference {
        commands: &["memory|usage"],
        what: "It tells what the key and its value would take in Redis, without the room that Redis keeps for more.",
        why: "Tools compare and add up these figures; here a key takes memory only as far as it is cached.",
        test: "a_value_is_told_as_if_it_were_set_as_a_whole",
    },
    Difference {
        commands: &["memory|stats", "memory|doctor", "memory|malloc-stats"],
        what: "The fields are Redis's, the texts our own. There are no tables of keys: `overhead.hashtable.*` is 0.",
        why: "They speak of this process.",
        test: "memory_tells_of_the_process",
    },
    Difference {
        commands: &["debug"],
        what: "SLEEP delays its own connection only, and nobody in a transaction. DIGEST and DIGEST-VALUE leave out keys whose \
               deadline has passed; they equal Redis's if nobody writes meanwhile. SEGFAULT, PANIC, ASSERT and OOM end the process \
               at once. OBJECT tells what Redis would make of the value. Tuning of what is not here is accepted without \
               effect, CHANGE-REPL-ID too. RELOAD and LOADAOF close the data and open them again, which \
               is an error in a transaction. POPULATE, LEAK, MALLCTL, RESTART, REPLICATE, STRINGMATCH-TEST and JMAP are not there.",
        why: "One slow thing delays only those who asked for it; what is accepted lets the tests of others run.",
        test: "sleep_delays_nobody_else",
    },
    Difference {
        commands: &["lolwut"],
        what: "Every version draws the same.",
        why: "The drawings of Redis are Redis's.",
        test: "lolwut_draws_and_names_the_version",
    },
    Difference {
        commands: &["shutdown"],
        what: "SAVE and NOSAVE are accepted and change nothing: what was acknowledged is kept either way.",
        why: "All data is in the log already; there is no snapshot that could be skipped.",
        test: "shutdown_reads_its_options",
    },
    Difference {
        commands: &["save", "bgsave"],
        what: "They write a backup: a directory under `backups` on which a server starts, not a file. In SAVE only its own \
               connection waits. Nothing else makes one: `save` is accepted and has no effect. One that fails is an error of \
               its command, in the log and in INFO; `stop-writes-on-bgsave-error` has no effect.",
        why: "What is acknowledged is durable without any of it, so that no write has to wait for a backup, or for one that \
              works.",
        test: "a_backup_that_fails_says_why_and_the_server_goes_on",
    },
    Difference {
        commands: &["info"],
        what: "In `persistence`, the fields `rdb_...` tell of backups, where a change is a record of the log, and those of `aof_...` \
               of the log: `aof_enabled` is always 1, `aof_base_size` is the size of the base. Nothing is forked: the fields of \
               copy-on-write and of rewrites are constant.",
        why: "These are what stands in the place of Redis's files.",
        test: "info_has_the_fields_of_redis_for_persistence",
    },
    Difference {
        commands: &["latency|doctor"],
        what: "The report is in our own words.",
        why: "It speaks of what this server waits for: the disk, locks, the log, the flush.",
        test: "the_report_names_events_and_what_helps",
    },
    Difference {
        commands: &["slowlog|get", "latency|histogram", "latency|latest"],
        what: "A command's time is what its client waits for: with the reads from the disk, the locks and the queues on the \
               way, and, with `durability fsync`, until its reply is durable. An EXEC that has waited is in the slow log \
               itself. LATENCY's events have Redis's names where Redis has them (`command`, `fast-command`, \
               `expire-cycle`), and ours for what only this server does (`disk-read`, `key-lock`, `log-sync`, `flush` ...).",
        why: "Whoever looks for what is slow wants to see what is waited for; `INFO slowlog` tells for each entry where its \
              time went.",
        test: "the_slow_log_tells_what_was_waited_for",
    },
    Difference {
        commands: &["info"],
        what: "`INFO keyspace 1` shows the sections `types` and `sizes` as well; Redis knows no section `1`.",
        why: "Pika shows there what is in each database by type.",
        test: "info_keyspace_1_shows_counts_by_type_and_sizes",
    },
    Difference {
        commands: &["client|kill"],
        what: "`CLIENT KILL ALL` closes all clients, the asking one after its reply; Redis looks for one whose address is `ALL`, and \
               finds none.",
        why: "Pika has it, and no client has that address.",
        test: "client_kill_all_closes_everybody_but_replicas",
    },
    Difference {
        commands: &["slaveof"],
        what: "`SLAVEOF host port FORCE` has a copy of the master's data take the place of these, also where its records would lead on \
               from here; in Redis an argument too many is an error.",
        why: "Pika has it.",
        test: "slaveof_with_force_fetches_a_copy",
    },
    Difference {
        commands: &[],
        what: "`maxmemory` bounds the memory, not the data: nothing is evicted, whatever `maxmemory-policy` says; 0 stands for \
               a share of the machine's memory. Only with `engine memory` a full budget answers Redis's OOM error.",
        why: "What does not fit in memory lies on disk.",
        test: "nothing_is_evicted",
    },
    Difference {
        commands: &[],
        what: "A command or MULTI block that changes more than `txn-bytes-max` at once, the content of new large values not \
               counted, is refused before it has any effect.",
        why: "It takes effect as a whole or not at all, so it is held in memory until then.",
        test: "a_large_new_object_is_written_ahead_and_anything_else_too_large_is_refused",
    },
    Difference {
        commands: &[],
        what: "A request that will not fit `client-query-buffer-limit` is answered by an error when its length is announced; \
               Redis closes the connection without a word when the buffer is full. An inline request of more than 64 KiB is \
               always an error; Redis lets it pass if it arrives in one piece.",
        why: "What is refused does not depend on how the network has cut it.",
        test: "a_request_beyond_the_buffer_is_refused_when_it_is_announced",
    },
];
