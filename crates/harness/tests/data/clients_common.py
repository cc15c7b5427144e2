"""The beginning of what users of redis-py do: clients.py and collections.py go on from here. Run by clients.rs with the
port as the argument."""
import datetime
import sys
import threading
import time

import redis

port = int(sys.argv[1])
has_resp3 = int(redis.__version__.split(".")[0]) >= 5


def connect(resp3=False, **options):
    if has_resp3:
        options["protocol"] = 3 if resp3 else 2
    return redis.Redis(port=port, decode_responses=True, **options)


def check(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} instead of {expected!r}")


def fails(name, error, call):
    try:
        call()
    except error:
        return
    sys.exit(f"{name}: no {error.__name__}")


