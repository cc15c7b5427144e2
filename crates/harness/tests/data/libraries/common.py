"""The parts that all scripts of this directory share. Each is run by libraries.rs with the port as the argument."""
import faulthandler
import sys
import time

import redis

# Threads and workers may hang; this ends the script and tells where each thread is.
faulthandler.dump_traceback_later(60, exit=True)

port = int(sys.argv[1])


def connect(**options):
    return redis.Redis(port=port, **options)


def check(name, got, expected):
    if got != expected:
        sys.exit(f"{name}: {got!r} instead of {expected!r}")


def fails(name, error, call):
    try:
        call()
    except error:
        return
    sys.exit(f"{name}: no {error.__name__}")


def wait_for(name, call, expected):
    until = time.monotonic() + 15
    while (got := call()) != expected:
        if time.monotonic() > until:
            sys.exit(f"{name}: {got!r} instead of {expected!r}")
        time.sleep(0.02)
