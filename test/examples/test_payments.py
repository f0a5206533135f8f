"""POST /payments: claim, charge and answer in one transaction. clients/conformance has the cases of
every route; these are the service's own."""

import json
import unittest

from http_call import payment
from support import PaymentsTest
from waiting import in_background, wait_until

NO_PAYMENTS = {
    "no JSON": b"payment",
    "array": b"[]",
    "no amount": json.dumps({"customer": "a", "card": "tok_visa"}).encode(),
    "no customer": json.dumps({"amount": payment()["amount"], "card": "tok_visa"}).encode(),
    "amount is a string": json.dumps({**payment(), "amount": "12.50 EUR"}).encode(),
    "value is a number": json.dumps(payment(value=12.5)).encode(),
    "value is nothing": json.dumps(payment(value="0.00")).encode(),
    "value is negative": json.dumps(payment(value="-12.50")).encode(),
    "value is too large": json.dumps(payment(value="9" * 200_000)).encode(),
    "customer is too long": json.dumps({**payment(), "customer": "a" * 3000}).encode(),
    "NUL": json.dumps({**payment(), "note": "a\0b"}).encode(),
    "card is a boolean": json.dumps({**payment(), "card": True}).encode(),
    "exponent beyond all measure": b'{"customer": "a", "metadata": 1e999999}',
}


class Payments(PaymentsTest):
    def pay(self, pod=None, body=None, **named):
        return (pod or self.pod).pay(
            body or payment(), **{"tenant": self.tenant, "key": self.key, **named}
        )

    def test_payment_is_made_once_and_replayed_by_both_processes(self):
        first = self.pay()
        self.assert_executed(first)
        made = first.json()
        self.assertEqual(made["amount"], {"value": "12.50", "currency": "EUR"})
        self.assertEqual((made["customer"], made["status"]), ("CUS_TEST", "captured"))
        self.assertEqual(first.headers["Location"], f"/payments/{made['id']}")
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("completed", 1))
        for pod in self.pods:
            self.assert_replay_of(first, self.pay(pod))
            pod.restart()
            self.assert_replay_of(first, self.pay(pod))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_time_of_sending_may_differ_and_nothing_else(self):
        first = self.pay(body=payment(client_sent_at="09:00"))
        self.assert_replay_of(first, self.pay(body=payment(client_sent_at="09:01")))
        self.assert_problem(self.pay(body=payment(value="12.51")), 422, "mismatch")
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_tenants_do_not_share_keys(self):
        mine, theirs = self.pay(), self.pay(tenant=self.tenant + "_other")
        self.assert_executed(theirs)
        self.assertNotEqual(mine.json()["id"], theirs.json()["id"])

    def test_unknown_caller_is_401(self):
        for field in ("", "Bearer", "Bearer acme", "Bearer sk_", "Bearer sk_a' OR 1", "Basic sk_a"):
            with self.subTest(field):
                headers = [("Idempotency-Key", self.key), ("Authorization", field)]
                self.assert_problem(self.pod.call("POST", "/payments", headers, b"{}"), 401)

    def test_declined_card_is_an_answer_like_any_other(self):
        first = self.pay(body=payment("tok_declined"))
        self.assert_problem(first, 402)
        self.assert_replay_of(first, self.pay(self.other, payment("tok_declined")))
        self.assertEqual(self.database.charges(self.tenant), 0)

    def test_refusals_are_kept_and_charge_nothing(self):
        for number, (name, body) in enumerate(NO_PAYMENTS.items()):
            with self.subTest(name):
                key = f"{self.key}-{number}"
                first = self.pay(body=body, key=key)
                self.assertIn(first.status, (400, 422), first)
                self.assert_problem(first, first.status)
                again = self.pay(self.other, body=body, key=key)
                self.assertEqual((again.status, again.body), (first.status, first.body))
        self.assertEqual(self.database.charges(self.tenant), 0)

    def test_process_killed_at_work_leaves_no_trace(self):
        """No lease is waited for: the server notices the broken connection when its statement ends."""
        with self.database.gate():
            pending = in_background(self.pay)
            wait_until("the payment stands before the gate", self.database.waiting)
            self.assert_in_progress(self.pay(self.other))
            self.pod.kill()
        self.assertIsInstance(pending.exception(), OSError)
        wait_until("the server has noticed", lambda: not self.database.claims())
        self.assert_nothing_stored()
        self.assert_executed(self.pay(self.other))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_card_that_kills_the_process_is_paid_with_once(self):
        crash = payment("tok_crash")
        with self.assertRaises(OSError):
            self.pay(body=crash)
        wait_until("the process is dead", lambda: not self.pod.runs())
        wait_until("the server has noticed", lambda: not self.database.claims())
        self.assert_executed(self.pay(self.other, crash))
        self.assertEqual(self.database.charges(self.tenant), 1)


if __name__ == "__main__":
    unittest.main()
