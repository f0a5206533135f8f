"""payments_client: against a server that answers as a script says, and against the service."""

import collections
import http.server
import json
import re
import socketserver
import subprocess
import threading
import time
import unittest

from http_call import payment
from processes import program
from support import PaymentsTest
from waiting import PATIENCE, in_background, wait_until

Request = collections.namedtuple("Request", "time method path key authorization body")


def client(url, *options, method="POST", key=None, data=None, tenant="acme"):
    """Runs it; answers its exit status and what it printed."""
    command = [program("payments_client"), *options, method, url, "--tenant", tenant]
    if key is not None:
        command += ["--key", key]
    if data is not None:
        command += ["--data", json.dumps(data)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


class ScriptedHandler(http.server.BaseHTTPRequestHandler):
    """Answers what the server's script says next: (status, headers), or None: no answer at all."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(
            Request(
                time.monotonic(),
                self.command,
                self.path,
                self.headers["Idempotency-Key"],
                self.headers["Authorization"],
                body,
            )
        )
        script = self.server.script
        step = script.pop(0) if len(script) > 1 else script[0]
        if step is not None:
            self.answer(*step)
        self.close_connection = True

    do_GET = do_PATCH = do_POST

    def answer(self, status, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class ScriptedServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, *script):
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.script, self.seen = list(script), []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def pauses(self):
        times = [request.time for request in self.seen]
        return [later - earlier for earlier, later in zip(times, times[1:])]


ANSWERED, REFUSED, UNANSWERED = 0, 1, 2  # exit statuses

QUICK = ("--base", "5", "--cap", "20")
UNAVAILABLE = (503,)
CREATED = (201, [("Location", "/payments/p1"), ("Idempotent-Replayed", "true")])


class Retries(unittest.TestCase):
    """Of the client alone."""

    def send(self, server, *options, **named):
        named = {"key": "key-1", "data": payment(), **named}
        return client(server.url + "/payments", *(options or QUICK), **named)

    def test_request_is_sent_as_the_service_expects_it(self):
        with ScriptedServer(CREATED) as server:
            status, printed = self.send(server)
        self.assertEqual(status, ANSWERED)
        (request,) = server.seen
        self.assertEqual((request.method, request.path), ("POST", "/payments"))
        self.assertEqual((request.key, request.authorization), ('"key-1"', "Bearer sk_acme"))
        self.assertEqual(json.loads(request.body), payment())
        for expected in ("201", "/payments/p1", "{}"):
            self.assertIn(expected, printed)
        self.assertRegex(printed, re.compile("idempotent-replayed: *true", re.IGNORECASE))

    def test_every_retry_carries_the_same_key_and_body(self):
        with ScriptedServer(UNAVAILABLE, (409,), None, (429,), (502,), (504,), CREATED) as server:
            status, printed = self.send(server)
        self.assertEqual(status, ANSWERED)
        self.assertIn("201", printed)
        self.assertEqual(len(server.seen), 7)
        self.assertEqual(
            {(request.key, request.body) for request in server.seen},
            {('"key-1"', server.seen[0].body)},
        )

    def test_generated_key_is_the_same_on_every_retry(self):
        with ScriptedServer(UNAVAILABLE, UNAVAILABLE, CREATED) as server:
            self.send(server, key="new")
            self.send(server, key="new")
        keys = [request.key for request in server.seen]
        self.assertRegex(keys[0], r'^"[^"]{20,}"$')
        self.assertEqual(len(set(keys[:3])), 1)
        self.assertNotEqual(keys[3], keys[0])

    def test_client_gives_up_after_its_attempts(self):
        for attempts in (1, 4):
            with self.subTest(attempts), ScriptedServer(UNAVAILABLE) as server:
                status, printed = self.send(server, "--attempts", str(attempts), *QUICK)
                self.assertEqual(status, REFUSED)
                self.assertIn("503", printed)
                self.assertEqual(len(server.seen), attempts)

    def test_client_gives_up_on_a_server_that_is_not_there(self):
        with ScriptedServer(CREATED) as server:
            pass
        status, printed = self.send(server, "--attempts", "3", *QUICK)
        self.assertEqual(status, UNANSWERED)
        self.assertEqual(printed.count("attempt "), 3)

    def test_final_answers_are_not_retried(self):
        for final in (200, 201, 400, 401, 402, 404, 412, 422):
            with self.subTest(final), ScriptedServer((final,)) as server:
                _, printed = self.send(server)
                self.assertEqual(len(server.seen), 1)
                self.assertIn(str(final), printed)

    def test_what_may_have_taken_effect_is_retried_only_with_a_key(self):
        for step in ((500,), None):
            for key, requests in (("key-1", 2), (None, 1)):
                with self.subTest(step, key=key), ScriptedServer(step, CREATED) as server:
                    status, _ = self.send(server, key=key)
                    self.assertEqual(status == ANSWERED, requests == 2)
                    self.assertEqual(len(server.seen), requests)

    def test_retry_after_is_honoured(self):
        with ScriptedServer((503, [("Retry-After", "1")]), CREATED) as server:
            self.assertEqual(self.send(server)[0], ANSWERED)
        self.assertGreaterEqual(server.pauses()[0], 1.0)
        self.assertLess(server.pauses()[0], PATIENCE / 2)

    def test_pauses_grow_up_to_the_cap_with_full_jitter(self):
        """Full jitter: each pause is random below its limit, so only many pauses can be judged."""
        with ScriptedServer(UNAVAILABLE) as server:
            _, printed = self.send(server, "--attempts", "16", "--base", "10", "--cap", "160")
        announced = [int(pause) for pause in re.findall(r"again in (\d+) ms", printed)]
        self.assertEqual(len(announced), 15)
        for number, (pause, actual) in enumerate(zip(announced, server.pauses())):
            self.assertLessEqual(pause, min(10 * 2**number, 160))
            self.assertGreaterEqual(actual, pause / 1000)
        self.assertGreater(max(announced), 20, "nothing has grown")
        self.assertGreater(len(set(announced[4:])), 3, "nothing is random")


class AgainstTheService(PaymentsTest):
    PATIENT = ("--attempts", "40", "--base", "20", "--cap", "100")

    def url(self, pod, path="/payments"):
        return f"http://127.0.0.1:{pod.port}{path}"

    def pay(self, pod, *options):
        return client(self.url(pod), *options, key=self.key, data=payment(), tenant=self.tenant)

    def test_payment_is_made_and_its_repeat_replayed(self):
        self.assertEqual(self.pay(self.pod)[0], ANSWERED)
        status, printed = self.pay(self.other)
        self.assertEqual(status, ANSWERED)
        self.assertRegex(printed, re.compile("idempotent-replayed: *true", re.IGNORECASE))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_client_waits_for_its_own_first_request(self):
        """A process that is gone leaves its client with a 409 until the first request ends."""
        with self.database.gate():
            first = in_background(self.pod.pay, payment(), tenant=self.tenant, key=self.key)
            wait_until("the first stands before the gate", self.database.waiting)
            second = in_background(self.pay, self.other, *self.PATIENT)
            wait_until("the second was refused", lambda: " 409 " in self.other.logged())
        status, printed = second.result(PATIENCE)
        self.assertEqual(status, ANSWERED)
        self.assertIn(first.result().json()["id"], printed)
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_refused_payment_is_an_answer_and_not_repeated(self):
        status, printed = client(
            self.url(self.pod), key=self.key, data=payment("tok_declined"), tenant=self.tenant
        )
        self.assertIn("402", printed)
        self.assertEqual(status, REFUSED)
        self.assertEqual(self.database.charges(self.tenant), 0)


if __name__ == "__main__":
    unittest.main()
