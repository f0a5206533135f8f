"""Patience, names of one's own, and things that happen at the same time."""

import concurrent.futures
import itertools
import os
import threading
import time

PATIENCE = int(os.environ.get("PATIENCE", "60"))  # seconds after which something that must happen has not happened

_counter = itertools.count(1)


def unique(prefix):
    """A name that no other case uses, and of which none is the beginning of another."""
    return f"{prefix}-{os.getpid()}-{next(_counter):05}"


def wait_until(what, holds, patience=PATIENCE, pause=0.02):
    """The first true answer. What never holds fails the case, not hangs it."""
    deadline = time.monotonic() + patience
    while not (answer := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(pause)
    return answer


def in_background(function, *arguments, **named):
    """A future. Its thread is never waited for: a request may be stuck on purpose."""
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:  # pylint: disable=broad-except
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
