"""The jobs of rq_queues.py. Workers import them by name, in processes of their own too."""
import time

from rq import get_current_job


def add(a, b):
    return a + b


def fail(text):
    raise ValueError(text)


def fail_twice():
    """Counts its runs under a key of the server and succeeds in the third."""
    job = get_current_job()
    run = job.connection.incr(f"runs:{job.id}")
    if run < 3:
        raise ValueError(f"run {run}")
    return run


def note(word):
    """Appends the word to a list, by which the order of jobs is seen."""
    return get_current_job().connection.rpush("notes", word)


def sleep(seconds):
    time.sleep(seconds)
