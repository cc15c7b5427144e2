"""The client-side cache of redis-py, from version 5.1 on. Run by clients.rs with the port as the argument."""
import sys
import time

import redis
from redis.cache import CacheConfig

port = int(sys.argv[1])
client = redis.Redis(port=port, protocol=3, decode_responses=True, cache_config=CacheConfig())
other = redis.Redis(port=port, decode_responses=True)


def check(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} instead of {expected!r}")


def wait_for(name, call, expected):
    until = time.monotonic() + 20
    while call() != expected:
        if time.monotonic() > until:
            sys.exit(f"{name}: {call()!r} instead of {expected!r}")


def gets():
    return other.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]


other.set("k", "1")
other.hset("h", mapping={"a": "1", "b": "2"})
check("the first read", client.get("k"), "1")
before = gets()
for _ in range(100):
    check("reads of the cache", client.get("k"), "1")
check("reads of the server meanwhile", gets() - before, 0)
check("a hash", client.hgetall("h"), {"a": "1", "b": "2"})
for number in range(200):
    other.set("k", str(number))
    wait_for("a change by another client", lambda: client.get("k"), str(number))
other.hset("h", "a", "3")
wait_for("a change of a field", lambda: client.hget("h", "a"), "3")
other.delete("k")
wait_for("a key that has gone", lambda: client.get("k"), None)
other.set("short", "x", px=50)
client.get("short")
wait_for("a key that expires", lambda: client.get("short"), None)
other.set("k", "1")
check("another value", client.get("k"), "1")
other.flushall()
wait_for("an empty server", lambda: client.get("k"), None)
other.eval("redis.call('set', KEYS[1], 'of a script')", 1, "k")
wait_for("a change by a script", lambda: client.get("k"), "of a script")
pipe = other.pipeline()
pipe.set("k", "of a block").incr("n")
pipe.execute()
wait_for("a change by a block", lambda: client.get("k"), "of a block")
check("its tracking", other.info("clients")["tracking_clients"] >= 1, True)
print("all good")
