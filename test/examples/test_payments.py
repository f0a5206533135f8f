"""POST /payments, POST /refunds and PATCH /payments/{id}: everything in one transaction."""

import json
import unittest

from http_call import payment, refund_of
from support import PaymentsTest
from waiting import PATIENCE, at_once, in_background, wait_until


class FirstRequestsAndRepeats(PaymentsTest):
    def pay(self, pod=None, body=None, **named):
        return (pod or self.pod).pay(body or payment(), tenant=self.tenant, key=self.key, **named)

    def test_no_key_on_a_route_that_requires_it_is_400(self):
        answer = self.pod.pay(payment(), tenant=self.tenant)
        self.assert_problem(answer, 400, "missing-key")
        self.assert_nothing_stored()

    def test_first_request_is_executed(self):
        answer = self.pay()
        self.assert_executed(answer)
        made = answer.json()
        self.assertEqual(made["amount"], {"value": "12.50", "currency": "EUR"})
        self.assertEqual((made["customer"], made["status"]), ("CUS_TEST", "captured"))
        self.assertEqual(answer.headers["Location"], f"/payments/{made['id']}")
        self.assertEqual(self.database.charges(self.tenant), 1)
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("completed", 1))

    def test_repeat_gets_the_same_bytes_and_the_replay_header(self):
        first = self.pay()
        self.assert_executed(first)
        for pod in (self.pod, self.other):
            self.assert_replay_of(first, self.pay(pod))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_answer_survives_the_processes(self):
        first = self.pay()
        for pod in self.pods:
            pod.restart()
        self.assert_replay_of(first, self.pay(self.pods[1]))

    def test_bare_and_quoted_key_are_the_same_key(self):
        first = self.pay()
        bare = [("Idempotency-Key", self.key)]
        self.assert_replay_of(first, self.pod.pay(payment(), tenant=self.tenant, headers=bare))
        parameters = [("idempotency-key", f'"{self.key}"; v=1')]
        self.assert_replay_of(
            first, self.other.pay(payment(), tenant=self.tenant, headers=parameters)
        )

    def test_same_key_with_another_body_is_422(self):
        first = self.pay()
        self.assert_problem(self.pay(self.other, payment(value="12.51")), 422, "mismatch")
        self.assert_replay_of(first, self.pay())
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_same_key_with_another_query_is_422(self):
        for first, second in (("?dry_run=true", "?dry_run=false"), ("?a=1", "")):
            with self.subTest(first, second=second):
                send = lambda query: self.pod.send(
                    "POST", f"/payments{query}", payment(), tenant=self.tenant, key=f"k{first}"
                )
                made = send(first)
                self.assert_executed(made)
                self.assert_problem(send(second), 422, "mismatch")
                self.assert_replay_of(made, send(first))

    def test_nested_field_changed_is_422(self):
        nested = {"cart": {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]}}
        changed = {"cart": {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 3}]}}
        self.assert_executed(self.pay(body=payment(metadata=nested)))
        self.assert_problem(self.pay(body=payment(metadata=changed)), 422, "mismatch")

    def test_body_reordered_or_with_other_white_space_is_the_same_request(self):
        first = self.pay(body=payment(metadata={"a": 1, "b": [1, 2]}))
        self.assert_executed(first)
        mirrored = payment(metadata={"b": [1, 2], "a": 1})
        mirrored = {name: mirrored[name] for name in reversed(mirrored)}
        for indent in (None, 7):
            text = json.dumps(mirrored, indent=indent).encode()
            self.assert_replay_of(first, self.pay(self.other, text))

    def test_excluded_field_changed_is_the_same_request(self):
        first = self.pay(body=payment(client_sent_at="2025-03-14T09:00:00Z"))
        self.assert_executed(first)
        self.assert_replay_of(first, self.pay(body=payment(client_sent_at="2025-03-14T09:00:01Z")))
        self.assert_replay_of(first, self.pay(body=payment()))

    def test_two_users_with_the_same_key_get_two_charges_and_see_only_their_own(self):
        theirs = self.tenant + "_other"
        mine = self.pay()
        other = self.pod.pay(payment(value="99.00"), tenant=theirs, key=self.key)
        self.assert_executed(mine)
        self.assert_executed(other)
        self.assertEqual([self.database.charges(t) for t in (self.tenant, theirs)], [1, 1])
        self.assert_replay_of(mine, self.pay())
        self.assert_replay_of(
            other, self.pod.pay(payment(value="99.00"), tenant=theirs, key=self.key)
        )
        path = mine.headers["Location"]
        self.assertEqual(self.pod.send("GET", path, tenant=self.tenant).status, 200)
        self.assert_problem(self.pod.send("GET", path, tenant=theirs), 404)

    def test_handler_returning_402_is_replayed(self):
        first = self.pay(body=payment("tok_declined"))
        self.assert_problem(first, 402)
        self.assert_replay_of(first, self.pay(self.other, payment("tok_declined")))
        self.assertEqual(self.database.charges(self.tenant), 0)

    def test_handler_throwing_leaves_the_key_free(self):
        self.assert_problem(self.pay(body=payment("tok_throw")), 500)
        self.assert_nothing_stored()
        self.assert_executed(self.pay(self.other))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_cookie_is_given_once_and_not_replayed(self):
        first = self.pay(body=payment("tok_cookie"))
        self.assert_executed(first)
        self.assertIn("Set-Cookie", first.headers)
        repeat = self.pay(self.other, payment("tok_cookie"))
        self.assert_replay_of(first, repeat)
        self.assertNotIn("Set-Cookie", repeat.headers)

    def test_body_that_was_left_out_is_said_to_be_left_out(self):
        self.database.run(
            "SELECT idem_policy_set('POST /payments', exclude_fields => ARRAY['client_sent_at'],"
            " max_body_bytes => 1000, on_large_body => 'omit')"
        )
        try:
            first = self.pod.pay(payment("tok_large"), tenant=self.tenant, key=self.key)
            self.assert_executed(first)
            again = self.other.pay(payment("tok_large"), tenant=self.tenant, key=self.key)
        finally:
            self.database.run(
                "SELECT idem_policy_set('POST /payments', on_missing_key => 'error',"
                " exclude_fields => ARRAY['client_sent_at'])"
            )
        self.assertEqual((again.status, again.body), (201, b""))
        self.assertEqual(again.headers["Idempotent-Body"], "omitted")
        self.assertTrue(again.replayed)

    def test_binary_body_is_replayed_byte_for_byte(self):
        first = self.pay(body=payment("tok_binary"))
        self.assert_executed(first)
        self.assertEqual(first.headers.get_content_type(), "application/octet-stream")
        self.assertEqual(set(first.body), set(range(256)))
        self.assert_replay_of(first, self.pay(self.other, payment("tok_binary")))

    def test_one_megabyte_body_is_replayed_byte_for_byte(self):
        first = self.pay(body=payment("tok_large"))
        self.assert_executed(first)
        self.assertGreaterEqual(len(first.body), 1_000_000)
        self.assert_replay_of(first, self.pay(self.other, payment("tok_large")))

    def test_one_megabyte_request_is_recognised(self):
        large = payment(metadata="x" * 1_000_000)
        first = self.pay(body=large)
        self.assert_executed(first)
        self.assert_replay_of(first, self.pay(self.other, large))
        changed = payment(metadata="x" * 999_999 + "y")
        self.assert_problem(self.pay(body=changed), 422, "mismatch")


class ExpiredKeys(PaymentsTest):
    """What becomes of a key after its time is the policy's decision."""

    def set_retention(self, retention):
        self.database.run(
            "UPDATE idempotency.policy SET retention = %s WHERE scope_pattern = 'POST /payments'",
            retention,
        )

    def pay_and_age(self, *columns):
        """A payment of which these times have passed."""
        answer = self.pod.pay(payment(), tenant=self.tenant, key=self.key)
        self.assert_executed(answer)
        past = ", ".join(f"{column} = now() - interval '1 s'" for column in columns)
        self.database.run(f"UPDATE idempotency.record SET {past} WHERE principal = %s", self.tenant)

    def test_expired_key_is_refused_as_long_as_the_policy_remembers_it(self):
        self.set_retention("2 days")
        self.addCleanup(self.set_retention, None)
        self.pay_and_age("expires_at")
        answer = self.other.pay(payment(), tenant=self.tenant, key=self.key)
        self.assert_problem(answer, 412, "expired")
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_expired_key_is_a_new_request_once_it_is_forgotten(self):
        self.pay_and_age("expires_at", "retained_until")
        self.assert_executed(self.other.pay(payment(), tenant=self.tenant, key=self.key))
        self.assertEqual(self.database.charges(self.tenant), 2)


class SimultaneousRequests(PaymentsTest):
    def pay(self, pod, **named):
        return pod.pay(payment(), tenant=self.tenant, key=self.key, **named)

    def pay_before_gate(self, pod, **named):
        """A payment that has claimed its key and stands before the closed gate."""
        pending = in_background(self.pay, pod, **named)
        wait_until("the payment stands before the gate", self.database.waiting)
        return pending

    def test_same_key_at_both_processes_at_once_one_executes_the_other_gets_409(self):
        with self.database.gate():
            first = self.pay_before_gate(self.pod)
            self.assert_in_progress(self.pay(self.other))
            self.assert_in_progress(self.pay(self.pod))
        self.assert_executed(first.result())
        self.assert_replay_of(first.result(), self.pay(self.other))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_other_body_for_a_running_key_is_not_executed(self):
        """Nothing is known yet of a transaction in progress, so the answer is 409, not 422."""
        with self.database.gate():
            first = self.pay_before_gate(self.pod)
            other = self.other.pay(payment(value="1.00"), tenant=self.tenant, key=self.key)
            self.assert_in_progress(other)
        self.assert_executed(first.result())
        other = self.other.pay(payment(value="1.00"), tenant=self.tenant, key=self.key)
        self.assert_problem(other, 422, "mismatch")

    def test_process_killed_while_handling_the_retry_executes_at_once(self):
        with self.database.gate():
            pending = self.pay_before_gate(self.pod)
            self.pod.kill()
        self.assertIsInstance(pending.exception(), OSError)
        # The server notices the broken connection when its statement ends. No lease is waited for:
        # the next request has to execute.
        wait_until("the server has noticed", lambda: not self.database.claims())
        retry = self.pay(self.other)
        self.assert_executed(retry)
        self.assertEqual(self.database.record(self.tenant, self.key)[:2], ("completed", 1))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_process_that_kills_itself_in_the_handler_leaves_no_trace(self):
        crash = payment("tok_crash")
        with self.assertRaises(OSError):
            self.pod.pay(crash, tenant=self.tenant, key=self.key)
        wait_until("the process is dead", lambda: not self.pod.runs())
        wait_until("the server has noticed", lambda: not self.database.claims())
        self.assert_nothing_stored()
        self.assert_executed(self.other.pay(crash, tenant=self.tenant, key=self.key))
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_hundred_simultaneous_requests_with_one_key_make_one_charge(self):
        calls = [lambda pod=pod: self.pay(pod) for pod in self.pods * 50]
        answers = at_once(calls)
        paid = [answer for answer in answers if answer.status == 201]
        refused = [answer for answer in answers if answer.status != 201]
        self.assertEqual(len([answer for answer in paid if not answer.replayed]), 1)
        self.assertEqual(len({str(answer.essence) for answer in paid}), 1)
        for answer in refused:
            self.assert_in_progress(answer)
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_client_that_gives_up_and_retries_while_the_first_is_running(self):
        with self.database.gate():
            first = self.pay_before_gate(self.pod, timeout=0.3)
            self.assertIsInstance(first.exception(), TimeoutError)
            self.assert_in_progress(self.pay(self.other))
        wait_until("the first has ended", lambda: self.database.record(self.tenant, self.key))
        retry = self.pay(self.other)
        self.assertEqual(retry.status, 201)
        self.assertTrue(retry.replayed, "the work of the first request was done twice")
        self.assertEqual(self.database.charges(self.tenant), 1)

    def test_claim_of_a_client_outside_of_the_service_counts_as_well(self):
        with self.database.key_held("POST /payments", self.tenant, self.key):
            self.assert_in_progress(self.pay(self.pod))
        self.assert_executed(self.pay(self.pod))


class Refunds(PaymentsTest):
    """The route whose duplicates wait for the first."""

    def setUp(self):
        super().setUp()
        paid = self.pod.pay(payment(), tenant=self.tenant, key=self.key)
        self.refunded = refund_of(paid)

    def refund(self, pod, **named):
        return pod.send(
            "POST", "/refunds", self.refunded, **{"tenant": self.tenant, "key": self.key, **named}
        )

    def test_refund_is_executed_once_and_replayed(self):
        first = self.refund(self.pod)
        self.assert_executed(first)
        self.assertEqual(first.json()["payment"], self.refunded["payment"])
        self.assert_replay_of(first, self.refund(self.other))

    def test_payments_and_refunds_do_not_share_keys(self):
        self.assert_executed(self.refund(self.pod))
        self.assertEqual(self.database.records(self.tenant), 2)

    def test_payment_of_another_tenant_cannot_be_refunded(self):
        answer = self.refund(self.pod, tenant=self.tenant + "_other")
        self.assert_problem(answer, 404)

    def test_same_key_at_both_processes_waits_and_gets_the_same_answer(self):
        with self.database.gate():
            first = in_background(self.refund, self.pod)
            wait_until("the first stands before the gate", self.database.waiting)
            second = in_background(self.refund, self.other)
            wait_until("the second waits for it", lambda: self.database.waiting() == 2)
        self.assert_executed(first.result())
        self.assert_replay_of(first.result(), second.result())

    def test_waiting_ends_when_the_first_is_killed_and_the_second_executes(self):
        with self.database.gate():
            in_background(self.refund, self.pod)
            wait_until("the first stands before the gate", self.database.waiting)
            second = in_background(self.refund, self.other)
            wait_until("the second waits for it", lambda: self.database.waiting() == 2)
            self.pod.kill()
        self.assert_executed(second.result())
        self.assertEqual(self.database.record(self.tenant, self.key)[0], "completed")

    def test_waiting_ends_with_409_after_five_seconds(self):
        with self.database.key_held("POST /refunds", self.tenant, self.key):
            answer = self.refund(self.pod)
        self.assert_in_progress(answer)
        self.assertGreaterEqual(answer.seconds, 4.5)
        self.assertLess(answer.seconds, PATIENCE / 2)


class OptionalKeys(PaymentsTest):
    """PATCH /payments/{id}, which makes a key for those who send none."""

    def setUp(self):
        super().setUp()
        paid = self.pod.pay(payment(), tenant=self.tenant, key=self.key)
        self.path = paid.headers["Location"]

    def describe(self, pod, text, **named):
        return pod.send("PATCH", self.path, {"description": text}, tenant=self.tenant, **named)

    def test_generated_key_is_returned_and_serves_for_the_retry(self):
        first = self.describe(self.pod, "one")
        self.assert_executed(first, 200)
        quoted = first.headers["Idempotency-Key"]
        self.assertRegex(quoted, r'^"[^"]{20,}"$')
        retry = self.describe(self.other, "one", headers=[("Idempotency-Key", quoted)])
        self.assert_replay_of(first, retry)

    def test_two_requests_without_a_key_are_two_requests(self):
        keys = {self.describe(self.pod, "same").headers["Idempotency-Key"] for _ in range(2)}
        self.assertEqual(len(keys), 2)

    def test_late_retry_does_not_undo_what_came_after(self):
        first = self.describe(self.pod, "one", key="first")
        self.assert_executed(self.describe(self.pod, "two", key="second"), 200)
        self.assert_replay_of(first, self.describe(self.other, "one", key="first"))
        shown = self.pod.send("GET", self.path, tenant=self.tenant)
        self.assertEqual(shown.json()["description"], "two")

    def test_malformed_key_is_refused_although_none_is_needed(self):
        answer = self.describe(self.pod, "one", headers=[("Idempotency-Key", '"unfinished')])
        self.assert_problem(answer, 400, "bad-key")


class Estimates(PaymentsTest):
    """The route that needs neither a key nor the database."""

    ITEMS = {"items": [{"price": "9.90", "quantity": 2}]}

    def estimate(self, pod, **named):
        return pod.send("POST", "/estimates", self.ITEMS, tenant=self.tenant, **named)

    def test_without_a_key_it_runs_each_time_and_nothing_is_stored(self):
        for pod in self.pods:
            answer = self.estimate(pod)
            self.assert_executed(answer, 200)
            self.assertEqual(answer.json(), {"total": "19.80"})
            self.assertNotIn("Idempotency-Key", answer.headers)
        self.assert_nothing_stored()

    def test_with_a_key_it_is_replayed_for_the_time_that_the_route_says(self):
        first = self.estimate(self.pod, key=self.key)
        self.assert_executed(first, 200)
        self.assert_replay_of(first, self.estimate(self.other, key=self.key))
        lifetime = self.database.value(
            "SELECT extract(epoch FROM expires_at - created_at) FROM idempotency.records"
            " WHERE principal = %s",
            self.tenant,
        )
        self.assertAlmostEqual(float(lifetime), 60, places=1)


class OtherMethods(PaymentsTest):
    def test_get_put_and_delete_pass_through(self):
        paid = self.pod.pay(payment(), tenant=self.tenant, key=self.key)
        path = paid.headers["Location"]
        for method, statuses in (("GET", {200}), ("PUT", {404, 405}), ("DELETE", {404, 405})):
            for _ in range(2):
                answer = self.pod.send(method, path, tenant=self.tenant, key="other")
                with self.subTest(method):
                    self.assertIn(answer.status, statuses)
                    self.assertNotIn("Idempotent-Replayed", answer.headers)
        self.assertEqual(self.database.records(self.tenant), 1)

    def test_list_shows_each_payment_once(self):
        for key in ("a", "b", "a"):
            self.pod.pay(payment(), tenant=self.tenant, key=key)
        shown = self.other.send("GET", "/payments", tenant=self.tenant).json()
        self.assertEqual(len(shown["payments"] if isinstance(shown, dict) else shown), 2)


class Processes(PaymentsTest):
    def test_log_shows_outcomes_and_neither_keys_nor_bodies(self):
        secret = "CUS_" + self.key.upper()
        for pod in self.pods:
            pod.pay(payment(customer=secret), tenant=self.tenant, key=self.key)
        wait_until("the replay is logged", lambda: "replay" in self.other.logged())
        for pod in self.pods:
            self.assertRegex(pod.logged(), r"POST /payments 201 ")
            self.assertNotIn(self.key, pod.logged())
            self.assertNotIn(secret, pod.logged())

    def test_terminated_process_ends_cleanly_and_finishes_what_it_has_begun(self):
        with self.database.gate():
            pending = in_background(self.pod.pay, payment(), tenant=self.tenant, key=self.key)
            wait_until("the payment stands before the gate", self.database.waiting)
            self.pod.child.terminate()
        self.assert_executed(pending.result())
        self.assertEqual(self.pod.reap(), 0)
        self.assertEqual(self.database.charges(self.tenant), 1)


if __name__ == "__main__":
    unittest.main()
