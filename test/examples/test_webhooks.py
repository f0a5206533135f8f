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


class Events(WebhookTest):
    def test_event_is_applied_once_under_its_deterministic_id(self):
        event = self.event(status="captured")
        other_spelling = {**event, "updated_at": "2025-03-14T10:00:00.000+01:00"}
        for repeat in (event, event, other_spelling):
            for pod in self.pods:
                self.assertEqual(self.deliver(repeat, pod).status, 204)
        self.assertEqual(self.applied(), [(self.event_id(event), True)])
        self.assertEqual(self.state(), [("payment.captured", {"status": "captured"})])

    def test_duplicates_at_both_processes_at_once_are_applied_once(self):
        event = self.event(n=1)
        calls = [lambda pod=pod: self.deliver(event, pod) for pod in self.pods * 10]
        self.assertEqual({answer.status for answer in at_once(calls)}, {204})
        self.assertEqual(len(self.applied()), 1)

    def test_late_event_is_acknowledged_but_does_not_undo_later_ones(self):
        order = [3, 0, 3, 4, 1, 0, 4, 2, 1, 2, 3]
        for number, second in enumerate(order):
            answer = self.deliver(self.event(second, n=second), self.pods[number % 2])
            self.assertEqual(answer.status, 204)
        # Applied: those that were newer than all before them.
        self.assertEqual([applied for _, applied in self.applied()], [False] * 3 + [True] * 2)
        self.assertEqual(self.state()[0][1], {"n": 4})

    def test_second_event_of_one_moment_is_applied(self):
        self.deliver(self.event(1, "payment.captured"))
        self.deliver(self.event(1, "payment.refunded"))
        self.assertEqual([applied for _, applied in self.applied()], [True, True])
        self.assertEqual(self.state()[0][0], "payment.refunded")

    def test_event_of_an_unknown_type_is_acknowledged(self):
        self.assertEqual(self.deliver(self.event(kind="customer.created")).status, 204)
        self.assertEqual(self.applied(), [])

    def test_malformed_event_is_refused(self):
        texts = ("x" * 300, "a\nb", "a\0b", "", 7, None)
        times = ("yesterdayish", "2025-13-45T00:00:00Z", "now", "infinity", "2025-03-14", 7)
        for name, values in (("type", texts), ("resource_id", texts), ("updated_at", times)):
            for value in values:
                with self.subTest(name, value=value):
                    self.assert_problem(self.deliver({**self.event(), name: value}), 422)
        self.assertEqual(self.applied(), [])


class FailingHandler(WebhookTest):
    def failed_event(self, event):
        return self.database.rows(
            "SELECT attempts, error, given_up FROM payments.failed_events WHERE event_id = %s",
            self.event_id(event),
        )

    def attempts_and_pause(self, event):
        """The pause that the last failure has asked for, in seconds."""
        return self.database.rows(
            "SELECT attempt, extract(epoch FROM next_attempt_at - finished_at)::float8"
            "  FROM idempotency.records WHERE scope = 'webhooks' AND key = %s",
            self.event_id(event),
        )[0]

    def deliver_until_attempt(self, event, attempt):
        """As a sender does, that repeats until the next attempt has been made."""

        def made():
            answer = self.deliver(event)
            self.assertEqual(answer.status, 503, answer)
            self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
            return self.attempts_and_pause(event)[0] == attempt

        wait_until(f"attempt {attempt} is made", made)

    def test_failing_handler_is_retried_after_growing_pauses_and_given_up(self):
        """With jitter only the pauses' limits are certain: 100 ms at first, then 200."""
        event = self.event(kind="flaky")
        for attempt in range(1, ATTEMPTS + 1):
            self.deliver_until_attempt(event, attempt)
            if attempt < ATTEMPTS:
                self.assertLessEqual(self.attempts_and_pause(event)[1], 0.1 * attempt)
        ((attempts, error, given_up),) = self.failed_event(event)
        self.assertEqual((attempts, given_up), (ATTEMPTS, True))
        self.assertTrue(error)
        for pod in self.pods:
            self.assertEqual(self.deliver(event, pod).status, 204)
        self.assertEqual(self.attempts_and_pause(event)[0], ATTEMPTS)

    def test_handler_that_recovers_ends_the_retries(self):
        event = self.event(kind="flaky", failures=1)
        self.assertEqual(self.deliver(event).status, 503)
        self.assertEqual(self.deliver(self.event(2, "payment.captured")).status, 204)
        self.assertEqual(self.failed_event(event)[0][2], False)
        wait_until("it is accepted", lambda: self.deliver(event, self.other).status == 204)
        self.assertEqual(self.attempts_and_pause(event)[0], 2)
        self.assertEqual(self.failed_event(event), [])


if __name__ == "__main__":
    unittest.main()
