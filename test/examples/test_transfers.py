"""POST /transfers: a leased claim around a call of the payment gateway."""

import json
import time
import unittest

from http_call import payment
from hostile import Hostile, json_answer
from processes import LEASE_MS, Pod
from support import PaymentsTest
from waiting import PATIENCE, in_background, unique, wait_until

LEASE = LEASE_MS / 1000


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

    def gateway_key(self):
        return self.database.value("SELECT idem_key('transfer', %s, %s)", self.tenant, self.key)

    def lease_is_over(self):
        return self.database.value(
            "SELECT lease_until < clock_timestamp() FROM idempotency.records"
            " WHERE principal = %s AND key = %s",
            self.tenant,
            self.key,
        )

    def open_transactions(self):
        return self.database.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
        )

    def assert_charged_once(self, answer):
        """The gateway has one charge, under the key derived from ours, and the answer names it."""
        (charge,) = self.gateway.charges()
        self.assertEqual(charge["key"].strip('"'), self.gateway_key())
        self.assertEqual(answer.json()["gateway_charge"], charge["id"])

    def transfer_charged_but_unanswered(self, pod):
        """The gateway has charged, and keeps this transfer, no other, waiting until it releases."""
        self.gateway.control(hold_next=1)
        pending = in_background(self.transfer, pod)
        wait_until("the gateway has charged", self.gateway_has_charged)
        return pending

    def gateway_has_charged(self):
        return len(self.gateway.charges()) == 1

    def retry_until_executed(self, pod):
        """As a client does, told to come back later; answers the last answer and all statuses."""
        answers = []

        def done():
            answers.append(self.transfer(pod))
            return answers[-1].status not in (409, 503)

        wait_until("the transfer is decided", done)
        return answers[-1], [answer.status for answer in answers]


class GoodDays(TransferTest):
    def test_transfer_is_charged_once_and_replayed(self):
        first = self.transfer(self.pod)
        self.assert_executed(first)
        self.assertEqual(first.json()["amount"], payment()["amount"])
        self.assert_charged_once(first)
        self.assert_replay_of(first, self.transfer(self.other))
        self.assert_charged_once(first)

    def test_no_key_is_400_and_the_gateway_hears_nothing(self):
        self.assert_problem(self.transfer(self.pod, key=None), 400, "missing-key")
        self.assertEqual(self.gateway.charges(), [])
        self.assert_nothing_stored()

    def test_same_key_with_another_body_is_422(self):
        first = self.transfer(self.pod)
        answer = self.transfer(self.other, payment(value="1.00"))
        self.assert_problem(answer, 422, "mismatch")
        self.assert_charged_once(first)

    def test_gateway_declining_is_402_and_replayed(self):
        declined = payment("tok_declined")
        first = self.transfer(self.pod, declined)
        self.assert_problem(first, 402)
        self.assert_replay_of(first, self.transfer(self.other, declined))
        self.assertEqual(self.gateway.charges(), [])

    def test_same_key_at_both_processes_at_once_one_executes_the_other_gets_409(self):
        first = self.transfer_charged_but_unanswered(self.pod)
        self.assertEqual(self.status(), "in_progress")
        self.assert_in_progress(self.transfer(self.other))
        self.assert_problem(self.transfer(self.other, payment(value="1.00")), 422, "mismatch")
        self.gateway.release()
        self.assert_executed(first.result())
        self.assert_charged_once(first.result())

    def test_two_users_with_the_same_key_are_two_transfers(self):
        mine = self.transfer(self.pod)
        theirs = self.transfer(self.other, tenant=self.tenant + "_other")
        self.assert_executed(theirs)
        self.assertNotEqual(mine.json()["gateway_charge"], theirs.json()["gateway_charge"])
        self.assertEqual(len({charge["key"] for charge in self.gateway.charges()}), 2)


class SlowGateway(TransferTest):
    def test_heartbeat_keeps_the_claim_for_longer_than_its_lease(self):
        first = self.transfer_charged_but_unanswered(self.pod)
        started = time.monotonic()
        wait_until("two leases have passed", lambda: time.monotonic() > started + 2 * LEASE)
        self.assertFalse(first.done())
        self.assert_in_progress(self.transfer(self.other))
        self.gateway.release()
        self.assert_executed(first.result())
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("completed", 1))
        self.assert_charged_once(first.result())

    def test_no_connection_is_left_in_a_transaction_while_the_gateway_works(self):
        first = self.transfer_charged_but_unanswered(self.pod)
        wait_until("no transaction is open", lambda: not self.open_transactions())
        self.assertFalse(first.done())
        self.gateway.release()
        self.assert_executed(first.result())


class FailingGateway(TransferTest):
    def assert_retry_succeeds(self, failed):
        self.assert_problem(failed, 502)
        self.assertEqual(self.status(), "retryable")
        answer, statuses = self.retry_until_executed(self.other)
        self.assert_executed(answer)
        self.assertTrue(set(statuses[:-1]) <= {503}, statuses)
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

    def test_handler_throwing_leaves_the_key_retryable(self):
        """It may have had effects, and says so."""
        answer = self.transfer(self.pod, payment("tok_throw"))
        self.assert_problem(answer, 500)
        self.assertIn("may have had effects", answer.json()["detail"])
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("retryable", 1))
        self.assertEqual(self.gateway.charges(), [])

    def test_transfer_that_an_operator_gave_up_is_answered_500(self):
        """Without a status of its own; never as a success without a body."""
        self.gateway.control(fail_next=1)
        self.transfer(self.pod)
        self.database.value(
            "SELECT idem_resolve(%s, 'fail', 'POST /transfers', %s)", self.key, self.tenant
        )
        answer = self.transfer(self.other)
        self.assert_problem(answer, 500, "failed")
        self.assertTrue(answer.replayed)

    def test_failed_transfer_stays_bound_to_its_payload(self):
        self.gateway.control(fail_next=1)
        self.assert_problem(self.transfer(self.pod), 502)
        self.assert_problem(self.transfer(self.pod, payment(value="1.00")), 422, "mismatch")


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
    """What it answers is not taken for an answer, unless it is one."""

    def setUp(self):
        super().setUp()
        self.hostile = Hostile()
        self.addCleanup(self.hostile.close)
        pod = Pod(self.database.conninfo, self.hostile)
        self.addCleanup(pod.close)
        self.pod = pod

    def test_answer_that_names_no_charge_is_502_and_may_be_tried_again(self):
        good = {"id": "gch_1", **payment()["amount"]}
        good["amount"] = good.pop("value")
        answers = {
            "empty object": {},
            "number": {**good, "id": 5},
            "null": {**good, "id": None},
            "empty": {**good, "id": ""},
            "control characters": {**good, "id": "a\r\nb"},
            "huge": {**good, "id": "x" * 100_000},
            "another amount": {**good, "amount": "0.01"},
            "another currency": {**good, "currency": "USD"},
            "array": [good],
            "no JSON": None,
        }
        for name, answer in answers.items():
            with self.subTest(name):
                self.key = unique("key")
                self.hostile.answers(json_answer(201, answer))
                self.assert_problem(self.transfer(self.pod), 502)
                self.assertEqual(self.status(), "retryable")
        self.key = unique("key")
        self.hostile.answers(json_answer(201, good))
        self.assert_executed(self.transfer(self.pod))


class DrippingGateway(TransferTest):
    def test_answer_that_drips_is_waited_for_no_longer_than_the_whole_call_may_take(self):
        hostile = Hostile()
        self.addCleanup(hostile.close)
        hostile.drips(b"HTTP/1.1 201 X\r\nContent-Length: 1000000\r\n\r\n")
        pod = Pod(self.database.conninfo, hostile, "--gateway-timeout", "1000")
        self.addCleanup(pod.close)
        self.assert_problem(self.transfer(pod), 502)
        self.assertEqual(self.status(), "retryable")


class KilledProcess(TransferTest):
    def test_process_killed_while_handling_the_retry_takes_over_after_the_lease(self):
        pending = self.transfer_charged_but_unanswered(self.pod)
        self.assert_in_progress(self.transfer(self.other))
        self.pod.kill()
        self.assertIsInstance(pending.exception(), OSError)
        # The lease has just been prolonged or is at least that of the claim's heartbeat.
        early = self.transfer(self.other)
        if not self.lease_is_over():
            self.assert_in_progress(early)
        answer, _ = self.retry_until_executed(self.other)
        self.assert_executed(answer)
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("completed", 2))
        self.assert_charged_once(answer)

    def test_process_that_kills_itself_in_the_handler_is_taken_over(self):
        crash = payment("tok_crash")
        with self.assertRaises(OSError):
            self.transfer(self.pod, crash)
        wait_until("the process is dead", lambda: not self.pod.runs())
        self.assertEqual(self.status(), "in_progress")
        wait_until("the lease is over", self.lease_is_over)
        answer = self.transfer(self.other, crash)
        self.assert_executed(answer)
        self.assert_charged_once(answer)

    def test_retry_resumes_at_the_last_recovery_point(self):
        """After `charged` the gateway is not asked again: it would fail if it were."""
        self.kill_between_charge_and_answer()
        self.gateway.control(fail_next=100)
        answer, _ = self.retry_until_executed(self.other)
        self.assert_executed(answer)
        self.assertEqual(self.database.record(self.tenant, self.key)[1], 2)
        self.assert_charged_once(answer)

    def kill_between_charge_and_answer(self):
        """The gate closes while the gateway works; before it, the charge is noted already."""
        pending = self.transfer_charged_but_unanswered(self.pod)
        with self.database.gate():
            self.gateway.release()
            wait_until("it stands before the gate", self.database.waiting)
            self.assertEqual(self.recovery_point(), "charged")
            self.pod.kill()
        self.assertIsInstance(pending.exception(), OSError)
        wait_until("the server has noticed", lambda: not self.open_transactions())
        self.assertEqual(self.database.record(self.tenant, self.key)[0], "in_progress")

    def recovery_point(self):
        return self.database.record(self.tenant, self.key)[2]


class StalledProcess(TransferTest):
    def test_process_that_wakes_up_after_a_takeover_changes_nothing(self):
        stalled = self.transfer_charged_but_unanswered(self.pod)
        self.pod.pause()
        self.addCleanup(self.pod.restart)
        wait_until("the lease is over", self.lease_is_over)
        answer, _ = self.retry_until_executed(self.other)
        self.assert_executed(answer)
        stored = self.stored()
        self.pod.resume()
        self.gateway.release()
        self.assert_late_answer_is_harmless(answer, stalled.result(PATIENCE))
        self.assertEqual(self.stored(), stored)
        self.assert_charged_once(answer)
        self.assert_replay_of(answer, self.transfer(self.other))

    def stored(self):
        return self.database.rows(
            "SELECT * FROM idempotency.record WHERE principal = %s", self.tenant
        )

    def assert_late_answer_is_harmless(self, answer, late):
        """The stalled caller gets the other's answer, or is told to ask again."""
        if late.status == 201:
            self.assertEqual(late.body, answer.body)
        else:
            self.assertIn(late.status, (409, 502, 503))
            self.assert_problem(late, late.status)


class Gateway(TransferTest):
    """The provider honours keys itself; without that nobody could call it twice."""

    def charge(self, key, amount="1.00"):
        body = json.dumps({"amount": amount, "currency": "EUR", "reference": "r"}).encode()
        headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)]
        return self.gateway.call("POST", "/charges", headers, body)

    def test_gateway_honours_keys(self):
        first = self.charge('"k"')
        self.assertEqual(first.status, 201)
        self.assertEqual(self.charge('"k"').json()["id"], first.json()["id"])
        self.assertEqual(self.charge('"k"', amount="2.00").status, 422)
        self.assertEqual(len(self.gateway.charges()), 1)


if __name__ == "__main__":
    unittest.main()
