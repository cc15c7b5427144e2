"""What a user of redis-py does with strings and keys; run by clients.rs with the port as its argument."""
import datetime
import sys
import threading
import time

import redis

port = int(sys.argv[1])
r = redis.Redis(port=port, decode_responses=True, client_name="tester")
raw = redis.Redis(port=port)


def check(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} instead of {expected!r}")


def fails(name, error, call):
    try:
        call()
    except error:
        return
    sys.exit(f"{name}: no {error.__name__}")


# Connection and server.
check("ping", r.ping(), True)
check("echo", r.echo("x"), "x")
check("the name of the connection", r.client_getname(), "tester")
check("databases", r.config_get("databases"), {"databases": "16"})
check("info is read", r.info("server")["tcp_port"], port)
check("the version is 7.2's", r.info("server")["redis_version"].split(".")[0], "7")

# Strings.
check("set", r.set("a", "1"), True)
check("set nx", r.set("a", "2", nx=True), None)
check("set get", r.set("a", "3", get=True), "1")
check("getset", r.getset("a", "4"), "3")
check("incr", r.incr("n", 5), 5)
check("decr", r.decr("n"), 4)
check("append", r.append("a", "xyz"), 4)
check("getrange", r.getrange("a", 1, -1), "xyz")
check("setrange", r.setrange("a", 10, "!"), 11)
check("mset", r.mset({"b": "1", "c": "2"}), True)
check("mget", r.mget("b", "c", "nothing"), ["1", "2", None])
check("msetnx", r.msetnx({"b": "1", "d": "2"}), False)
check("getdel", r.getdel("b"), "1")
check("binary", (raw.set(b"\x00\xff", b"\r\n\x00"), raw.get(b"\x00\xff")), (True, b"\r\n\x00"))
big = bytes(range(256)) * 8000
check("two megabytes", (raw.set("big", big), raw.get("big") == big, raw.strlen("big")), (True, True, len(big)))
r.set("text", "x")
fails("incr of a text", redis.ResponseError, lambda: r.incr("text"))

# Deadlines.
check("setex", r.setex("e", datetime.timedelta(seconds=100), "v"), True)
check("ttl", 95 <= r.ttl("e") <= 100, True)
check("persist", (r.persist("e"), r.ttl("e")), (True, -1))
check("expireat", r.expireat("e", 4102444800), True)
check("expiretime", r.execute_command("EXPIRETIME", "e"), 4102444800)
check("getex", r.getex("e", persist=True), "v")
r.set("soon", "v", px=20)
end = time.time() + 10
while r.exists("soon") and time.time() < end:
    time.sleep(0.005)
check("a key expires", r.get("soon"), None)

# Keys.
check("exists", r.exists("a", "a", "nothing"), 2)
check("type", (r.type("a"), r.type("nothing")), ("string", "none"))
check("rename", (r.rename("a", "z"), r.get("z")[1:4]), (True, "xyz"))
fails("rename of nothing", redis.ResponseError, lambda: r.rename("nothing", "x"))
check("unlink", r.unlink("z"), 1)
for number in range(3000):
    raw.set(f"it:{number}", number)
check("scan_iter", len(set(r.scan_iter(match="it:*", count=100))), 3000)
check("keys", len(r.keys("it:*")), 3000)
check("randomkey", r.randomkey() is not None, True)

# Transactions.
with r.pipeline(transaction=True) as p:
    check("a transaction", p.set("t", 1).incr("t").get("t").execute(), [True, 2, "2"])
with r.pipeline(transaction=False) as p:
    for number in range(1000):
        p.incr("piped")
    check("a pipeline", p.execute()[-1], 1000)
with r.pipeline() as p:
    p.watch("t")
    r.set("t", "changed")
    p.multi()
    p.set("t", "lost")
    fails("a watched key changed", redis.WatchError, p.execute)
check("the other's value stands", r.get("t"), "changed")


def count(times):
    own = redis.Redis(port=port)
    for _ in range(times):
        own.transaction(lambda p: (lambda n: (p.multi(), p.set("sum", n + 1)))(int(p.get("sum") or 0)), "sum")


threads = [threading.Thread(target=count, args=(50,)) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
check("optimistic locks of four threads", r.get("sum"), "200")

# Databases.
other = redis.Redis(port=port, db=5, decode_responses=True)
other.set("a", "five")
check("swapdb", (r.swapdb(0, 5), r.get("a"), other.get("sum")), (True, "five", "200"))
check("flushdb", (r.flushdb(), r.dbsize(), other.dbsize() > 3000), (True, 0, True))
check("flushall", (r.flushall(), other.dbsize()), (True, 0))
print("all good")
