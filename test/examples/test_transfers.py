"""POST /transfers: a leased claim around a call of the payment gateway. clients/conformance has the
cases of every leased route; these are about the gateway."""

import json
import unittest

from http_call import payment
from hostile import Hostile, json_answer
from processes import SHORT_LEASE_MS, Pod
from support import PaymentsTest
from waiting import in_background, unique, wait_until


class TransferTest(PaymentsTest):
    def transfer(self, pod, body=None, **named):
        return pod.send(
            "POST",
            "/transfers",
            body or payment(),
            **{"tenant": self.tenant, "key": self.key, **named},
        )

    def status(self):
        return (self.database.record(self.tenant, self.key) or [None])[0]

    def open_transactions(self):
        return self.database.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
        )

    def assert_charged_once(self, answer):
        """The gateway has one charge, under the key derived from ours, and the answer names it."""
        (charge,) = self.gateway.charges()
        derived = self.database.value("SELECT idem_key('transfer', %s, %s)", self.tenant, self.key)
        self.assertEqual(charge["key"].strip('"'), derived)
        self.assertEqual(answer.json()["gateway_charge"], charge["id"])

    def transfer_charged_but_unanswered(self, pod):
        """The gateway has charged, and keeps this transfer, no other, waiting until it releases."""
        self.gateway.control(hold_next=1)
        pending = in_background(self.transfer, pod)
        wait_until("the gateway has charged", lambda: len(self.gateway.charges()) == 1)
        return pending

    def retry_until_executed(self, pod, body=None):
        """As a client does that is told to come back later."""
        answers = []

        def done():
            answers.append(self.transfer(pod, body))
            return answers[-1].status not in (409, 503)

        wait_until("the transfer is decided", done)
        self.assert_executed(answers[-1])
        return answers[-1]


class GoodDays(TransferTest):
    def test_transfer_is_charged_once_and_replayed(self):
        first = self.transfer(self.pod)
        self.assert_executed(first)
        self.assertEqual(first.json()["amount"], payment()["amount"])
        self.assert_replay_of(first, self.transfer(self.other))
        self.assert_charged_once(first)

    def test_refusals_are_kept_and_charge_nothing(self):
        for status, body in ((402, payment("tok_declined")), (422, payment(value="twelve"))):
            self.key = unique("key")
            first = self.transfer(self.pod, body)
            self.assert_problem(first, status)
            self.assert_replay_of(first, self.transfer(self.other, body))
        self.assertEqual(self.gateway.charges(), [])

    def test_no_connection_is_left_in_a_transaction_while_the_gateway_works(self):
        first = self.transfer_charged_but_unanswered(self.pod)
        wait_until("no transaction is open", lambda: not self.open_transactions())
        self.assert_in_progress(self.transfer(self.other))
        self.gateway.release()
        self.assert_executed(first.result())
        self.assert_charged_once(first.result())

    def test_gateway_honours_keys(self):
        """Without that no service could call it twice."""

        def charge(amount):
            body = json.dumps({"amount": amount, "currency": "EUR"}).encode()
            return self.gateway.call("POST", "/charges", [("Idempotency-Key", '"k"')], body)

        first = charge("1.00")
        self.assertEqual(first.status, 201)
        self.assertEqual(charge("1.00").json()["id"], first.json()["id"])
        self.assertEqual(charge("2.00").status, 422)
        self.assertEqual(len(self.gateway.charges()), 1)


class FailingGateway(TransferTest):
    def assert_retry_succeeds(self, failed):
        self.assert_problem(failed, 502)
        self.assertEqual(self.status(), "retryable")
        answer = self.retry_until_executed(self.other)
        self.assert_charged_once(answer)
        self.assert_replay_of(answer, self.transfer(self.pod))

    def test_failing_gateway_is_502_and_the_key_may_be_tried_again(self):
        self.gateway.control(fail_next=1)
        failed = self.transfer(self.pod)
        self.assertEqual(self.gateway.charges(), [])
        self.assert_retry_succeeds(failed)

    def test_lost_answer_of_the_gateway_is_502_and_the_retry_charges_nothing_more(self):
        self.gateway.control(drop_next=1)
        failed = self.transfer(self.pod)
        self.assertEqual(len(self.gateway.charges()), 1)
        self.assert_retry_succeeds(failed)

    def test_gateway_that_is_gone_is_502_and_the_retry_succeeds_after_its_return(self):
        self.gateway.kill()
        failed = self.transfer(self.pod)
        self.gateway.start()
        self.assert_retry_succeeds(failed)


class ExpiredKey(TransferTest):
    def forget(self):
        """As the sweeper does after the time to live, so that the key is free again."""
        self.database.value("SELECT idem_forget(%s, 'POST /transfers', %s)", self.key, self.tenant)

    def transfers(self):
        return self.database.rows(
            "SELECT id, status, gateway_charge FROM payments.transfer WHERE tenant = %s",
            self.tenant,
        )

    def test_key_used_again_after_its_record_expired_is_the_same_transfer(self):
        """The gateway remembers its key for longer than we do ours, and hears nothing new."""
        first = self.transfer(self.pod)
        self.forget()
        again = self.transfer(self.other)
        self.assert_executed(again)
        self.assertEqual(again.json(), first.json())
        self.assert_charged_once(again)
        self.assertEqual(len(self.transfers()), 1)

    def test_refusal_by_the_gateway_is_final_and_leaves_nothing_reserved(self):
        first = self.transfer(self.pod)
        self.forget()
        other = payment(value="1.00")
        refused = self.transfer(self.other, other)
        self.assert_problem(refused, 422, "refused-by-gateway")
        self.assert_replay_of(refused, self.transfer(self.pod, other))
        self.assert_charged_once(first)
        self.assertEqual(
            self.transfers(), [(first.json()["id"], "done", first.json()["gateway_charge"])]
        )


class HostileGateway(TransferTest):
    """A response that is no answer is 502, and the key may be tried again."""

    def setUp(self):
        super().setUp()
        self.hostile = Hostile()
        self.addCleanup(self.hostile.close)
        self.start_victim()

    def start_victim(self, **patience):
        self.victim = Pod(self.database.conninfo, self.hostile, **patience)
        self.addCleanup(self.victim.close)

    def assert_no_answer(self):
        self.key = unique("key")
        self.assert_problem(self.transfer(self.victim), 502)
        self.assertEqual(self.status(), "retryable")

    def test_answer_that_names_no_charge(self):
        good = {"id": "gch_1", "amount": "12.50", "currency": "EUR"}
        for name, answer in {
            "empty object": {},
            "number": {**good, "id": 5},
            "empty": {**good, "id": ""},
            "control characters": {**good, "id": "a\r\nb"},
            "huge": {**good, "id": "x" * 100_000},
            "another amount": {**good, "amount": "0.01"},
            "another currency": {**good, "currency": "USD"},
            "array": [good],
            "no JSON": None,
        }.items():
            with self.subTest(name):
                self.hostile.answers(json_answer(201, answer))
                self.assert_no_answer()
        self.key = unique("key")
        self.hostile.answers(json_answer(201, good))
        self.assert_executed(self.transfer(self.victim))

    def test_refusal_that_says_later(self):
        self.hostile.answers(json_answer(409, {}))
        self.assert_no_answer()

    def test_answer_that_drips_for_longer_than_a_call_may_take(self):
        self.start_victim(gateway_timeout=1000)
        self.hostile.drips(b"HTTP/1.1 201 X\r\nContent-Length: 1000000\r\n\r\n")
        self.assert_no_answer()


class KilledProcess(TransferTest):
    lease = SHORT_LEASE_MS

    def test_process_that_dies_after_the_charge_is_taken_over_after_its_lease(self):
        crash = payment("tok_crash")
        with self.assertRaises(OSError):
            self.transfer(self.pod, crash)
        wait_until("the process is dead", lambda: not self.pod.runs())
        self.assertEqual(self.status(), "in_progress")
        answer = self.retry_until_executed(self.other, crash)
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("completed", 2))
        self.assert_charged_once(answer)

    def test_retry_resumes_at_the_last_recovery_point(self):
        """After `charged` the gateway is not asked again: it would fail if it were."""
        pending = self.transfer_charged_but_unanswered(self.pod)
        with self.database.gate():
            self.gateway.release()
            wait_until("it stands before the gate", self.database.waiting)
            self.assertEqual(self.database.record(self.tenant, self.key)[2], "charged")
            self.pod.kill()
        self.assertIsInstance(pending.exception(), OSError)
        self.gateway.control(fail_next=100)
        answer = self.retry_until_executed(self.other)
        self.assertEqual(self.database.record(self.tenant, self.key)[1], 2)
        self.assert_charged_once(answer)


if __name__ == "__main__":
    unittest.main()
