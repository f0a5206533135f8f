"""The database is stopped and started under the running service.

That is done only to a server whose data folder is given on purpose: PGDATA, with PG_CTL naming the
program. Otherwise these tests are skipped, and say so.
"""

import os
import pathlib
import subprocess
import unittest

import psycopg

import test_client
from http_call import payment, refund_of
from support import PaymentsTest
from waiting import PATIENCE, in_background, wait_until

CLOSED = {"/payments", "/refunds", "/transfers", "/webhooks"}  # the routes that fail closed
ESTIMATE = {"items": [{"price": "9.90", "quantity": 2}]}
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
    stopped = False

    def stop(self, mode="fast"):
        self.addCleanup(self.start)
        pg_ctl("stop", "--mode", mode)
        self.stopped = True

    def start(self):
        if self.stopped:
            log = pathlib.Path(os.environ["PGDATA"]) / "started_by_tests.log"
            pg_ctl("start", "--silent", "--log", log)
            self.database.connect()
            self.stopped = False

    def pay(self, pod=None):
        return (pod or self.pod).pay(payment(), tenant=self.tenant, key=self.key)

    def estimate(self, pod=None):
        return (pod or self.pod).send(
            "POST", "/estimates", ESTIMATE, tenant=self.tenant, key=self.key
        )

    def assert_unavailable(self, answer):
        self.assert_problem(answer, 503)
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)

    def assert_recovered(self, send):
        """Both processes find the database again by themselves, at the first request."""
        first = send(self.pod)
        self.assert_executed(first, first.status)
        self.assertIn(first.status, (200, 201))
        self.assert_replay_of(first, send(self.other))

    def test_database_stopped_is_503_where_the_route_fails_closed(self):
        bodies = {
            "/payments": payment(),
            "/refunds": refund_of(self.pod.pay(payment(), tenant=self.tenant, key="paid")),
            "/transfers": payment(),
            "/webhooks": EVENT,
        }
        self.assertEqual(set(bodies), CLOSED)
        self.stop()
        for path, body in bodies.items():
            for pod in self.pods:
                with self.subTest(path):
                    self.assert_unavailable(
                        pod.send("POST", path, body, tenant=self.tenant, key=self.key)
                    )
        self.assertEqual(self.gateway.charges(), [])

    def test_service_recovers_after_the_restart(self):
        self.assert_executed(self.pod.pay(payment(), tenant=self.tenant, key="before"))
        self.stop()
        self.assert_unavailable(self.pay())
        self.start()
        self.assert_recovered(self.pay)
        self.assertEqual(self.database.charges(self.tenant), 2)

    def test_restart_between_two_requests_is_no_error_to_anyone(self):
        """Connections that broke while nobody used them are nobody's failure."""
        first = self.pay()
        self.stop("immediate")
        self.start()
        self.assert_replay_of(first, self.pay())
        self.assert_replay_of(first, self.pay(self.other))

    def test_fail_open_route_answers_without_protection(self):
        self.stop()
        for pod in self.pods:
            answer = self.estimate(pod)
            self.assert_executed(answer, 200)
            self.assertEqual(answer.json(), {"total": "19.80"})
        self.start()
        self.assert_recovered(self.estimate)

    def test_routes_without_the_database_stay_up(self):
        self.stop()
        for pod in self.pods:
            self.assertEqual(pod.call("GET", "/healthz").status, 200)
            self.assert_problem(pod.send("GET", "/payments", tenant=self.tenant), 503)

    def test_database_crashing_in_mid_request_leaves_the_key_free(self):
        with self.assertRaises(psycopg.OperationalError), self.database.gate():
            pending = in_background(self.pay)
            wait_until("the payment stands before the gate", self.database.waiting)
            self.stop("immediate")
        answer = pending.result()
        self.assert_unavailable(answer)
        self.start()
        self.assert_recovered(self.pay)
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_database_going_away_while_the_gateway_works_charges_once(self):
        def transfer(pod):
            return pod.send("POST", "/transfers", payment(), tenant=self.tenant, key=self.key)

        self.gateway.control(hold_next=1)
        pending = in_background(transfer, self.pod)
        wait_until("the gateway has charged", self.gateway.charges)
        self.stop()
        self.gateway.release()
        answer = pending.result()
        self.assertGreaterEqual(answer.status, 500)
        self.start()
        wait_until("the transfer is done", lambda: transfer(self.other).status == 201)
        self.assertEqual(len(self.gateway.charges()), 1)

    def test_client_rides_out_an_outage(self):
        self.stop()
        url = f"http://127.0.0.1:{self.pod.port}/payments"
        options = ("--attempts", "60", "--base", "20", "--cap", "200")
        pending = in_background(
            test_client.client, url, *options, key=self.key, data=payment(), tenant=self.tenant
        )
        wait_until("it was refused", lambda: " 503 " in self.pod.logged())
        self.start()
        status, printed = pending.result(PATIENCE)
        self.assertEqual(status, test_client.ANSWERED, printed)
        self.assertEqual(self.database.charges(self.tenant), 1)


if __name__ == "__main__":
    unittest.main()
