"""PgBouncer in transaction mode stands before the database."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess

from .server import Server
from .support import Case, needs

POOLED = pathlib.Path(__file__).resolve().parents[2] / "drivers" / "pooled"


@needs("pgbouncer")
class Pooled(Case):
    def setUp(self):
        if not shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"):
            self.skipTest("PgBouncer is not installed")
        super().setUp()
        self.pooler = subprocess.Popen(
            [POOLED, "sh", "-c", "echo $POOLER_PORT; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "POOLER_SIZE": "10"},
        )  # fmt: skip
        self.addCleanup(self.end_pooler)
        known = self.suite
        self.server = Server(known.folder, known.variant, self.database, "pooled", int(self.pooler.stdout.readline()))
        self.addCleanup(self.server.close)
        self.server.start()

    def end_pooler(self):
        self.pooler.stdin.close()  # ends the command, and so the pooler
        self.pooler.wait(20)
        self.pooler.stdout.close()

    def test_many_requests(self):
        """Each transaction may get another session: no statement of the client's may count on one."""

        def request(number):
            path = ("/transactional", "/leased", "/pass", "/derive")[number % 4]
            key = f"{self.key}-{number}" if path != "/derive" else None
            order = {"effect": "done", "number": number}
            first = self.send(path, order, key=key)
            if key is None:
                self.prolong(key=(first.one("Idempotency-Key") or "").strip('"'))
            return [first, self.send(path, order, key=key)]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for first, again in pool.map(request, range(80)):
                self.assert_executed(first)
                self.assert_replay_of(first, again)
        self.assert_effects(80)
