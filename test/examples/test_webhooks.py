"""POST /webhooks: events that come twice, late, or to a handler that fails."""

import unittest

from support import PaymentsTest
from waiting import at_once, unique, wait_until

ATTEMPTS = 3  # of the policy `webhooks`


class WebhookTest(PaymentsTest):
    def setUp(self):
        super().setUp()
        self.resource = unique("resource")

    def event(self, second=0, kind="payment.captured", **data):
        return {
            "type": kind,
            "resource_id": self.resource,
            "updated_at": f"2025-03-14T09:00:{second:02}Z",
            "data": data,
        }

    def deliver(self, event, pod=None):
        return (pod or self.pod).send("POST", "/webhooks", event, tenant="sender")

    def event_id(self, event):
        return self.database.value(
            "SELECT idem_event_id(%s, %s, %s)",
            event["type"],
            event["resource_id"],
            event["updated_at"],
        )

    def applied(self):
        """The decisions about our resource, in order of time: (event id, applied)."""
        return self.database.rows(
            "SELECT event_id, applied FROM payments.event_log"
            " WHERE resource_id = %s ORDER BY updated_at",
            self.resource,
        )

    def state(self):
        return self.database.rows(
            "SELECT type, data FROM payments.payment_status WHERE resource_id = %s", self.resource
        )


class Duplicates(WebhookTest):
    def test_event_is_applied_under_its_deterministic_id(self):
        event = self.event(status="captured")
        self.assertEqual(self.deliver(event).status, 204)
        self.assertEqual(self.applied(), [(self.event_id(event), True)])
        self.assertEqual(self.state(), [("payment.captured", {"status": "captured"})])

    def test_duplicate_is_acknowledged_and_not_applied_again(self):
        event = self.event(n=1)
        for pod in (self.pod, self.other, self.pod):
            self.assertEqual(self.deliver(event, pod).status, 204)
        self.assertEqual(len(self.applied()), 1)

    def test_same_moment_written_otherwise_is_the_same_event(self):
        self.deliver(self.event(n=1))
        self.deliver({**self.event(n=1), "updated_at": "2025-03-14T10:00:00.000+01:00"})
        self.assertEqual(len(self.applied()), 1)

    def test_duplicates_at_both_processes_at_once_are_applied_once(self):
        event = self.event(n=1)
        calls = [lambda pod=pod: self.deliver(event, pod) for pod in self.pods * 10]
        self.assertEqual({answer.status for answer in at_once(calls)}, {204})
        self.assertEqual(len(self.applied()), 1)


class OutOfOrder(WebhookTest):
    def test_late_event_is_acknowledged_but_does_not_undo_what_came_after(self):
        old, new = self.event(1, "payment.captured"), self.event(2, "payment.refunded")
        for event in (new, old, new, old):
            self.assertEqual(self.deliver(event).status, 204)
        self.assertEqual([applied for _, applied in self.applied()], [False, True])
        self.assertEqual(self.state()[0][0], "payment.refunded")

    def test_shuffled_repeats_of_many_events_end_in_the_newest_state(self):
        order = [3, 0, 3, 4, 1, 0, 4, 2, 1, 2, 3]
        for number, second in enumerate(order):
            self.deliver(self.event(second, n=second), self.pods[number % 2])
        self.assertEqual([applied for _, applied in self.applied()], self.expected(order))
        self.assertEqual(self.state()[0][1], {"n": 4})

    @staticmethod
    def expected(order):
        """By second: an event is applied if it is newer than all that came before it."""
        applied = {}
        for number, second in enumerate(order):
            applied.setdefault(second, second > max(order[:number], default=-1))
        return [applied[second] for second in sorted(applied)]

    def test_second_event_of_one_moment_is_applied(self):
        self.deliver(self.event(1, "payment.captured"))
        self.deliver(self.event(1, "payment.refunded"))
        self.assertEqual([applied for _, applied in self.applied()], [True, True])
        self.assertEqual(self.state()[0][0], "payment.refunded")

    def test_events_of_two_resources_do_not_meet(self):
        self.deliver(self.event(5, n=1))
        mine, self.resource = self.resource, unique("resource")
        self.deliver(self.event(1, n=2))
        self.assertEqual(self.state(), [("payment.captured", {"n": 2})])
        self.resource = mine
        self.assertEqual(self.state(), [("payment.captured", {"n": 1})])


class FailingHandler(WebhookTest):
    def failed_event(self, event):
        return self.database.rows(
            "SELECT attempts, error, given_up FROM payments.failed_events WHERE event_id = %s",
            self.event_id(event),
        )

    def pause(self, event):
        """The pause that the last failure has asked for, in seconds."""
        return float(
            self.database.value(
                "SELECT extract(epoch FROM next_attempt_at - finished_at) FROM idempotency.records"
                " WHERE scope = 'webhooks' AND key = %s",
                self.event_id(event),
            )
        )

    def attempts(self, event):
        return (
            self.database.value(
                "SELECT max(attempt) FROM idempotency.records WHERE key = %s", self.event_id(event)
            )
            or 0
        )

    def deliver_until_attempt(self, event, attempt):
        """As a sender does, that repeats until the next attempt has been made."""

        def made():
            answer = self.deliver(event)
            self.assertEqual(answer.status, 503, answer)
            self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
            return self.attempts(event) == attempt

        wait_until(f"attempt {attempt} is made", made)

    def test_failing_handler_is_retried_and_given_up_after_the_policys_attempts(self):
        event = self.event(kind="flaky")
        for attempt in range(1, ATTEMPTS + 1):
            self.deliver_until_attempt(event, attempt)
        ((attempts, error, given_up),) = self.failed_event(event)
        self.assertEqual((attempts, given_up), (ATTEMPTS, True))
        self.assertTrue(error)
        for pod in self.pods:
            self.assertEqual(self.deliver(event, pod).status, 204)
        self.assertEqual(self.attempts(event), ATTEMPTS)

    def test_pauses_between_attempts_grow_and_are_obeyed(self):
        """With jitter only their limits are certain: 100 ms at first, then 200."""
        event = self.event(kind="flaky")
        for attempt, limit in ((1, 0.1), (2, 0.2)):
            self.deliver_until_attempt(event, attempt)
            self.assertLessEqual(self.pause(event), limit)
            self.assertGreaterEqual(self.pause(event), 0)
        self.push_next_attempt_away(event)
        self.assertEqual(self.deliver(event).status, 503)
        self.assertEqual(self.attempts(event), 2)

    def push_next_attempt_away(self, event):
        moved = self.database.run(
            "UPDATE idempotency.record SET next_attempt_at = now() + interval '1 h'"
            " WHERE key = %s",
            self.event_id(event),
        )
        self.assertEqual(moved, 1)

    def test_handler_that_recovers_ends_the_retries(self):
        event = self.event(kind="flaky", failures=1)
        self.assertEqual(self.deliver(event).status, 503)
        ((attempts, error, given_up),) = self.failed_event(event)
        self.assertEqual((attempts, given_up), (1, False))
        self.assertTrue(error)
        wait_until("it is accepted", lambda: self.deliver(event, self.other).status == 204)
        self.assertEqual(self.attempts(event), 2)
        self.assertEqual(self.failed_event(event), [])
        self.assertEqual(self.deliver(event).status, 204)

    def test_failing_event_does_not_hold_up_others(self):
        self.assertEqual(self.deliver(self.event(1, "flaky")).status, 503)
        self.assertEqual(self.deliver(self.event(2, "payment.captured")).status, 204)


class StrangeEvents(WebhookTest):
    def test_event_of_an_unknown_type_is_acknowledged(self):
        self.assertEqual(self.deliver(self.event(kind="customer.created")).status, 204)
        self.assertEqual(self.applied(), [])

    def test_event_that_no_key_can_name_is_refused_and_not_sent_for_ever(self):
        whole = self.event()
        for name in ("type", "resource_id"):
            for text in ("x" * 12_000, "x" * 300, "a\nb", "a\0b"):
                with self.subTest(name, text=text[:5]):
                    self.assert_problem(self.deliver({**whole, name: text}), 422)
        self.assertEqual(self.applied(), [])

    def test_event_whose_parts_are_longer_than_a_key_has_a_digest_as_its_id(self):
        event = {**self.event(), "type": ":" * 100, "resource_id": ":" * 100}
        self.assertRegex(self.event_id(event), r"^[0-9a-f]{64}$")
        self.assertEqual(self.deliver(event).status, 204)

    def test_event_without_its_parts_is_refused(self):
        whole = self.event()
        for name in ("type", "resource_id", "updated_at"):
            for broken in ({k: v for k, v in whole.items() if k != name}, {**whole, name: 7}):
                with self.subTest(name, broken=broken.get(name)):
                    answer = self.deliver(broken)
                    self.assertIn(answer.status, (400, 422))
                    self.assert_problem(answer, answer.status)
        for moment in (
            "yesterdayish",
            "",
            "2025-13-45T00:00:00Z",
            "now",
            "tomorrow allballs",
            "infinity",
            "2025-03-14",
            "2025-03-14T09:00:00",
        ):
            with self.subTest(moment):
                answer = self.deliver({**whole, "updated_at": moment})
                self.assertIn(answer.status, (400, 422), answer)
        self.assertEqual(self.applied(), [])


if __name__ == "__main__":
    unittest.main()
