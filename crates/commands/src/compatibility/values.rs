//! Deliberate differences in commands on keys and their values. All others are in `server`.

use super::Difference;

pub(super) const DIFFERENCES: &[Difference] = &[
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
        commands: &["migrate"],
        what: "A script cannot call it: `ERR This Redis command is not allowed from script`.",
        why: "A script is a transaction, which may run several times; what another server was sent cannot be taken \
              back.",
        test: "a_script_cannot_migrate",
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
               Redis, the walk ends at the first member beyond a bound). `ZRANGE` and `ZRANGESTORE` with `BYLEX` do the same. A Redis that \
               follows is told which members went; where a Redis is followed, its command is cut here as any other.",
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
        commands: &["pfmerge"],
        what: "PFMERGE with one key asks for the right to write it. Redis lets every user make the key.",
        why: "There Redis finds no key among the arguments, and so asks for no right.",
        test: "a_call_is_looked_at",
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
        commands: &["georadius", "georadiusbymember"],
        what: "With several STORE and STOREDIST, the last one alone names a key: the others are not locked, and no \
               right to them is asked for. Redis counts the first STORE and the first STOREDIST as keys, and writes \
               to the last.",
        why: "The keys of a call are those that it uses.",
        test: "the_keys_that_handlers_use_are_looked_at",
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
        commands: &["scan"],
        what: "One step looks at a thousand keys at most, whatever COUNT asks for. Keys whose names have the same hash come \
               together, so that a step may bring a few more than asked for.",
        why: "A step runs on an event loop, where other clients wait behind it; the cursor is a place in the order of the \
              hashes and needs no state in the server.",
        test: "a_scan_shows_each_key_that_stays_once_whatever_happens_meanwhile",
    },
    Difference {
        commands: &["sscan", "hscan", "zscan"],
        what: "One step looks at a thousand elements at most, whatever COUNT asks for; those of one hash come together. What OBJECT \
               ENCODING calls `intset` or `listpack` comes in one step, as in Redis, unless it has more than a thousand: the \
               directives that bound such encodings can be set so high.",
        why: "A step runs on an event loop, where other clients wait behind it.",
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
        commands: &["dump", "restore"],
        what: "Payloads are of version 10 (Redis 7.0) in the oldest forms that can hold a value, of version 12 (7.4) where fields \
               of a hash have deadlines. RESTORE takes versions up to 12, and checks every payload in full, whatever \
               `sanitize-dump-payload` says. A payload longer than `proto-max-bulk-len` is not made.",
        why: "What is dumped here can be restored in more places; RESTORE could not be sent more.",
        test: "payloads_are_of_the_oldest_version_that_can_hold_them",
    },
];
