"""Some thousand damaged requests on raw sockets. The seed is fixed: the same requests every run."""

import concurrent.futures
import json
import random
import socket
import unittest

from http_call import payment
from support import PaymentsTest
from waiting import PATIENCE

SEED = 9457
IMPATIENCE = 0.1  # seconds, where the rest of a request never comes
SPECIAL = (
    b"\0",
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b'"',
    b"\\",
    b"%",
    b"%00",
    b":",
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\xff",
    b"\xc3\x28",
    b"\\u0000",
    b"\\ud800",
    b"-1",
    b"99999999999999999999",
    b"1e999",
    b"null",
    b"../",
    b"?",
    b"#",
    b" ",
    b"\t",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Idempotency-Key: other\r\n",
    b"Range: bytes=0-1\r\n",
)
ROUTES = (
    ("POST", "/payments", payment()),
    ("POST", "/refunds", {"payment": "pay_1", "amount": payment()["amount"]}),
    ("PATCH", "/payments/pay_1", {"description": "x"}),
    ("POST", "/transfers", payment()),
    ("POST", "/estimates", {"items": [{"price": "9.90", "quantity": 2}]}),
    ("GET", "/payments", None),
    ("GET", "/payments/pay_1", None),
    ("GET", "/healthz", None),
)


def request(method, path, body, *fields):
    content = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "Host: a", "Content-Type: application/json", *fields]
    if content:
        head.append(f"Content-Length: {len(content)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def damage(rng, text, times):
    text = bytearray(text)
    for _ in range(times):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 0, 1, 1, 2, 8, 40)))
        text[at:end] = rng.choice(
            (b"", rng.choice(SPECIAL), rng.randbytes(1), bytes(text[at:end]) * 2)
        )
    return bytes(text)


def exchange(port, text, patience):
    """All that comes back. Who has sent less than announced is waited for, so after a while the
    sending side is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        answer = b""
        try:
            connection.sendall(text)
            while part := receive(connection):
                answer += part
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        return answer


def receive(connection):
    try:
        return connection.recv(1 << 16)
    except TimeoutError:
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(PATIENCE)
        return connection.recv(1 << 16)


def status_of(answer):
    """Of the first answer; 0 if there is none, as after a request that ended too early."""
    if not answer:
        return 0
    return int(answer.split(b" ", 2)[1])


class FuzzedRequests(PaymentsTest):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(f"{SEED} {self.id()}")
        print(f"# seed {SEED}", flush=True)

    def send_all(self, texts, patience=PATIENCE):
        """The answers. Eight at a time, as each may have to be waited for."""

        def send(number):
            return exchange(self.pods[number % 2].port, texts[number], patience)

        with concurrent.futures.ThreadPoolExecutor(max_workers=8) as executor:
            answers = list(executor.map(send, range(len(texts))))
        for text, answer in zip(texts, answers):
            self.assertLess(status_of(answer), 500, f"{text!r}\n{answer!r}")
        self.assertTrue(all(pod.runs() for pod in self.pods))
        return answers

    def assert_survived(self):
        for pod in self.pods:
            self.assertEqual(pod.call("GET", "/healthz").status, 200)
            made = pod.pay(payment(), tenant=self.tenant, key="after")
            self.assertEqual(made.status, 201, made)

    def count(self, table):
        return self.database.value(f"SELECT count(*) FROM {table}")

    def forget_everything(self):
        for table in ("idempotency.record", "payments.charge"):
            self.database.run(f"DELETE FROM {table}")

    def test_random_bytes(self):
        self.forget_everything()
        texts = [self.rng.randbytes(self.rng.randrange(1, 300)) for _ in range(300)]
        texts += [damage(self.rng, b"POST /payments HTTP/1.1\r\n\r\n", 3) for _ in range(300)]
        self.send_all(texts, IMPATIENCE)
        self.assertEqual(self.count("idempotency.record") + self.count("payments.charge"), 0)
        self.assert_survived()

    def test_damaged_requests_of_nobody_store_nothing(self):
        """No damage of some bytes invents the credentials that are missing here."""
        self.forget_everything()
        texts = []
        for number in range(1200):
            method, path, body = self.rng.choice(ROUTES)
            whole = request(method, path, body, f'Idempotency-Key: "fuzz {number}"')
            texts.append(damage(self.rng, whole, self.rng.randrange(1, 6)))
        answers = self.send_all(texts, IMPATIENCE)
        self.assertGreater(sum(status_of(answer) == 401 for answer in answers), 100)
        self.assertEqual(self.count("idempotency.record") + self.count("payments.charge"), 0)
        self.assert_survived()

    def test_damaged_requests_of_a_customer_store_only_what_was_answered(self):
        self.forget_everything()
        texts = [self.damaged_payment(number) for number in range(1200)]
        answers = self.send_all(texts)
        made = [a for a in answers if status_of(a) == 201 and b"Idempotent-Replayed" not in a]
        self.assertGreater(len(made), 50, "the damage is too great to prove anything")
        self.assertEqual(self.count("payments.charge"), len(made))
        self.assertEqual(self.count("idempotency.record WHERE status <> 'c'"), 0)
        self.assertEqual(self.count("idempotency.record WHERE status_code = 201"), len(made))
        self.assert_survived()

    def damaged_payment(self, number):
        """The damage meets the body or the key, so that most requests get as far as the handler."""
        key = f'"fuzz {number % 400}"'.encode()
        body = json.dumps(payment(client_sent_at="x", metadata={"a": [1, "b"]})).encode()
        if self.rng.random() < 0.3:
            key = damage(self.rng, key, 1).replace(b"\r", b"").replace(b"\n", b"")
        if self.rng.random() < 0.7:
            body = damage(self.rng, body, self.rng.randrange(1, 3))
        head = request("POST", "/payments", None, f"Authorization: Bearer sk_{self.tenant}")[:-2]
        length = f"Content-Length: {len(body)}\r\n\r\n".encode()
        return head + b"Idempotency-Key: " + key + b"\r\n" + length + body

    def test_damaged_events(self):
        event = {
            "type": "payment.captured",
            "resource_id": "r",
            "data": {"a": 1},
            "updated_at": "2025-03-14T09:00:00Z",
        }
        texts = []
        for _ in range(400):
            body = damage(self.rng, json.dumps(event).encode(), self.rng.randrange(1, 4))
            head = request("POST", "/webhooks", None)[:-2]
            texts.append(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answers = self.send_all(texts)
        accepted = sum(status_of(answer) == 204 for answer in answers)
        self.assertGreater(accepted, 20)
        self.assertLessEqual(self.count("payments.event_log"), accepted)
        self.assert_survived()


if __name__ == "__main__":
    unittest.main()
