# Hashes, lists, sets, sorted sets, SORT, and pops that wait, as a user of redis-py has them; behind clients_common.py.


# Hashes.
def hashes(r, resp3):
    check("hset", r.hset("h", mapping={"a": "1", "b": "2"}), 2)
    check("hset of one", (r.hset("h", "c", "3"), r.hset("h", "c", "4")), (1, 0))
    check("hgetall", r.hgetall("h"), {"a": "1", "b": "2", "c": "4"})
    check("hmget", r.hmget("h", "a", "nothing"), ["1", None])
    check("hincrby", (r.hincrby("h", "a", 9), r.hincrbyfloat("h", "a", 0.5)), (10, 10.5))
    check("hsetnx", (r.hsetnx("h", "a", "x"), r.hsetnx("h", "d", "x")), (False, True))
    check("names and values", (r.hkeys("h"), r.hvals("h"), r.hlen("h")), (["a", "b", "c", "d"], ["10.5", "2", "4", "x"], 4))
    check("hexists, hstrlen", (r.hexists("h", "a"), r.hexists("h", "z"), r.hstrlen("h", "a")), (True, False, 4))
    field, value = r.hrandfield("h", 1, withvalues=True) if not resp3 else r.hrandfield("h", 1, withvalues=True)[0]
    check("hrandfield", r.hget("h", field), value)
    check("hdel", r.hdel("h", "d", "z"), 1)
    r.hset("big", mapping={f"field:{n}": n for n in range(2000)})
    check("hscan_iter", sum(int(value) for _, value in r.hscan_iter("big", count=100)), 1999000)
    check("deadlines of fields", r.execute_command("HPEXPIREAT", "h", 4102444800000, "FIELDS", 2, "a", "z"), [1, -2])
    check("they are told", r.execute_command("HPEXPIRETIME", "h", "FIELDS", 2, "a", "b"), [4102444800000, -1])
    fails("a wrong type", redis.ResponseError, lambda: r.lpush("h", "x"))


# Lists.
def lists(r, resp3):
    check("pushes", (r.rpush("l", "a", "b", "c"), r.lpush("l", "z"), r.lrange("l", 0, -1)), (3, 4, ["z", "a", "b", "c"]))
    check("linsert, lset, lindex", (r.linsert("l", "BEFORE", "b", "x"), r.lset("l", 0, "y"), r.lindex("l", 2)), (5, True, "x"))
    check("lrem, ltrim", (r.lrem("l", 1, "x"), r.ltrim("l", 1, -1), r.lrange("l", 0, -1)), (1, True, ["a", "b", "c"]))
    check("lpos", (r.lpos("l", "b"), r.lpos("l", "z"), r.lpos("l", "c", count=0)), (1, None, [2]))
    check("pops", (r.lpop("l"), r.rpop("l", 5), r.lpop("l"), r.lpop("l", 2)), ("a", ["c", "b"], None, None))
    r.rpush("l", *range(3000))
    check("a long list", (r.llen("l"), r.lrange("l", 2998, -1), len(r.lrange("l", 0, -1))), (3000, ["2998", "2999"], 3000))
    check("lmove", (r.lmove("l", "m", "LEFT", "RIGHT"), r.rpoplpush("l", "m"), r.lrange("m", 0, -1)), ("0", "2999", ["2999", "0"]))
    check("lmpop", r.lmpop(2, "none", "m", direction="LEFT", count=1), ["m", ["2999"]])


# Sets.
def sets(r, resp3):
    check("sadd", (r.sadd("s", "a", "b", "c"), r.sadd("s", "a")), (3, 0))
    check("smembers", r.smembers("s"), {"a", "b", "c"})
    r.sadd("s2", "b", "c", "d")
    check("algebra", (r.sinter("s", "s2"), r.sunion("s", "s2"), r.sdiff("s", "s2")), ({"b", "c"}, {"a", "b", "c", "d"}, {"a"}))
    check("stored", (r.sunionstore("s3", "s", "s2"), r.sintercard(2, ["s", "s2"]), r.scard("s3")), (4, 2, 4))
    check("sismember", (bool(r.sismember("s", "a")), r.smismember("s", ["a", "z"])), (True, [1, 0]))
    check("smove, srem", (r.smove("s", "s2", "a"), r.srem("s", "b", "z"), r.smembers("s")), (True, 1, {"c"}))
    check("spop", (r.spop("s"), r.exists("s"), len(r.srandmember("s3", 3)), len(r.srandmember("s3", -9))), ("c", 0, 3, 9))
    r.sadd("numbers", *range(2000))
    check("sscan_iter", sum(map(int, r.sscan_iter("numbers", count=100))), 1999000)


# Sorted sets: scores are numbers on our side, whatever the protocol.
def sorted_sets(r, resp3):
    check("zadd", (r.zadd("z", {"a": 1, "b": 2.5, "c": 3}), r.zadd("z", {"a": 1, "d": 9}, ch=True)), (3, 1))
    pairs = lambda reply: [tuple(pair) for pair in reply]
    check("zrange", pairs(r.zrange("z", 0, 1, withscores=True)), [("a", 1.0), ("b", 2.5)])
    check("backwards", pairs(r.zrevrange("z", 0, 0, withscores=True)), [("d", 9.0)])
    check("by score", r.zrangebyscore("z", "(1", 3), ["b", "c"])
    check("zscore", (r.zscore("z", "b"), r.zscore("z", "none"), r.zmscore("z", ["a", "none"])), (2.5, None, [1.0, None]))
    check("zincrby", (r.zincrby("z", 0.25, "b"), r.zadd("z", {"b": 1}, incr=True)), (2.75, 3.75))
    check("ranks", (r.zrank("z", "b"), r.zrevrank("z", "b"), r.zrank("z", "none")), (2, 1, None))
    check("counts", (r.zcard("z"), r.zcount("z", "-inf", "+inf"), r.zcount("z", 2, 4)), (4, 4, 2))
    check("pops of sorted sets", (pairs(r.zpopmin("z", 1)), pairs(r.zpopmax("z", 2))), ([("a", 1.0)], [("d", 9.0), ("b", 3.75)]))
    check("infinities", (r.zadd("z", {"far": float("inf")}), r.zscore("z", "far")), (1, float("inf")))
    r.zadd("y", {"c": 1, "e": 2})
    check("zunion", pairs(r.zunion(["z", "y"], withscores=True)), [("e", 2.0), ("c", 4.0), ("far", float("inf"))])
    check("zinterstore", (r.zinterstore("x", {"z": 2, "y": 1}), r.zscore("x", "c")), (1, 7.0))
    r.zadd("ranked", {f"m:{n:04}": n % 7 for n in range(2000)})
    check("zrange far inside", r.zrange("ranked", 1000, 1001), ["m:0997", "m:1004"])
    check("zremrangebyrank", (r.zremrangebyrank("ranked", 10, -1), r.zcard("ranked")), (1990, 10))
    check("zscan_iter", len(list(r.zscan_iter("ranked"))), 10)


# SORT, and what spans types.
def sorting(r, resp3):
    r.rpush("ids", 3, 1, 2)
    r.mset({"weight:1": 30, "weight:2": 20, "weight:3": 10, "name:1": "one", "name:2": "two", "name:3": "three"})
    check("sort", r.sort("ids"), ["1", "2", "3"])
    check("sort by, get", r.sort("ids", by="weight:*", get=["#", "name:*"], groups=True), [("3", "three"), ("2", "two"), ("1", "one")])
    check("sort store", (r.sort("ids", desc=True, store="sorted"), r.lrange("sorted", 0, -1)), (3, ["3", "2", "1"]))
    check("types", [r.type(key) for key in ("h", "l", "s3", "z")], ["hash", "list", "set", "zset"])
    check("copy and rename", (r.copy("h", "h2"), r.rename("h2", "h3"), r.hgetall("h3") == r.hgetall("h")), (True, True, True))
    check("scan by type", sorted(r.scan_iter(_type="zset")), ["ranked", "x", "y", "z"])
    check("encodings", (r.object("encoding", "y"), r.object("encoding", "big")), ("listpack", "hashtable"))


# Pops that find something at once, and pops whose time ends. redis-py 4 does not know of all of them by name.
def pops(r, resp3):
    r.flushall()
    r.rpush("q", "1", "2", "3", "4", "5")
    check("blpop", tuple(r.blpop(["none", "q"], timeout=1)), ("q", "1"))
    check("brpop", tuple(r.brpop("q", timeout=1)), ("q", "5"))
    check("blmove", r.blmove("q", "to", timeout=1, src="LEFT", dest="RIGHT"), "2")
    check("brpoplpush", r.brpoplpush("q", "to", timeout=1), "4")
    check("blmpop", r.blmpop(1, 2, "none", "q", direction="LEFT", count=5), ["q", ["3"]])
    r.zadd("z", {"a": 1, "b": 2, "c": 3})
    check("bzpopmin", tuple(r.bzpopmin("z", timeout=1)), ("z", "a", 1.0))
    check("bzpopmax", tuple(r.bzpopmax(["none", "z"], timeout=1)), ("z", "c", 3.0))
    key, [[member, score]] = r.execute_command("BZMPOP", 1, 1, "z", "MIN")
    check("bzmpop", (key, member, float(score)), ("z", "b", 2.0))
    for name, call in {
        "blpop": lambda: r.blpop("none", timeout=0.02),
        "brpop": lambda: r.brpop(["none", "none2"], timeout=0.02),
        "blmove": lambda: r.blmove("none", "to", timeout=0.02),
        "brpoplpush": lambda: r.brpoplpush("none", "to", timeout=0.02),
        "blmpop": lambda: r.blmpop(0.02, 1, "none", direction="LEFT"),
        "bzpopmin": lambda: r.bzpopmin("none", timeout=0.02),
        "bzpopmax": lambda: r.bzpopmax("none", timeout=0.02),
        "bzmpop": lambda: r.execute_command("BZMPOP", 0.02, 1, "none", "MAX"),
    }.items():
        begin = time.time()
        check(f"the time of {name} ends", call(), None)
        check(f"{name} has waited", time.time() - begin >= 0.02, True)
    fails("a negative time", redis.ResponseError, lambda: r.blpop("none", timeout=-1))
    with r.pipeline(transaction=True) as p:
        check("inside a transaction it does not wait", p.blpop("none", timeout=0).bzpopmin("none", timeout=0).execute(), [None, None])


# Threads that wait, each for its own kind, while one pushes.
def waiting_threads(r, resp3):
    def waits(name, take, push, expected):
        got = []
        own = connect(resp3)
        thread = threading.Thread(target=lambda: got.append(take(own)))
        thread.start()
        end = time.time() + 30
        while int(r.info("clients")["blocked_clients"]) < 1 and time.time() < end:
            time.sleep(0.001)
        push()
        thread.join(30)
        check(f"{name} was waiting", [tuple(one) if isinstance(one, list) else one for one in got], [expected])

    waits("blpop", lambda c: c.blpop(["w", "v"]), lambda: r.rpush("v", "x"), ("v", "x"))
    waits("brpop", lambda c: c.brpop("w"), lambda: r.rpush("w", "x", "y"), ("w", "y"))
    r.delete("w")
    waits("blmove", lambda c: c.blmove("w", "to", timeout=0), lambda: r.rpush("w", "x"), "x")
    waits("brpoplpush", lambda c: c.brpoplpush("w", "to", timeout=0), lambda: r.rpush("w", "y"), "y")
    waits("blmpop", lambda c: c.blmpop(0, 1, "w", direction="LEFT", count=2), lambda: r.rpush("w", "x", "y"), ("w", ["x", "y"]))
    waits("bzpopmin", lambda c: c.bzpopmin("zw"), lambda: r.zadd("zw", {"x": 2}), ("zw", "x", 2.0))
    waits("bzpopmax", lambda c: c.bzpopmax("zw"), lambda: r.zadd("zw", {"x": 1.5}), ("zw", "x", 1.5))
    waits("blpop of a block", lambda c: c.blpop("w"), lambda: r.pipeline().rpush("w", "1").rpush("w", "2").execute(), ("w", "1"))
    check("the rest of the block", r.lrange("w", 0, -1), ["2"])


# A queue: four that wait, one that pushes; each element comes once.
def queue(r, resp3):
    taken, last = [], "end"

    def work():
        own = connect(resp3)
        while (element := own.blpop("queue")[1]) != last:
            taken.append(int(element))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    for number in range(1000):
        r.rpush("queue", number)
    r.rpush("queue", *[last] * 4)
    [t.join(60) for t in threads]
    check("a thousand elements once each", sorted(taken), list(range(1000)))
    check("and nothing is left", r.exists("queue"), 0)


# Who waits is seen, and can be told to stop.
def unblocking(r, resp3):
    errors = []

    def waiter():
        own = connect(resp3, client_name="waiter")
        try:
            own.blpop("never")
        except redis.ResponseError as error:
            errors.append(str(error))

    thread = threading.Thread(target=waiter)
    thread.start()
    end, ids = time.time() + 30, []
    while not ids and time.time() < end:
        ids = [c["id"] for c in r.client_list() if c["name"] == "waiter" and "b" in c["flags"]]
    check("unblocked", bool(r.client_unblock(int(ids[0]), error=True)), True)
    thread.join(30)
    check("it is told so", errors, ["UNBLOCKED client unblocked via CLIENT UNBLOCK"])
    r.flushall()


# RESP3 as far as the installed version speaks it; go-redis does both.
for resp3 in (False, True) if has_resp3 else (False,):
    connect().flushall()
    for use in (hashes, lists, sets, sorted_sets, sorting, pops, waiting_threads, queue, unblocking):
        use(connect(resp3), resp3)
print("all good")
