"""Locks that live on scripts: python-redis-lock, which wakes waiters by BLPOP, and Pottery's Redlock."""
import threading
import time

import redis_lock
from pottery import ExtendUnlockedLock, NextID, Redlock, ReleaseUnlockedLock, TooManyExtensions, synchronize

from common import check, connect, fails, wait_for

client = connect()


def exclude(name, new_lock):
    """Threads that read a number and write the next one back lose none if never two of them hold the lock."""
    client.set("number", 0)

    def add():
        for _ in range(10):
            with new_lock():
                number = int(client.get("number"))
                time.sleep(0.001)
                client.set("number", number + 1)

    threads = [threading.Thread(target=add, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    check(name, int(client.get("number")), 80)


def redis_lock_works():
    def lock(**options):
        return redis_lock.Lock(client, "one", **options)

    exclude("python-redis-lock among threads", lambda: lock(expire=20))
    owner, other = lock(expire=20, id="owner"), lock(expire=20, id="other")
    check("acquired", (owner.acquire(), owner.locked(), other.get_owner_id()), (True, True, "owner"))
    check("held by another", other.acquire(blocking=False), False)
    before = time.monotonic()
    check("waited in vain", other.acquire(timeout=1), False)
    check("for a second", 0.9 < time.monotonic() - before < 5, True)
    fails("a release by another", redis_lock.NotAcquired, other.release)
    fails("an extension by another", redis_lock.NotAcquired, other.extend)
    fails("twice", redis_lock.AlreadyAcquired, owner.acquire)
    owner.extend(expire=100)
    check("extended", 90 < client.ttl("lock:one") <= 100, True)

    got = []
    waiter = threading.Thread(target=lambda: got.append(other.acquire(timeout=15)), daemon=True)
    waiter.start()
    wait_for("somebody waits", lambda: client.info("clients")["blocked_clients"], 1)
    owner.release()
    waiter.join(15)
    check("the waiter has it", (got, owner.get_owner_id()), ([True], "other"))
    fails("a second release", redis_lock.NotAcquired, owner.release)
    owner.reset()
    check("reset", (owner.locked(), client.pttl("lock-signal:one") > 0), (False, True))
    fails("after the reset", redis_lock.NotAcquired, other.release)

    brief = lock(expire=1, id="brief")
    brief.acquire()
    wait_for("expired", brief.locked, False)
    fails("after its time", redis_lock.NotAcquired, brief.release)
    with lock(expire=3, auto_renewal=True) as renewed:
        time.sleep(4)
        check("renewed", renewed.get_owner_id(), renewed.id)
    endless = lock(id="endless")
    endless.acquire()
    fails("an extension of what has no end", redis_lock.NotExpirable, lambda: endless.extend(expire=5))
    client.set("lock:two", "x")
    redis_lock.reset_all(client)
    check("all are reset", client.keys("lock:*"), [])


def redlock_works():
    masters = {client}

    def lock(**options):
        return Redlock(key="printer", masters=masters, **options)

    exclude("Redlock among threads", lock)
    owner, other = lock(auto_release_time=10), lock()
    check("acquired", (owner.acquire(), 8 < owner.locked() <= 10), (True, True))
    check("held by another", (other.acquire(blocking=False), other.acquire(timeout=0.5)), (False, False))
    check("another's view", other.locked(), 0)
    fails("a release by another", ReleaseUnlockedLock, other.release)
    fails("an extension by another", ExtendUnlockedLock, other.extend)
    time.sleep(1)
    before = owner.locked()
    for _ in range(3):
        owner.extend()
    check("extended", before < owner.locked() <= 10, True)
    fails("too often", TooManyExtensions, owner.extend)
    owner.release()
    fails("a second release", ReleaseUnlockedLock, owner.release)
    brief = lock(auto_release_time=0.3)
    brief.acquire()
    check("acquired when the other's time is over", other.acquire(timeout=10), True)
    fails("after its time", ReleaseUnlockedLock, brief.release)
    other.release()
    check("no lock is left", client.keys("redlock:*"), [])

    ids = []

    @synchronize(key="ids", masters=masters, auto_release_time=5, blocking=True)
    def take(generator):
        ids.append(next(generator))

    threads = [threading.Thread(target=take, args=(NextID(key="n", masters=masters),), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    check("numbers that nobody else has", sorted(ids), list(range(1, 9)))


redis_lock_works()
redlock_works()
check("scripts were run", client.info("commandstats")["cmdstat_evalsha"]["calls"] > 100, True)
print("all good")
