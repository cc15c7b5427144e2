"""Tasks of Celery with broker and results on the server; the worker is a thread of this process."""
import datetime
import time

from celery import Celery, chain, chord, group
from celery.contrib.testing.worker import start_worker

from common import check, connect, fails, port, wait_for

client = connect()
url = f"redis://127.0.0.1:{port}/0"
app = Celery("tests", broker=url, backend=url)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_track_started=True,
    worker_prefetch_multiplier=1,
    # Seconds after which Kombu looks for messages that nobody acknowledged.
    broker_transport_options={"visibility_timeout": 30},
)


@app.task(name="add")
def add(a, b):
    return a + b


@app.task(name="total")
def total(numbers):
    return sum(numbers)


@app.task(name="fail")
def fail(text):
    raise ValueError(text)


@app.task(name="retry", bind=True, max_retries=2)
def retry(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


def get(result):
    return result.get(timeout=15)


waiting = add.delay(1, 1)
check("a message waits for the worker", (client.llen("celery"), waiting.state), (1, "PENDING"))
with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=15, loglevel="CRITICAL"):
    check("what waited", (get(waiting), waiting.state), (2, "SUCCESS"))
    check("a result", get(add.delay(2, 3)), 5)
    check("its time to live", 86000 < client.ttl(f"celery-task-meta-{waiting.id}") <= 86400, True)
    failed = fail.delay("as it should")
    fails("a failure", ValueError, lambda: get(failed))
    check("its state", failed.state, "FAILURE")
    check("the third run", get(retry.delay()), 2)
    start = time.monotonic()
    check("a countdown", (get(add.apply_async((1, 2), countdown=1)), time.monotonic() - start >= 1), (3, True))
    check("a group", get(group(add.s(number, number) for number in range(20))()), [2 * number for number in range(20)])
    check("a chain", get(chain(add.s(1, 2), add.s(3), add.s(4))()), 10)
    check("a chord", get(chord((add.s(number, 1) for number in range(20)), total.s())()), 210)
    check("a priority", get(add.apply_async((4, 4), priority=9)), 8)
    late = add.apply_async((1, 1), expires=datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1))
    wait_for("one that is too late", lambda: late.state, "REVOKED")
    wait_for("all is acknowledged", lambda: client.hlen("unacked"), 0)
    check("no message is left", client.llen("celery"), 0)
late = [add.delay(number, 0) for number in range(3)]
check("messages without a worker", client.llen("celery"), 3)
check("purged", (app.control.purge(), client.llen("celery")), (3, 0))
print("all good")
