//! docs/compatibility.md: each command of Redis 7.2 as *yes*, *deliberate difference* or *not yet*.
//!
//! Owns the page's text and the list of deliberate differences. Whether a command is there comes from the table; what
//! Redis has, from tests/data/redis-commands.txt. A test keeps the page in the repository equal to this, and `cargo run
//! --release -p haypile-commands --example write_compatibility` writes it.

use crate::lookup::Table;
use std::fmt::Write;

/// A difference that is meant, not missing.
pub struct Difference {
    /// The full names of the commands that it shows in; empty if it is about all of them.
    pub commands: &'static [&'static str],
    pub what: &'static str,
    pub why: &'static str,
    /// The function that tests it, somewhere in this repository.
    pub test: &'static str,
}

pub const DIFFERENCES: &[Difference] = &[
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
               stay until SCRIPT FLUSH. Redis 7.4 does the same.",
        why: "Programs that put values into the text of their scripts would fill the memory.",
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
               theirs go on, without BUSY.",
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
               refused between MULTI and EXEC, and with more than 64 KB of rules; who removes its own user is closed \
               before the reply.",
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
        commands: &["migrate"],
        what: "It is refused between MULTI and EXEC, with `ERR Command not allowed inside a transaction`, which refuses the \
               transaction.",
        why: "A transaction has no effect until it commits as a whole, and may run several times until then; what another server \
              was sent cannot be taken back.",
        test: "a_transaction_cannot_migrate",
    },
    Difference {
        commands: &["migrate"],
        what: "Each call connects anew; Redis keeps its connection for ten seconds. A key that FLUSHALL, SWAPDB or another command \
               on all keys has changed during the exchange stays, with an error that says so.",
        why: "A connection costs less than a key's way over the network, and one that is kept may be dead. While a target is \
              waited for, only commands on the keys in question wait: no other client, and no command that runs exclusively.",
        test: "an_exclusive_command_does_not_wait_for_a_target",
    },
    Difference {
        commands: &["xadd", "xtrim", "xinfo|stream"],
        what: "An approximate trim (`~`) and `radix-tree-keys` count nodes by entries alone, as many as `stream-node-max-entries` \
               says: entries that are not there any more are thought to have been the first ones, and \
               `stream-node-max-bytes` does not count. Of a stream of short entries to which entries were only added, the \
               nodes are those of Redis.",
        why: "Each entry has a row of its own; which nodes Redis would have made of them would have to be kept beside.",
        test: "nodes_go_as_a_whole",
    },
    Difference {
        commands: &["xadd", "xtrim"],
        what: "With DELREF or ACKED (8.2), where groups have something pending, one call removes no more than can be noted within \
               `txn-bytes-max`: some 100,000 entries of a stream with one group. The next trim goes on behind them.",
        why: "What a command does, it does as a whole, in one record of bounded size; fewer removed entries are right.",
        test: "a_trim_by_references_removes_what_can_be_noted_at_once",
    },
    Difference {
        commands: &["xread", "xreadgroup"],
        what: "MAXSIZE (8.10) counts the bytes of RESP2, whatever the client speaks, and the name of a stream before its first \
               entry: a stream of which no entry finds room is not in the reply, where Redis may show it without entries.",
        why: "What is found does not depend on the protocol, and a stream that is shown empty looks like one that is read to its end.",
        test: "a_stream_without_room_for_an_entry_is_not_in_the_reply",
    },
    Difference {
        commands: &["xinfo|stream"],
        what: "The fields about producers (8.6), `idmp-duration` to `iids-duplicates`, are shown of streams that have had an \
               idempotent ID or bounds of their own.",
        why: "Otherwise the reply is that of 7.2, field by field.",
        test: "idempotent_ids_are_those_of_the_model",
    },
    Difference {
        commands: &["xadd", "xcfgset"],
        what: "An idempotent ID is unknown from the moment at which its time is over; in Redis it may be known for a little longer. \
               A stream has the bounds of the configuration until its first idempotent ID, in Redis those of its creation. XCFGSET \
               does not forget more idempotent IDs than can be removed within `txn-bytes-max`: an error says so.",
        why: "The time is looked at with each lookup, and a stream without producers has no row about them.",
        test: "idempotent_ids_are_those_of_the_model",
    },
    Difference {
        commands: &["xinfo|stream"],
        what: "`nacked-count` of a group (8.8) is shown by FULL where the group has entries without consumer.",
        why: "Otherwise the reply is that of 7.2, field by field.",
        test: "a_client_that_waits_to_claim_is_served_what_is_handed_back_and_what_is_new",
    },
    Difference {
        commands: &["xreadgroup"],
        what: "With CLAIM (8.4), entries that were delivered in the same millisecond are claimed in the order of their ids, and a \
               stream that is asked for history takes nothing from the others: in Redis those behind it are read without CLAIM.",
        why: "Entries are kept in the order of their ids; what is asked of one stream says nothing of another.",
        test: "a_long_claim_goes_on_behind_what_one_walk_finds",
    },
    Difference {
        commands: &["zrangebylex", "zrevrangebylex", "zlexcount", "zremrangebylex"],
        what: "Where members have several scores, both bounds are taken to have the lowest member's score (in a small set, as in \
               Redis, the walk ends at the first member beyond a bound). `ZRANGE` and `ZRANGESTORE` with `BYLEX` do the same.",
        why: "Redis's documentation leaves it open, and what redis-server answers depends on how the set came to be.",
        test: "members_of_several_scores_are_cut_at_the_lowest_score",
    },
    Difference {
        commands: &["xreadgroup"],
        what: "Without a COUNT, or with one beyond that, as many new entries are delivered at once as `txn-bytes-max` can note as \
               pending: about 200,000 with its default. The next XREADGROUP goes on behind them.",
        why: "What is delivered is written down as one, and COUNT says how many at most: fewer are right, and an error would not be.",
        test: "as_much_is_delivered_as_can_be_noted_at_once",
    },
    Difference {
        commands: &["xgroup|destroy", "xgroup|delconsumer"],
        what: "A group or a consumer with more pending entries than can be removed within `txn-bytes-max`, some 500,000 with its \
               default, is not removed: an error says so. XACK and XAUTOCLAIM take them away piece by piece; DEL of the stream \
               has no bound.",
        why: "What a command does, it does as a whole, in one record of bounded size.",
        test: "as_much_is_delivered_as_can_be_noted_at_once",
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
              of `maxmemory`, the bound of the clients, and 96 MB for itself, whatever clients do. Those who can wait do so \
              before any is closed. A smaller default would close clients for values that fit the data.",
        test: "twenty_sides_attack_and_the_process_stays_within_its_bound",
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
               read waits for the disk is told, and the next one as well. A client with several prefixes gets one message for \
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
        commands: &["acl"],
        what: "Rights by database, as Valkey 9.1 has them: `db=0,1`, `alldbs`, `resetdbs`. ACL LIST and GETUSER show them where a \
               user is restricted, `INFO stats` has `acl_access_denied_db`.",
        why: "Applications that share a server have databases of their own.",
        test: "channels_and_databases",
    },
    Difference {
        commands: &["delex"],
        what: "With a condition it needs the right to read its key, as SET with one does.",
        why: "Who may only write would find out by comparisons what a key holds.",
        test: "a_comparison_needs_the_right_to_read",
    },
    Difference {
        commands: &["sunioncard"],
        what: "APPROX changes nothing: the count is exact.",
        why: "Sets are walked in one order here, so that an exact count needs no memory.",
        test: "the_card_of_many_members_is_exact_with_approx_as_well",
    },
    Difference {
        commands: &["hsetex"],
        what: "NX and XX, conditions on the key, as Valkey 9.1 has them, beside FNX and FXX.",
        why: "Clients of both servers find what they know.",
        test: "hsetex_has_the_conditions_of_both_servers",
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
        commands: &["pfmerge"],
        what: "PFMERGE with one key asks for the right to write it. Redis lets every user make the key.",
        why: "There Redis finds no key among the arguments, and so asks for no right.",
        test: "a_call_is_looked_at_wherever_it_comes_from",
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
        commands: &["object|encoding", "object|refcount"],
        what: "They tell what Redis would make of the value if it were set as a whole; what it has been through (APPEND and \
               SETRANGE leave `raw` in Redis) does not show.",
        why: "Values are not kept in these encodings, and the answer must not cost every write something.",
        test: "a_value_is_told_as_if_it_were_set_as_a_whole",
    },
    Difference {
        commands: &["object|encoding"],
        what: "A list that has become a `quicklist` stays one. In 7.2 it is a `listpack` again when LTRIM, LPOP or LREM leave a \
               single node of half the limit. (7.0 knows no list but a `quicklist`.)",
        why: "How a list lies here does not depend on it, and nothing looks at what removals leave.",
        test: "a_list_is_a_listpack_up_to_the_limit_of_7_2_and_never_again",
    },
    Difference {
        commands: &["sort", "sort_ro"],
        what: "ALPHA compares bytes. Redis compares by the locale of its process and only up to the first NUL, unless the \
               result is stored.",
        why: "The order must not depend on the machine, or on what becomes of the result.",
        test: "texts_are_compared_by_all_their_bytes",
    },
    Difference {
        commands: &["sort", "sort_ro"],
        what: "The encoding of a sorted set that is sorted stays; Redis makes it a `skiplist`.",
        why: "Who reads changes nothing.",
        test: "sorting_leaves_an_encoding_as_it_is",
    },
    Difference {
        commands: &["sort", "sort_ro"],
        what: "The keys that the patterns of BY and GET name are read at one moment with the key that is sorted up to 1024 of \
               them; where there are more, each is read at a moment of its own while the command runs.",
        why: "A moment for all of a million keys would have everybody wait for seconds.",
        test: "a_long_sort_reads_each_key_at_a_moment_of_its_own",
    },
    Difference {
        commands: &["object|idletime"],
        what: "It is exact while the key is in memory. For a key that was only on disk it counts from when it was loaded, \
               which asking does, too; after a start, of what the log had to bring back, from the last write.",
        why: "To store each read would make every read a write.",
        test: "the_row_cache_knows_it_and_what_was_loaded_again_counts_from_then",
    },
    Difference {
        commands: &["object|freq"],
        what: "A key that was only on disk begins again at 5, as a new one. A command that is run again, because rows had to \
               be loaded, may count twice; GETSET and SET with GET count once, in Redis twice.",
        why: "Counters are kept in memory only. What a run has touched before it found that it lacks a row stays touched.",
        test: "with_an_lfu_policy_uses_are_counted_and_fall_by_the_minute",
    },
    Difference {
        commands: &["pfcount"],
        what: "What it counts of one key is kept in memory: the count in the value's own bytes, which GET, DUMP and GETRANGE show, \
               stays as PFADD, SET or RESTORE left it, and who watches the key does not learn of it. In Redis it is written into \
               the value.",
        why: "A read leaves nothing in the log, on no node. Who takes such bytes to Redis loses nothing: it counts anew.",
        test: "a_count_is_kept_in_memory_and_the_value_stays",
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
        commands: &["scan"],
        what: "One step looks at a thousand keys at most, whatever COUNT asks for. Keys whose names have the same hash come \
               together, so that a step may bring a few more than asked for.",
        why: "A step runs on an event loop, where other clients wait behind it; the cursor is a place in the order of the \
              hashes and needs no state in the server.",
        test: "a_scan_shows_each_key_that_stays_once_whatever_happens_meanwhile",
    },
    Difference {
        commands: &["sscan"],
        what: "One step looks at a thousand members at most, whatever COUNT asks for; those of one hash come together. A set that \
               OBJECT ENCODING calls `intset` or `listpack` does not come in one step if it has more than 64 members or 1 KB.",
        why: "A step runs on an event loop, and what is told of the encoding says nothing of how a set is stored here.",
        test: "a_scan_of_a_set_shows_each_member_that_stays",
    },
    Difference {
        commands: &["hexpire", "hpexpire", "hexpireat", "hpexpireat", "hgetex", "hsetex"],
        what: "A field whose deadline has passed is absent to every command at once: `HLEN` and `HDEL` do not count it, `HSET` \
               counts it as new, and a hash of such fields does not exist. Redis 7.4 and 8 count it until something removes \
               it. What only reads it does not remove it: `hexpired` is told by the next write to the field, or the expiry in \
               the background.",
        why: "What is counted does not depend on when the background has come by, and who reads changes nothing.",
        test: "an_expired_field_that_a_write_meets_is_told_of_before_the_write",
    },
    Difference {
        commands: &[],
        what: "What only reads a key whose deadline has passed finds nothing and leaves it: `expired` is told, and `expired_keys` \
               counted, by the next write to the key or by the expiry in the background, as a rule within a tenth of a second. \
               DBSIZE counts the key until then. A write that is answered by an error, or changes nothing, does not remove it, either; \
               one that has nothing to store tells `expired` of its destination, not `del`.",
        why: "Who reads changes nothing, so that a read takes no key lock and writes no log; what fails has no effect.",
        test: "reads_and_writes_that_fail_leave_an_expired_key_to_the_expiry",
    },
    Difference {
        commands: &[],
        what: "The members of a set and the fields of a hash come in the order of their hashes, but where there are no more than 64 \
               in 1 KB, which come as in Redis. There all that OBJECT ENCODING calls `listpack` comes in the order in which it was \
               added, and an `intset` by size.",
        why: "Sets are walked side by side by that order, and what is told of an encoding says nothing of how a value is stored here.",
        test: "what_is_told_of_an_encoding_says_nothing_of_the_order",
    },
    Difference {
        commands: &["srandmember"],
        what: "A reply of more than 512 MB of members that are drawn again and again from a set of more than a thousand is an \
               error.",
        why: "It would have to be put together in memory.",
        test: "too_many_draws_are_refused",
    },
    Difference {
        commands: &["randomkey"],
        what: "Every key comes up, but in a database of many keys not each equally often: a hash slot with many keys comes up \
               as often as one with few.",
        why: "Nothing counts the keys of a slot, and the answer must not need a walk over the data.",
        test: "every_key_comes_up_at_random",
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
    Difference {
        commands: &["dump", "restore"],
        what: "Payloads are of version 10 (Redis 7.0) in the oldest forms that can hold a value, of version 12 (7.4) where fields \
               of a hash have deadlines. RESTORE takes versions up to 12, and checks every payload in full, whatever \
               `sanitize-dump-payload` says. A payload longer than `proto-max-bulk-len` is not made.",
        why: "What is dumped here can be restored in more places; RESTORE could not be sent more.",
        test: "payloads_are_of_the_oldest_version_that_can_hold_them",
    },
];

/// One line of tests/data/redis-commands.txt.
#[derive(Debug, PartialEq, Eq)]
pub struct RedisCommand<'a> {
    /// `get`, `config|get`.
    pub name: &'a str,
    pub group: &'a str,
    pub since: &'a str,
    /// The arity as COMMAND INFO shows it.
    pub arity: i64,
    pub flags: Vec<&'a str>,
    /// Empty if it is not deprecated.
    pub deprecated_since: &'a str,
    pub container: bool,
}

/// The commands of Redis 7.2 in the list; what came later is left out. Fails with the line that does not parse.
pub fn redis_commands(list: &str) -> Result<Vec<RedisCommand<'_>>, &str> {
    list.lines().filter(|line| !is_newer(line)).map(|line| redis_command(line).ok_or(line)).collect()
}

/// The commands of the list that came after Redis 7.2. Fails with the line that does not parse.
pub fn newer_commands(list: &str) -> Result<Vec<RedisCommand<'_>>, &str> {
    list.lines().filter(|line| is_newer(line)).map(|line| redis_command(line).ok_or(line)).collect()
}

fn is_newer(line: &str) -> bool {
    line.contains("not-in-7.2")
}

fn redis_command(line: &str) -> Option<RedisCommand<'_>> {
    let (fields, remarks) = line.split_once(" # ").unwrap_or((line, ""));
    let mut fields = fields.split(' ');
    let mut field = || fields.next();
    Some(RedisCommand {
        name: field()?,
        group: field()?,
        since: field()?,
        arity: field()?.parse().ok()?,
        flags: field()?.split(',').filter(|flag| *flag != "-").collect(),
        deprecated_since: remarks.split(' ').find_map(|remark| remark.strip_prefix("deprecated=")).unwrap_or(""),
        container: remarks.split(' ').any(|remark| remark == "container"),
    })
}

/// The whole page.
pub fn page(commands: &[RedisCommand]) -> String {
    let table = Table::new();
    let status = |name: &str| match table.find_full(name.as_bytes()) {
        None => "not yet",
        Some(_) if DIFFERENCES.iter().any(|difference| difference.commands.contains(&name)) => "deliberate difference",
        Some(_) => "yes",
    };
    let count = |wanted: &str| commands.iter().filter(|command| status(command.name) == wanted).count();
    let mut page = String::new();
    let mut line = |text: &str| writeln!(page, "{text}").expect("a String takes any text");
    line("# Compatibility with Redis 7.2");
    line("");
    line("Generated from the command table (`crates/commands`); change that, then run");
    line("`make docs`.");
    line("");
    line(&format!(
        "Of {} commands and subcommands, {} behave as in Redis, {} differ on purpose, {} are not there yet.",
        commands.len(),
        count("yes"),
        count("deliberate difference"),
        count("not yet"),
    ));
    let is_of_7_2 = |name: &str| commands.iter().any(|command| command.name == name);
    let newer: Vec<String> = table
        .iter()
        .filter(|(_, entry)| !is_of_7_2(&entry.full_name))
        .map(|(_, entry)| format!("{} ({})", shown(&entry.full_name), entry.command.since))
        .collect();
    line("");
    line(&format!("Of newer versions there are {}.", newer.join(", ")));
    line("");
    line("## Deliberate differences");
    line("");
    line("| where | what | why | test |");
    line("|---|---|---|---|");
    for Difference { commands, what, why, test } in DIFFERENCES {
        let names: Vec<String> = commands.iter().map(|name| shown(name)).collect();
        let names = if names.is_empty() { "all commands".to_owned() } else { names.join(", ") };
        line(&format!("| {names} | {what} | {why} | `{test}` |"));
    }
    let mut groups: Vec<&str> = commands.iter().map(|command| command.group).collect();
    groups.dedup();
    for group in groups {
        line("");
        line(&format!("## {group}"));
        line("");
        line("| command | since | status |");
        line("|---|---|---|");
        for command in commands.iter().filter(|command| command.group == group) {
            line(&format!("| {} | {} | {} |", shown(command.name), command.since, status(command.name)));
        }
    }
    page
}

/// `CONFIG GET`, as people write it.
fn shown(name: &str) -> String {
    format!("`{}`", name.replace('|', " ").to_uppercase())
}
