"""Times at which the machine stood still, so that a deadline of a second or two passed and no program was at fault."""

import math
import threading
import time

import psycopg

PAUSE = 0.1  # seconds between two looks
STALL = 0.5  # seconds; the shortest deadline of a case is one second


class Stalls:
    """Commits transactions, and asks the server under test for /health. An idle machine does either in less than a fifth of a second."""

    def __init__(self, server):
        self.server = server
        self.connection = psycopg.connect(dbname="postgres", autocommit=True, application_name="suite")
        self.looks = [lambda: self.connection.execute("SELECT pg_current_xact_id()"), self._ask]
        self.found = []  # (end, seconds)
        self.begun = math.inf  # of the present look
        self.stopped = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def longest_since(self, start):
        """Seconds; 0 if there was none. One that still lasts counts."""
        now = time.monotonic()
        return max((seconds for end, seconds in [*self.found, (now, now - self.begun)] if end > start and seconds > STALL), default=0)

    def stop(self):
        self.stopped.set()

    def _ask(self):
        try:
            self.server.call("/health", method="GET", timeout=60)
        except (OSError, ValueError):  # a case has ended it
            pass

    def _run(self):
        while not self.stopped.wait(PAUSE):
            for look in self.looks:
                self.begun = time.monotonic()
                look()
                end = time.monotonic()
                if end - self.begun > STALL:
                    self.found.append((end, end - self.begun))
            self.begun = math.inf
        self.connection.close()
