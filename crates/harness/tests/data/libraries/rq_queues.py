"""Jobs and workers of RQ: results, failures, retries, schedules, dependencies, limits of concurrency, unique jobs and
workers in processes of their own."""
import datetime
import os
import subprocess
import sys

import jobs
from rq import Queue, Retry, SimpleWorker, Worker
from rq.command import send_shutdown_command, send_stop_job_command
from rq.exceptions import DuplicateJobError
from rq.group import Group
from rq.job import Job, JobStatus
from rq.rate_limit import RateLimit, RateLimitRegistry
from rq.registry import ScheduledJobRegistry, StartedJobRegistry
from rq.scheduler import RQScheduler

from common import check, connect, fails, port, wait_for

client = connect()
queue = Queue("work", connection=client)


def burst(worker=SimpleWorker):
    worker([queue], connection=client).work(burst=True, logging_level="CRITICAL")


def sizes():
    registries = queue.finished_job_registry, queue.failed_job_registry, queue.deferred_job_registry
    return [queue.count] + [len(registry.get_job_ids()) for registry in registries]


def notes():
    words = [word.decode() for word in client.lrange("notes", 0, -1)]
    client.delete("notes")
    return words


def results_and_failures():
    added = queue.enqueue(jobs.add, 2, 3)
    failed = queue.enqueue(jobs.fail, "as it should")
    again = queue.enqueue(jobs.fail_twice, retry=Retry(max=2))
    check("before the worker", (sizes(), added.get_status()), ([3, 0, 0, 0], JobStatus.QUEUED))
    burst()
    check("after the worker", sizes(), [0, 2, 1, 0])
    check("a result", (added.get_status(refresh=True), added.return_value()), (JobStatus.FINISHED, 5))
    check("its time to live", 0 < client.ttl(f"rq:job:{added.id}") <= 500, True)
    check("a failure", failed.get_status(refresh=True), JobStatus.FAILED)
    check("its reason", "ValueError: as it should" in failed.latest_result().exc_string, True)
    check("its registry", queue.failed_job_registry.get_job_ids(), [failed.id])
    check("the third run", (again.get_status(refresh=True), again.return_value()), (JobStatus.FINISHED, 3))
    queue.failed_job_registry.requeue(failed.id)
    check("queued again", queue.job_ids, [failed.id])
    burst(Worker)
    check("failed again, in a child", (sizes(), len(failed.results())), ([0, 2, 1, 0], 2))
    failed.delete()
    check("deleted", (sizes(), Job.exists(failed.id, client)), ([0, 2, 0, 0], False))


def order():
    first = queue.enqueue(jobs.note, "first")
    queue.enqueue(jobs.note, "front", at_front=True)
    queue.enqueue(jobs.note, "after", depends_on=first)
    canceled = queue.enqueue(jobs.note, "canceled")
    many = [Queue.prepare_data(jobs.note, (f"many {number}",)) for number in range(20)]
    group = Group.create(connection=client)
    group.enqueue_many(queue, many)
    canceled.cancel()
    check("one waits for another", (queue.count, len(queue.deferred_job_registry)), (22, 1))
    burst()
    check("the order", notes(), ["front", "first"] + [f"many {number}" for number in range(20)] + ["after"])
    check("the group", {job.get_status() for job in group.get_jobs()}, {JobStatus.FINISHED})
    check("the canceled one", canceled.get_status(refresh=True), JobStatus.CANCELED)


def schedules():
    soon = queue.enqueue_in(datetime.timedelta(seconds=1), jobs.note, "soon")
    later = queue.enqueue_in(datetime.timedelta(hours=1), jobs.note, "later")
    registry = ScheduledJobRegistry(queue=queue)
    check("scheduled", (queue.count, registry.get_job_ids()), (0, [soon.id, later.id]))
    scheduler = RQScheduler([queue], connection=client, logging_level="CRITICAL")
    check("the scheduler's lock", scheduler.acquire_locks(), {"work"})
    check("a second scheduler", RQScheduler([queue], connection=client).acquire_locks(), set())

    def is_due():
        scheduler.enqueue_scheduled_jobs()
        return queue.job_ids

    wait_for("the job whose time has come", is_due, [soon.id])
    scheduler.release_locks()
    burst()
    check("what ran", (notes(), registry.get_job_ids()), (["soon"], [later.id]))
    later.delete()
    check("nothing is scheduled", registry.get_job_ids(), [])


def unique_jobs_and_limits():
    queue.enqueue(jobs.note, "unique", job_id="unique", unique=True)
    fails("the same id", DuplicateJobError, lambda: queue.enqueue(jobs.note, "two", job_id="unique", unique=True))
    burst()
    check("one ran", notes(), ["unique"])
    limit = RateLimit("narrow", concurrency=2)
    for number in range(6):
        queue.enqueue(jobs.note, f"limited {number}", rate_limit=limit)
    registry = RateLimitRegistry("narrow", client)
    check("two are let through", (queue.count, registry.get_rate_limited_job_count()), (2, 4))
    burst()
    # Their scores are whole seconds, so those of one second have no order.
    check("all ran", sorted(notes()), [f"limited {number}" for number in range(6)])
    registry.cleanup()
    check("nothing is left of the limit", client.keys("rq:rl:narrow*"), [])


def workers_in_processes():
    """A worker that waits is found by its name, is told to stop a job, works on, and is told to end."""
    command = [sys.executable, "-B", "-m", "rq.cli", "worker", "-q", "--name", "own", "--path"]
    command += [os.path.dirname(os.path.abspath(__file__)), "--url", f"redis://127.0.0.1:{port}", "work"]
    process = subprocess.Popen(command)
    try:
        wait_for("the worker's birth", lambda: [worker.name for worker in Worker.all(client)], ["own"])
        long = queue.enqueue(jobs.sleep, 60)
        wait_for("the job runs", lambda: StartedJobRegistry(queue=queue).get_job_ids(), [long.id])
        # Only the child that runs the job writes whose it is, without which nobody is told to stop it.
        wait_for("its worker", lambda: Job.fetch(long.id, client).worker_name, "own")
        send_stop_job_command(client, long.id)
        wait_for("the job is stopped", lambda: long.get_status(refresh=True), JobStatus.STOPPED)
        added = queue.enqueue(jobs.add, "a", "b")
        check("a result that is waited for", added.latest_result(timeout=15).return_value, "ab")
        send_shutdown_command(client, "own")
        check("its end", process.wait(15), 0)
        check("nobody is left", Worker.all(client), [])
    finally:
        process.kill()


results_and_failures()
order()
schedules()
unique_jobs_and_limits()
workers_in_processes()
queue.delete()
check("no queue is left", Queue.all(connection=client), [])
print("all good")
