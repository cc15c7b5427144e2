# What a user of redis-py does with strings, keys, messages and other clients; behind clients_common.py.
r = connect(client_name="tester")
raw = redis.Redis(port=port)

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
check("randomkey", raw.randomkey() in set(raw.keys()), True)

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


# Messages. This version of redis-py speaks RESP2 only; go-redis does both.
def messages(pubsub, count):
    """The next messages, without the answers to subscriptions."""
    got, end = [], time.time() + 30
    while len(got) < count and time.time() < end:
        message = pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
        if message:
            got.append(tuple(message[field] for field in ("type", "pattern", "channel", "data")))
    return got


def subscribed(pubsub, *counts):
    """The answers to subscriptions: how many there are then."""
    answers = [pubsub.get_message(timeout=30) for _ in counts]
    check("subscriptions", tuple(answer and answer["data"] for answer in answers), counts)


p = redis.Redis(port=port, decode_responses=True).pubsub()
p.subscribe("news", "weather")
p.psubscribe("n*s", "h[ae]llo")
subscribed(p, 1, 2, 3, 4)
check("two subscriptions hear it", r.publish("news", "first"), 2)
check("one does", r.publish("hallo", "second"), 1)
check("nobody does", r.publish("hillo", "third"), 0)
expected = [("message", None, "news", "first"), ("pmessage", "n*s", "news", "first")]
check("messages", messages(p, 3), expected + [("pmessage", "h[ae]llo", "hallo", "second")])
check("channels", sorted(r.pubsub_channels()), ["news", "weather"])
check("channels of a pattern", r.pubsub_channels("w*"), ["weather"])
check("how many subscribers", r.pubsub_numsub("news", "none"), [("news", 1), ("none", 0)])
check("how many patterns", r.pubsub_numpat(), 2)
p.ping("still there")
check("a ping between messages", p.get_message(timeout=30)["data"], "still there")
p.unsubscribe("news")
p.punsubscribe("n*s")
subscribed(p, 3, 2)
check("it is heard no more", r.publish("news", "fourth"), 0)
p.close()

# Sharded channels are of their own kind. What redis-py 4 does not know of is said by hand.
p = redis.Redis(port=port, decode_responses=True).pubsub()
p.execute_command("SSUBSCRIBE", "orders")
check("ssubscribe", p.parse_response(), ["ssubscribe", "orders", 1])
check("publish does not reach it", r.publish("orders", "x"), 0)
check("spublish does", r.execute_command("SPUBLISH", "orders", "y"), 1)
check("a sharded message", p.parse_response(), ["smessage", "orders", "y"])
check("sharded channels", r.execute_command("PUBSUB", "SHARDCHANNELS"), ["orders"])
check("their subscribers", r.execute_command("PUBSUB", "SHARDNUMSUB", "orders"), ["orders", 1])
p.execute_command("SUNSUBSCRIBE", "orders")
check("sunsubscribe", p.parse_response(), ["sunsubscribe", "orders", 0])
p.close()

# A thread that listens, as redis-py offers it.
heard = []
p = r.pubsub()
p.subscribe(**{"tasks": lambda message: heard.append(message["data"])})
listener = p.run_in_thread(sleep_time=0.01)
end = time.time() + 30
while r.pubsub_numsub("tasks") != [("tasks", 1)] and time.time() < end:
    time.sleep(0.005)
for number in range(1000):
    r.publish("tasks", number)
while len(heard) < 1000 and time.time() < end:
    time.sleep(0.005)
listener.stop()
listener.join()
check("a thousand messages in order", heard, [str(number) for number in range(1000)])

# Keyspace events.
check("events are on", r.config_set("notify-keyspace-events", "KEA"), True)
p = r.pubsub()
p.psubscribe("__key*__:*")
subscribed(p, 1)
r.set("watched", "1", px=30)
got = messages(p, 6)
check("events of a key", [(channel, data) for _, _, channel, data in got], [
    ("__keyspace@0__:watched", "set"), ("__keyevent@0__:set", "watched"),
    ("__keyspace@0__:watched", "expire"), ("__keyevent@0__:expire", "watched"),
    ("__keyspace@0__:watched", "expired"), ("__keyevent@0__:expired", "watched"),
])
p.close()
r.config_set("notify-keyspace-events", "")

# Clients see each other, and close each other.
other = redis.Redis(port=port, client_name="victim", single_connection_client=True)
number = other.client_id()
check("it is in the list", [c["name"] for c in r.client_list() if int(c["id"]) == number], ["victim"])
check("by its id", [c["id"] for c in r.client_list(client_id=[str(number)])], [str(number)])
check("of a type", "victim" in [c["name"] for c in r.client_list(_type="normal")], True)
check("about itself", r.client_info()["name"], "tester")
check("kill by id", r.client_kill_filter(_id=number), 1)
fails("its connection is closed", redis.ConnectionError, other.ping)
check("it comes back by itself", other.client_id() > number, True)
fails("kill of nobody", redis.ResponseError, lambda: r.client_kill("127.0.0.1:1"))
check("no-evict", r.execute_command("CLIENT", "NO-EVICT", "ON"), "OK")
check("pause and go on", (r.client_pause(60000, all=False), r.get("a"), r.client_unpause()), (True, None, "OK"))

# A pool of connections that are killed all the time: who asks again gets another one. (redis-py's own retries leave a gap
# between the look whether a connection is alive and its use.)
pool = redis.ConnectionPool(port=port, max_connections=8, client_name="pooled")
done, kills = [], 0


def work():
    own = redis.Redis(connection_pool=pool)

    def again(call):
        for _ in range(1000):
            try:
                return call()
            except redis.ConnectionError:
                pass

    for step in range(300):
        again(lambda: own.set(f"pooled:{threading.get_ident()}", step))
    done.append(again(lambda: own.get(f"pooled:{threading.get_ident()}")))


threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
while any(t.is_alive() for t in threads) or kills == 0:
    victims = [c["id"] for c in r.client_list() if c["name"] == "pooled"]
    for victim in victims[:1]:
        kills += r.client_kill_filter(_id=victim)
[t.join() for t in threads]
check("all of it was done", done, [b"299"] * 4)

# A password.
check("requirepass", r.config_set("requirepass", "s3cret"), True)
fails("without it", redis.AuthenticationError, redis.Redis(port=port).ping)
fails("a wrong one", redis.ResponseError, redis.Redis(port=port, password="wrong").ping)
check("with it", redis.Redis(port=port, password="s3cret").ping(), True)
check("with the user's name", redis.Redis(port=port, username="default", password="s3cret").ping(), True)
check("by URL", redis.from_url(f"redis://:s3cret@127.0.0.1:{port}/0").ping(), True)
check("who was connected stays", r.ping(), True)
check("no password again", r.config_set("requirepass", ""), True)

# What an operator asks.
before = r.lastsave()
check("a backup in the background", r.bgsave(), True)
end = time.time() + 30
while r.info("persistence")["rdb_bgsave_in_progress"] and time.time() < end:
    time.sleep(0.005)
info = r.info("persistence")
check("it is well", (info["rdb_last_bgsave_status"], info["rdb_saves"] >= 1, r.lastsave() >= before), ("ok", True, True))
check("save", r.save(), True)
check("a short threshold", r.config_set("slowlog-log-slower-than", 0), True)
r.get("seen in the slow log")
entry = next((e for e in r.slowlog_get(10) if b"GET seen in the slow log" in e["command"]), {})
check("an entry of the slow log", (entry.get("duration", -1) >= 0, entry.get("start_time", 0) > 0, "id" in entry), (True, True, True))
r.config_set("slowlog-log-slower-than", 10000)
check("its length", r.slowlog_len() > 0, True)
check("its end", (r.slowlog_reset(), r.slowlog_len()), (True, 0))
with r.monitor() as m:
    r.set("monitored", "1")
    check("monitor", next(m.listen())["command"], "SET monitored 1")
check("time", abs(r.time()[0] - time.time()) < 5, True)
print("all good")
