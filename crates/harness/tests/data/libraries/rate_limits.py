"""Windows of the library `limits` on a Redis storage: fixed, moving and sliding."""
import threading
import time

from limits import parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from common import check, connect, port, wait_for

client = connect()
storage = storage_from_string(f"redis://127.0.0.1:{port}")
check("the storage answers", storage.check(), True)


def each_window_counts(limiter):
    """What all windows have in common; identifiers keep them apart."""
    name, limit = type(limiter).__name__, parse("5/minute")
    check(f"{name}: within", [limiter.hit(limit, "all", name) for _ in range(7)], [True] * 5 + [False] * 2)
    check(f"{name}: asked", limiter.test(limit, "all", name), False)
    stats = limiter.get_window_stats(limit, "all", name)
    check(f"{name}: remaining", (stats.remaining, -1 < stats.reset_time - time.time() <= 61), (0, True))
    check(f"{name}: another", limiter.hit(limit, "b", name, cost=4), True)
    check(f"{name}: what another has left", limiter.get_window_stats(limit, "b", name).remaining, 1)
    check(f"{name}: more than that", limiter.hit(limit, "b", name, cost=2), False)
    limiter.clear(limit, "all", name)
    check(f"{name}: cleared", (limiter.test(limit, "all", name), limiter.hit(limit, "all", name)), (True, True))

    limit, passed = parse("50/minute"), []

    def hit():
        passed.extend(limiter.hit(limit, "threads", name) for _ in range(20))

    threads = [threading.Thread(target=hit, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    check(f"{name}: threads", (len(passed), sum(passed)), (160, 50))


def windows_end():
    fixed, limit = FixedWindowRateLimiter(storage), parse("3/2 second")
    check("fixed: all at once", [fixed.hit(limit, "fixed", cost=3), fixed.hit(limit, "fixed")], [True, False])
    wait_for("fixed: the next window", lambda: fixed.hit(limit, "fixed"), True)

    moving, limit = MovingWindowRateLimiter(storage), parse("2/4 second")
    start = time.monotonic()
    moving.hit(limit, "moving")
    time.sleep(2)
    moving.hit(limit, "moving")
    check("moving: full", moving.hit(limit, "moving"), False)
    wait_for("moving: the first one has left", lambda: moving.hit(limit, "moving"), True)
    check("moving: not earlier", time.monotonic() - start >= 3.9, True)
    check("moving: the second one has not", moving.hit(limit, "moving"), False)

    # A window counts on through the next one, by the part of it that is still in sight.
    sliding, limit = SlidingWindowCounterRateLimiter(storage), parse("10/2 second")
    start = time.monotonic()
    check("sliding: full", [sliding.hit(limit, "sliding", cost=10), sliding.hit(limit, "sliding")], [True, False])
    wait_for("sliding: a little", lambda: sliding.hit(limit, "sliding"), True)
    check("sliding: not in the window", time.monotonic() - start >= 1.9, True)
    wait_for("sliding: all", lambda: sliding.get_window_stats(limit, "sliding").remaining, 10)
    check("sliding: not in the next one", time.monotonic() - start >= 3.9, True)


def large_amounts():
    """Scripts push and remove thousands of elements by one call of unpack."""
    moving = MovingWindowRateLimiter(storage)
    limit = parse("12000/hour")
    check("a large cost", moving.hit(limit, "large", cost=11000), True)
    check("remaining", moving.get_window_stats(limit, "large").remaining, 1000)
    check("too much", moving.hit(limit, "large", cost=1001), False)
    fixed = FixedWindowRateLimiter(storage)
    with client.pipeline(transaction=False) as pipeline:
        for number in range(6000):
            pipeline.set(f"LIMITS:{number}", 1)
        pipeline.execute()
    fixed.hit(limit, "fixed")
    client.set("other", 1)
    there = len(client.keys("LIMITS:*"))
    check("all are reset", (storage.reset(), client.keys("*")), (there, [b"other"]))


for limiter in (FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter):
    each_window_counts(limiter(storage))
windows_end()
large_amounts()
print("all good")
