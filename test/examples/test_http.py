"""HTTP from strangers: raw fields, limits before anything is read, deadlines, nobody in the way."""

import gzip
import json
import subprocess
import threading
import unittest

from hostile import SwallowingProxy
from http_call import payment
from processes import Pod
from raw_http import Line, exchange, head, parsed, post
from support import PaymentsTest
from waiting import PATIENCE, at_once, in_background, wait_until

LARGEST_BODY = 2 << 20
KEY = 'Idempotency-Key: "pc-1"'


class HttpTest(PaymentsTest):
    def line(self, pod=None):
        line = Line((pod or self.pod).port)
        self.addCleanup(line.close)
        return line

    def raw_post(self, *fields, path="/payments", body=None):
        return exchange(self.pod.port, post(path, self.tenant, body or payment(), *fields))

    def head(self, *fields, path="/payments"):
        return head(
            "POST",
            path,
            f"Authorization: Bearer sk_{self.tenant}",
            "Content-Type: application/json",
            *fields,
        )

    def assert_alive(self, pod=None):
        self.assertEqual((pod or self.pod).call("GET", "/healthz", timeout=20).status, 200)


class RawFields(HttpTest):
    def test_escaped_key_is_another_key(self):
        first = self.raw_post(KEY)
        self.assert_executed(first)
        for field in ('"pc%2D1"', '"pc%u002D1"', "%22pc-1%22", '"pc%2d1"', '"pc+1"', '"pc%201"'):
            with self.subTest(field):
                self.assert_executed(self.raw_post(f"Idempotency-Key: {field}"))
        self.assertEqual(self.database.charges(self.tenant), 7)
        self.assert_replay_of(first, self.raw_post(KEY))

    def test_escaped_credentials_are_none(self):
        body = json.dumps(payment()).encode()
        for field in ("Bearer%20sk_acme", "Bearer sk_%61cme", "%42earer sk_acme"):
            with self.subTest(field):
                fields = (f"Authorization: {field}", KEY, f"Content-Length: {len(body)}")
                answer = exchange(self.pod.port, head("POST", "/payments", *fields) + body)
                self.assert_problem(answer, 401)

    def test_scheme_of_credentials_is_known_in_any_letter_case(self):
        body = json.dumps(payment()).encode()
        for scheme in ("bearer", "BEARER", "Bearer "):
            answer = exchange(
                self.pod.port,
                head(
                    "POST",
                    "/payments",
                    f"Authorization: {scheme} sk_{self.tenant}",
                    "Content-Type: application/json",
                    f"Content-Length: {len(body)}",
                    f'Idempotency-Key: "{scheme}"',
                )
                + body,
            )
            self.assert_executed(answer)

    def test_two_credentials_are_none(self):
        self.assert_problem(self.raw_post(KEY, "Authorization: Bearer sk_other"), 401)
        self.assert_nothing_stored()

    def test_what_others_would_read_otherwise_is_400(self):
        for name, fields in {
            "blank before the colon": ('Idempotency-Key : "x"',),
            "field that goes on": ('Idempotency-Key: "x', ' y"'),
            "no colon": ("Idempotency-Key",),
            "two lengths": (KEY, "Content-Length: 1"),
            "length and chunks": (KEY, "Transfer-Encoding: chunked"),
            "two hosts": (KEY, "Host: b"),
            "NUL": ('Idempotency-Key: "a\0b"',),
            "bare line feed": ('Idempotency-Key: "a"\nX: y',),
        }.items():
            for path in ("/payments", "/estimates"):
                with self.subTest(name, path=path):
                    self.assert_problem(self.raw_post(*fields, path=path), 400)
        self.assert_nothing_stored()

    def test_garbage_behind_the_body_is_not_overlooked(self):
        whole = json.dumps(payment()).encode()
        self.assert_executed(self.raw_post(KEY, body=whole))
        for rest in (b"\0garbage", b"\0", b"x", b"{}"):
            with self.subTest(rest):
                self.assert_problem(self.raw_post(KEY, body=whole + rest), 400)

    def test_unknown_coding_of_the_body_is_415(self):
        for coding in ("br", "deflate", "gzip, gzip", "x"):
            with self.subTest(coding):
                self.assert_problem(self.raw_post(KEY, f"Content-Encoding: {coding}"), 415)
        self.assert_nothing_stored()

    def test_status_without_a_body_has_no_length(self):
        event = {
            "type": "customer.created",
            "resource_id": "r",
            "updated_at": "2025-03-14T09:00:00Z",
        }
        answer = self.raw_post(path="/webhooks", body=event)
        self.assertEqual(answer.status, 204)
        self.assertNotIn("Content-Length", answer.headers)

    def test_range_is_not_obeyed_and_costs_nothing(self):
        made = self.raw_post(KEY)
        path = made.headers["Location"]
        whole = self.pod.send("GET", path, tenant=self.tenant)
        for ranges in ("0-3", "0-0", ",".join(f"{n % 7}-" for n in range(1500)), "9999-"):
            headers = [("Range", f"bytes={ranges}")]
            part = self.pod.send("GET", path, tenant=self.tenant, headers=headers)
            self.assertEqual((part.status, part.body), (200, whole.body))


class Bodies(HttpTest):
    def test_body_of_a_stranger_is_not_read(self):
        """The answer is there before the first byte of the body."""
        for length in ("Content-Length: 1000000000", "Transfer-Encoding: chunked"):
            line = self.line()
            line.send(head("POST", "/payments", KEY, length))
            self.assert_problem(parsed(line.rest()), 401)

    def test_body_that_is_announced_too_large_is_not_read(self):
        line = self.line()
        line.send(self.head(KEY, f"Content-Length: {LARGEST_BODY + 1}"))
        self.assert_problem(parsed(line.rest()), 413)

    def test_chunks_end_at_the_limit(self):
        line = self.line()
        line.send(self.head(KEY, "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sent = 0
        while sent < 64 << 20 and not line.answers_already():
            try:
                line.send(chunk)
            except ConnectionError:
                break
            sent += 65536
        self.assertLess(sent, 64 << 20)
        self.assert_problem(parsed(line.rest()), 413)
        self.assert_nothing_stored()

    def test_packed_body_is_measured_unpacked(self):
        packed = gzip.compress(b'{"a": "' + b" " * (400 << 20) + b'"}', 1)
        self.assertLess(len(packed), LARGEST_BODY)
        answer = self.raw_post(KEY, "Content-Encoding: gzip", body=packed)
        self.assert_problem(answer, 413)
        self.assert_nothing_stored()

    def test_packed_and_chunked_body_is_the_same_request(self):
        whole = json.dumps(payment()).encode()
        first = self.raw_post(KEY, body=whole)
        packed = gzip.compress(whole)
        self.assert_replay_of(first, self.raw_post(KEY, "Content-Encoding: gzip", body=packed))
        chunks = b"".join(b"%x;x=y\r\n%b\r\n" % (1, whole[n : n + 1]) for n in range(len(whole)))
        text = self.head(KEY, "Transfer-Encoding: chunked") + chunks + b"0\r\nTrailer: x\r\n\r\n"
        self.assert_replay_of(first, exchange(self.pod.port, text))
        for broken in (packed[:-4], packed + b"x", whole):
            self.assert_problem(self.raw_post(KEY, "Content-Encoding: gzip", body=broken), 400)

    def test_wide_body_is_read_in_time(self):
        """Each would take some minutes if its depth were found by looking back."""
        body = b'{"x":[' + b"{}," * 690_000 + b"0]}"
        calls = [
            lambda n=n: self.pod.pay(body, tenant=self.tenant, key=f"{self.key} {n}")
            for n in range(3)
        ]
        for answer in at_once(calls):
            self.assert_problem(answer, 422, "invalid-request")


class NobodyInTheWay(HttpTest):
    MANY = 60  # more than there are threads

    def test_slow_strangers_hold_up_nobody(self):
        lines = [self.line() for _ in range(self.MANY)]
        for line in lines:
            line.send(b"POST /payments HTTP/1.1\r\nHost: a\r\nX: ")
        over = threading.Event()
        self.addCleanup(over.set)

        def drip():
            """So that no read takes long."""
            while not over.wait(0.5):
                for line in lines:
                    try:
                        line.send(b"x")
                    except OSError:
                        pass

        threading.Thread(target=drip, daemon=True).start()
        self.assert_alive()
        self.assert_executed(self.pod.pay(payment(), tenant=self.tenant, key=self.key, timeout=20))

    def test_slow_gateway_holds_up_nobody_else(self):
        self.gateway.control(hold_next=self.MANY)
        self.addCleanup(self.gateway.release)
        pending = [
            in_background(
                self.pod.send, "POST", "/transfers", payment(), tenant=self.tenant, key=f"k{n}"
            )
            for n in range(self.MANY)
        ]
        wait_until("the gateway holds as many as there are threads",
                   lambda: len(self.gateway.charges()) >= 16)
        self.assert_alive()
        self.assert_executed(self.pod.pay(payment(), tenant=self.tenant, key=self.key, timeout=20))
        self.gateway.release()
        wait_until("the gateway lets go", lambda: self.let_go(pending))
        self.assertLessEqual({each.result().status for each in pending}, {201, 502, 503})

    def let_go(self, pending):
        self.gateway.control(release=1)
        return all(each.done() for each in pending)


class Deadlines(HttpTest):
    def pod_with(self, *arguments):
        pod = Pod(self.database.conninfo, self.gateway, *arguments)
        self.addCleanup(pod.close)
        return pod

    def drip(self, line, text):
        """One byte after the other, until the other end has had enough."""

        def run():
            try:
                for byte in text:
                    line.send(bytes([byte]))
                    if self.over.wait(0.1):
                        return
            except OSError:
                pass

        self.over = threading.Event()
        self.addCleanup(self.over.set)
        threading.Thread(target=run, daemon=True).start()

    def test_request_that_drips_is_ended(self):
        pod = self.pod_with("--request-timeout", "1000")
        line = self.line(pod)
        self.drip(line, self.head("X: " + "x" * 10_000))
        self.assert_problem(parsed(line.rest()), 408)
        self.assert_alive(pod)

    def test_end_of_the_process_waits_for_no_slow_client(self):
        pod = self.pod_with("--request-timeout", "100000")
        dripping, silent = self.line(pod), self.line(pod)
        self.drip(dripping, self.head("X: " + "x" * 10_000))
        silent.send(self.head("Content-Length: 100"))
        self.assert_alive(pod)
        pod.child.terminate()
        self.assertEqual(pod.reap(), 0)

    def test_process_that_cannot_listen_says_so(self):
        arguments = [*self.pod.command]
        arguments[arguments.index("--listen") + 1] = f"127.0.0.1:{self.pod.port}"
        ended = subprocess.run(arguments, capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(ended.returncode, 2, ended)


class SwallowedBytes(HttpTest):
    """The database's host is there, takes what is sent, and says nothing."""

    def setUp(self):
        super().setUp()
        self.proxy = SwallowingProxy(self.database)
        self.addCleanup(self.proxy.close)
        self.swallowing = Pod(
            self.proxy.conninfo, self.gateway, "--database-timeout", "1000"
        )
        self.addCleanup(self.swallowing.close)

    def pay(self, key):
        return self.swallowing.pay(payment(), tenant=self.tenant, key=key, timeout=60)

    def test_database_that_swallows_bytes_is_503_and_the_health_check_answers(self):
        self.assert_executed(self.pay("before"))
        self.proxy.swallow()
        pending = [in_background(self.pay, f"during {n}") for n in range(20)]
        self.assert_alive(self.swallowing)
        for each in pending:
            self.assert_problem(each.result(PATIENCE), 503)
        self.assert_alive(self.swallowing)
        self.proxy.resume()
        self.assert_executed(self.pay("after"))
        self.assertEqual(self.database.charges(self.tenant), 2)


if __name__ == "__main__":
    unittest.main()
