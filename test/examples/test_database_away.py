"""The database is stopped and started under the running service.

Only a server whose data folder is given on purpose is stopped: PGDATA, with PG_CTL naming the
program. Otherwise these tests are skipped, and say so.
"""

import os
import pathlib
import subprocess
import unittest

from http_call import payment
from processes import SHORT_LEASE_MS
from support import PaymentsTest
from waiting import in_background, wait_until

EVENT = {
    "type": "payment.captured",
    "resource_id": "r",
    "updated_at": "2025-03-14T09:00:00Z",
    "data": {},
}


def pg_ctl(command, *options):
    """As the owner of the data folder: the server refuses to run as root."""
    folder = pathlib.Path(os.environ["PGDATA"])
    owner = folder.stat()
    become = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    subprocess.run(
        [os.environ["PG_CTL"], command, "--wait", "-D", folder, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        check=True,
        **become,
    )


@unittest.skipUnless(
    "PGDATA" in os.environ and "PG_CTL" in os.environ,
    "PGDATA and PG_CTL do not name a server that may be stopped",
)
class DatabaseAway(PaymentsTest):
    lease = SHORT_LEASE_MS
    stopped = False

    def stop(self):
        self.addCleanup(self.start)
        pg_ctl("stop", "--mode", "fast")
        self.stopped = True

    def start(self):
        if self.stopped:
            log = pathlib.Path(os.environ["PGDATA"]) / "started_by_tests.log"
            pg_ctl("start", "--silent", "--log", log)
            self.database.connect()
            self.stopped = False

    def test_routes_are_503_and_recover_by_themselves(self):
        bodies = {"/payments": payment(), "/transfers": payment(), "/webhooks": EVENT}
        self.stop()
        for path, body in bodies.items():
            for pod in self.pods:
                with self.subTest(path):
                    answer = pod.send("POST", path, body, tenant=self.tenant, key=self.key)
                    self.assert_problem(answer, 503)
                    self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
                    self.assertEqual(pod.call("GET", "/healthz").status, 200)
        self.assertEqual(self.gateway.charges(), [])
        self.start()
        first = self.pod.pay(payment(), tenant=self.tenant, key=self.key)
        self.assert_executed(first)
        self.assert_replay_of(first, self.other.pay(payment(), tenant=self.tenant, key=self.key))

    def test_database_going_away_while_the_gateway_works_charges_once(self):
        def transfer(pod):
            return pod.send("POST", "/transfers", payment(), tenant=self.tenant, key=self.key)

        self.gateway.control(hold_next=1)
        pending = in_background(transfer, self.pod)
        wait_until("the gateway has charged", self.gateway.charges)
        self.stop()
        self.gateway.release()
        self.assertGreaterEqual(pending.result().status, 500)
        self.start()
        wait_until("the transfer is done", lambda: transfer(self.other).status == 201)
        self.assertEqual(len(self.gateway.charges()), 1)


if __name__ == "__main__":
    unittest.main()
