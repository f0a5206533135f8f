"""Patience, names of one's own, and things that happen at the same time."""

import concurrent.futures
import itertools
import os
import threading
import time

PATIENCE = 120  # seconds after which something that must happen has not happened

counter = itertools.count(1)


def unique(prefix):
    """A name that no other test uses, so that what a test counts is its own."""
    return f"{prefix}_{os.getpid()}_{next(counter)}"


def wait_until(what, holds):
    """Comes back with the first true answer. What never holds fails the test, not hangs it."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(0.005)
    return answer


def in_background(function, *arguments, **named):
    """A future. Its thread is never waited for: a request may be stuck on purpose."""
    executor = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    future = executor.submit(function, *arguments, **named)
    executor.shutdown(wait=False)
    return future


def at_once(calls):
    """The answers of calls that start at the same moment, in order."""
    start = threading.Barrier(len(calls), timeout=PATIENCE)

    def run(call):
        start.wait()
        return call()

    with concurrent.futures.ThreadPoolExecutor(max_workers=len(calls)) as executor:
        return list(executor.map(run, calls, timeout=2 * PATIENCE))
