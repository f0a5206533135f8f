"""The language's helper for those who call such services, with faults between it and the service, and behind it.

`example/call URL TOKEN COUNT` executes so many orders, each with a key of its own, several at a time, and prints a
line for each: the key and the last answer's status.
"""

import itertools
import os
import socket
import subprocess
import threading
import time

from .server import CLIENTS
from .support import Case

COUNT = 40


class Between:
    """Forwards HTTP connections; does each of the kinds of harm to some."""

    KINDS = (None, "refused", None, "request cut", None, "answer lost", None, "answer cut")

    def __init__(self, port):
        self.target = port
        self.kinds = itertools.cycle(self.KINDS)
        self.harm = dict.fromkeys(self.KINDS, 0)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, next(self.kinds)), daemon=True).start()

    def _serve(self, client, kind):
        self.harm[kind] += 1
        with client:
            if kind == "refused":
                return
            with socket.create_connection(("127.0.0.1", self.target)) as service:
                back = threading.Thread(target=self._copy, args=(service, client, kind), daemon=True)
                back.start()
                self._copy(client, service, kind if kind == "request cut" else None)
                back.join(0 if kind == "request cut" else 30)

    @staticmethod
    def _copy(source, sink, kind):
        try:
            while data := source.recv(65536):
                if kind in ("request cut", "answer cut"):
                    sink.sendall(data[: len(data) // 2])
                elif kind is None:
                    sink.sendall(data)
                if kind is not None:
                    break
            for end in (source, sink) if kind else (sink,):
                end.shutdown(socket.SHUT_RDWR if kind else socket.SHUT_WR)
        except OSError:
            pass  # the other direction has ended it


class Callers(Case):
    lone = True

    def setUp(self):
        self.program = CLIENTS / self.suite.folder / "example" / "call"
        if not self.program.exists():
            self.skipTest("the language has no example/call")
        super().setUp()

    def call(self, path, meanwhile=lambda: None):
        between = Between(self.server.port)
        self.addCleanup(between.close)
        url = f"http://127.0.0.1:{between.port}{path}"
        with subprocess.Popen(
            [self.program, url, self.principal, str(COUNT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
        ) as caller:  # fmt: skip
            harm = threading.Thread(target=meanwhile, daemon=True)
            harm.start()
            self.addCleanup(harm.join)  # it would do harm to the next case, too
            said, complained = caller.communicate(timeout=120)
        self.assertEqual(caller.returncode, 0, complained[-3000:])
        self.assertTrue(all(between.harm.values()), between.harm)
        lines = [line.split() for line in said.splitlines()]
        self.assertEqual((len(lines), {status for _, status in lines}), (COUNT, {"201"}), lines)
        for key, _ in lines:
            self.assert_made_now(key)
        effects = self.database.rows("SELECT key FROM effect WHERE principal = %s", self.principal)
        self.assertEqual(sorted(key for (key,) in effects), sorted(key for key, _ in lines))

    def test_each_order_is_executed_once(self):
        self.call("/transactional")

    def test_leased(self):
        self.call("/leased")

    def test_the_database_is_away_for_a_while(self):
        def away():
            for _ in range(3):
                time.sleep(0.3)
                self.server.proxy.refuse()
                time.sleep(0.3)
                self.server.proxy.listen()

        self.call("/transactional", away)
