# Streams with consumer groups, as a user of redis-py has them; behind clients_common.py.


# One consumer after the other.
def groups(r, resp3):
    check("a group of a stream that is made", r.xgroup_create("s", "g", id="0", mkstream=True), True)
    fails("a group that is there", redis.ResponseError, lambda: r.xgroup_create("s", "g"))
    ids = [r.xadd("s", {"number": n}, id=f"{n}-1") for n in range(1, 6)]
    check("xadd", ids, ["1-1", "2-1", "3-1", "4-1", "5-1"])
    check("what is new", r.xreadgroup("g", "alice", {"s": ">"}, count=2), [["s", [("1-1", {"number": "1"}), ("2-1", {"number": "2"})]]])
    check("and what is new then", r.xreadgroup("g", "bob", {"s": ">"}), [["s", [(f"{n}-1", {"number": str(n)}) for n in (3, 4, 5)]]])
    check("nothing new", r.xreadgroup("g", "bob", {"s": ">"}), [])
    check("history", r.xreadgroup("g", "alice", {"s": "1-1"}), [["s", [("2-1", {"number": "2"})]]])
    pending = r.xpending("s", "g")
    check("a summary", (pending["pending"], pending["min"], pending["max"]), (5, "1-1", "5-1"))
    check("by consumer", pending["consumers"], [{"name": "alice", "pending": 2}, {"name": "bob", "pending": 3}])
    found = r.xpending_range("s", "g", "-", "+", 10, consumername="alice")
    check("in detail", [(one["message_id"], one["times_delivered"]) for one in found], [("1-1", 1), ("2-1", 2)])
    check("acknowledged", (r.xack("s", "g", "1-1", "3-1"), r.xack("s", "g", "1-1")), (2, 0))
    check("claimed", r.xclaim("s", "g", "carol", 0, ["2-1"]), [("2-1", {"number": "2"})])
    check("claimed, the id only", r.xclaim("s", "g", "carol", 0, ["4-1"], justid=True), ["4-1"])
    check("nobody idle for so long", r.xautoclaim("s", "g", "dave", 1000000)[1], [])
    check("all of it", r.xautoclaim("s", "g", "dave", 0, justid=True), ["2-1", "4-1", "5-1"])
    r.xdel("s", "5-1")
    check("what was removed", r.xreadgroup("g", "dave", {"s": "4-1"}), [["s", [("5-1", {})]]])
    info = r.xinfo_groups("s")[0]
    check("xinfo groups", (info["name"], info["consumers"], info["pending"], info["last-delivered-id"]), ("g", 4, 3, "5-1"))
    check("and how far it is", (info["entries-read"], info["lag"]), (5, 0))
    check("xinfo consumers", [(c["name"], c["pending"]) for c in r.xinfo_consumers("s", "g")], [("alice", 0), ("bob", 0), ("carol", 0), ("dave", 3)])
    check("xinfo stream", (r.xinfo_stream("s")["groups"], r.xinfo_stream("s", full=True)["groups"][0]["pel-count"]), (1, 3))
    check("consumers come and go", (r.xgroup_createconsumer("s", "g", "eve"), r.xgroup_delconsumer("s", "g", "dave")), (1, 3))
    check("setid", r.xgroup_setid("s", "g", "3"), True)
    check("delivered again", r.xreadgroup("g", "eve", {"s": ">"}, noack=True), [["s", [("3-1", {"number": "3"}), ("4-1", {"number": "4"})]]])
    check("destroyed", (r.xgroup_destroy("s", "g"), r.xgroup_destroy("s", "g")), (1, 0))
    fails("no group", redis.ResponseError, lambda: r.xreadgroup("g", "eve", {"s": ">"}))


# Workers that wait for a stream while one adds to it; each entry is done once, and what one has left undone another one does.
def workers(r, resp3):
    r.xgroup_create("jobs", "g", id="0", mkstream=True)
    done, left, total = [], [], 500
    lock = threading.Lock()

    def work(name):
        own = connect(resp3)
        while len(done) + len(left) < total:
            for _, entries in own.xreadgroup("g", name, {"jobs": ">"}, count=3, block=50) or []:
                for id, fields in entries:
                    number = int(fields["number"])
                    with lock:
                        (left if number % 10 == 0 else done).append(number)
                    if number % 10:
                        check("acknowledged", own.xack("jobs", "g", id), 1)

    threads = [threading.Thread(target=work, args=(f"worker {n}",)) for n in range(4)]
    [t.start() for t in threads]
    pipeline = r.pipeline(transaction=False)
    for number in range(total):
        pipeline.xadd("jobs", {"number": number})
        if number % 25 == 0:
            pipeline.execute()
    pipeline.execute()
    [t.join(60) for t in threads]
    check("each was delivered once", sorted(done + left), list(range(total)))
    check("what was left is pending", r.xpending("jobs", "g")["pending"], len(left))
    claimed = r.xautoclaim("jobs", "g", "late", 0, count=total, justid=True)
    check("and is done by another", r.xack("jobs", "g", *claimed), len(left))
    check("nothing is pending", r.xpending("jobs", "g")["pending"], 0)


# Who waits learns that the group has gone.
def gone(r, resp3):
    errors = []

    def waiter():
        try:
            connect(resp3).xreadgroup("g", "c", {"s": ">"}, block=0)
        except redis.ResponseError as error:
            errors.append(str(error))

    for end in (lambda: r.xgroup_destroy("s", "g"), lambda: r.delete("s"), lambda: r.pexpire("s", 5), lambda: r.set("s", "text")):
        r.delete("s")
        r.xgroup_create("s", "g", mkstream=True)
        thread = threading.Thread(target=waiter)
        thread.start()
        until = time.time() + 30
        while int(r.info("clients")["blocked_clients"]) < 1 and time.time() < until:
            time.sleep(0.001)
        end()
        thread.join(30)
    check("errors", [error.split()[0] for error in errors], ["NOGROUP", "NOGROUP", "NOGROUP", "WRONGTYPE"])
    r.flushall()


for resp3 in (False, True) if has_resp3 else (False,):
    connect().flushall()
    for use in (groups, workers, gone):
        use(connect(resp3), resp3)
print("all good")
