"""The service's HTTP server, where clients/conformance does not look: framing that others would read
otherwise, clients that stop sending, and slow work that holds up nothing else."""

import http.client
import json
import socket
import unittest

from http_call import payment
from support import PaymentsTest
from waiting import PATIENCE, in_background, wait_until


class Line:
    """A connection on which bytes are sent as they are."""

    def __init__(self, test, text):
        self.socket = socket.create_connection(("127.0.0.1", test.pod.port), timeout=PATIENCE)
        test.addCleanup(self.socket.close)
        self.socket.sendall(text)

    def status(self):
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        response.read()
        return response.status


class HttpServer(PaymentsTest):
    def request(self, *fields, rest=b""):
        body = json.dumps(payment()).encode()
        lines = ["POST /payments HTTP/1.1", "Host: a", f"Authorization: Bearer sk_{self.tenant}",
                 f"Content-Length: {len(body) + len(rest)}", *fields, "", ""]
        return "\r\n".join(lines).encode() + body + rest

    def test_framing_that_others_would_read_otherwise_is_400(self):
        for name, fields in {
            "two lengths": ("Content-Length: 1",),
            "length and chunks": ("Transfer-Encoding: chunked",),
            "two hosts": ("Host: b",),
            "no colon": ("Idempotency-Key",),
            "NUL": ('Idempotency-Key: "a\0b"',),
            "bare line feed": ('Idempotency-Key: "a"\nX: y',),
        }.items():
            with self.subTest(name):
                self.assertEqual(Line(self, self.request("Idempotency-Key: k", *fields)).status(), 400)
        garbage = self.request("Idempotency-Key: k", rest=b"\0garbage")
        self.assertEqual(Line(self, garbage).status(), 400)
        self.assert_nothing_stored()

    def test_request_that_never_ends_is_dropped_and_stops_no_process(self):
        whole = self.request("Idempotency-Key: k")
        lines = [Line(self, whole[:length]) for length in (10, 100, -10)]
        for line in lines:
            while line.socket.recv(1000):
                pass
        Line(self, whole[:100])
        self.pod.child.terminate()
        self.assertEqual(self.pod.reap(), 0)
        self.assert_nothing_stored()

    def test_slow_gateway_holds_up_nothing_else(self):
        self.gateway.control(hold_next=32)
        transfer = lambda n: self.pod.send("POST", "/transfers", payment(), tenant=self.tenant, key=f"k{n}")
        pending = [in_background(transfer, n) for n in range(32)]
        wait_until("all of them wait for the gateway", lambda: len(self.gateway.charges()) == 32)
        self.assertEqual(transfer(32).status, 503)
        self.assertEqual(self.pod.call("GET", "/healthz").status, 200)
        self.assert_executed(self.pod.pay(payment(), tenant=self.tenant, key=self.key))
        self.gateway.release()
        self.assertEqual({each.result(PATIENCE).status for each in pending}, {201})
        self.assert_executed(transfer(32))


if __name__ == "__main__":
    unittest.main()
