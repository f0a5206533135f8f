"""Workers: processes of example/worker that work off what is due, side by side, killed, cut off, and stopped.

A record is queued by a first attempt that has failed, so a worker's first is attempt 2.
"""

import contextlib
import json

from .server import Worker
from .support import Case, Wrong
from .test_crashes import COMMIT
from .waiting import unique, wait_until


RUNS = 5  # of work whose transaction conflicts: the default of `attempts`


class Workers(Case):
    """`soon` and so on: what the scope's policy says, see database.py."""

    for_the_first_server = True
    needs = "worker"

    def setUp(self):
        super().setUp()
        self.workers = []
        self.scope = self.scope_of("soon")

    @staticmethod
    def scope_of(kind):
        return f"worker/{kind}/{unique('scope')}"

    def worker(self, **options):
        """One that has been told to start."""
        worker = Worker(self.suite.folder, self.database, self.scope, **options)
        self.workers.append(worker)
        self.addCleanup(worker.close)
        worker.launch()
        return worker

    def started(self, **options):
        worker = self.worker(**options)
        worker.wait_until_ready()
        return worker

    def stop(self, *workers):
        """A clean stop, which leaves no claim behind."""
        for worker in workers:
            self.assertEqual(worker.terminate(), 0, worker.logged())
        self.assertEqual(self.count("status = 'in_progress'"), 0, "claims left behind")

    # ---- records ----

    def queue(self, order, key=None, notify=None, state=None):
        with self.database.connection.transaction():
            token = self.begin(order, key)[1]
            if state:
                self.database.run(
                    "SELECT idem_checkpoint(%s, 'begun', %s::jsonb, scope => %s, principal => %s, token => %s)",
                    key or self.key, state, self.scope, self.principal, token)  # fmt: skip
            self.database.run(
                "SELECT idem_fail(%s, 'queued', retryable => true, scope => %s, principal => %s, retry_after => '0')",
                key or self.key, self.scope, self.principal)  # fmt: skip
            if notify:
                self.database.run("SELECT pg_notify(%s, '')", notify)

    def begin(self, order, key=None):
        """As a client that sends the request, which may be its JSON: (outcome, token, status_code, body)."""
        (row,) = self.database.rows(
            "SELECT outcome, token, status_code, convert_from(body, 'UTF8')"
            " FROM idem_begin(%s, %s::jsonb, scope => %s, principal => %s, lease => '1 day')",
            key or self.key, order if isinstance(order, str) else json.dumps(order), self.scope, self.principal)  # fmt: skip
        return row

    def keys(self, count):
        return [f"{self.key}-{number:02}" for number in range(count)]

    def count(self, condition):
        return self.database.value(f"SELECT count(*) FROM idempotency.records WHERE scope = %s AND ({condition})", self.scope)

    def lease_until(self):
        return self.database.value("SELECT lease_until FROM idempotency.records WHERE principal = %s", self.principal)

    def whole_record(self):
        return self.database.rows("SELECT r::text FROM idempotency.record AS r WHERE principal = %s", self.principal)

    def resolve(self):
        """An operator decides while the handler works."""
        self.database.run(
            "SELECT idem_resolve(%s, 'complete', scope => %s, principal => %s, status_code => 200, body => 'resolved')",
            self.key, self.scope, self.principal)  # fmt: skip

    def wait(self, what, holds):
        try:
            return wait_until(what, holds)
        except AssertionError as error:
            records = self.database.rows("SELECT key, status, attempt, error FROM idempotency.records WHERE scope = %s LIMIT 5", self.scope)
            logs = "\n".join(worker.logged()[-1500:] for worker in self.workers)
            raise AssertionError(f"{error}\n{records}\n{logs}") from None

    def wait_for(self, status, attempt=None, key=None):
        self.wait(f"the record is {status}", lambda: self.record(key)[0] == status)
        if attempt:
            self.assertEqual(self.record(key)[1], attempt, "attempt")

    def wait_for_all(self, count):
        self.wait(f"{count} records are completed", lambda: self.count("status = 'completed'") == count)
        self.assertEqual(self.count("true"), count)

    def assert_told(self, before="queued"):
        """The last attempt's error is on the record."""
        status, error, _ = self.database.told(self.principal)
        self.assertNotIn(error, (None, "", before), status)


class Records(Workers):
    def test_once_although_killed(self):
        """kill -9 at each step: before the result, before COMMIT, after COMMIT, and before the claims are known."""
        keys = self.keys(60)
        for key in keys:
            self.queue({"effect": "done"}, key)
        held = [(step, self.worker(lease_ms=1000)) for step in (
            ("idem_complete", "request"), (COMMIT, "request"), (COMMIT, "answer"), ("idem_claim_due", "answer"))]  # fmt: skip
        traps = [worker.proxy.trap(*step, "hold", times=1000) for step, worker in held]
        for trap in traps:
            self.wait("a step is reached", trap.reached.is_set)
        for _, worker in held:
            worker.kill()
        self.assertGreater(self.count("status <> 'completed'"), 0)
        rest = [self.worker(lease_ms=1000), self.worker(lease_ms=1000)]
        self.wait_for_all(len(keys))
        effects = self.database.rows("SELECT key FROM effect WHERE principal = %s", self.principal)
        self.assertEqual(sorted(key for (key,) in effects), keys)
        for worker in rest:
            worker.wait_until_ready()
        self.stop(*rest)

    def test_two_share(self):
        """Each works on a record of its own."""
        with self.database.gate() as gate:
            keys = self.keys(5)
            for key in keys:
                self.queue({"effect": "done", "gate": gate.number}, key)
            workers = [self.worker(), self.worker()]
            for worker in workers:
                worker.wait_until_ready()
            self.wait("both are at work", lambda: gate.waiting() == 2)
            self.assertEqual(self.count("status = 'in_progress'"), 2)
            gate.open()
            self.wait_for_all(len(keys))
        self.assertEqual(self.count("attempt = 2"), len(keys))
        self.assert_effects(len(keys))
        self.stop(*workers)

    def test_size(self):
        """As many at the same time, and no more."""
        with self.database.gate() as gate:
            keys = self.keys(9)
            for key in keys:
                self.queue({"effect": "done", "gate": gate.number}, key)
            worker = self.started(size=4)
            self.wait("four are at work", lambda: gate.waiting() == 4)
            self.assertEqual(self.count("status = 'in_progress'"), 4)
            gate.open()
            self.wait_for_all(len(keys))
        self.assertEqual(self.count("attempt = 2"), len(keys))
        self.assert_effects(len(keys))
        self.stop(worker)

    def test_attempted_again(self):
        self.queue({"effect": "done", "throw_until": 4})
        worker = self.started()
        self.wait_for("completed", attempt=4)
        self.assert_effects(1)
        self.stop(worker)

    def test_its_error_is_kept(self):
        self.scope = self.scope_of("late")
        self.queue({"effect": "done", "throw_until": 9})
        worker = self.started()
        self.wait("it has failed", lambda: self.record()[:2] == ("retryable", 2))
        self.assert_told()
        self.assert_effects(0)
        self.stop(worker)

    def test_exhausted(self):
        self.scope = self.scope_of("thrice")
        order = {"effect": "done", "throw_until": 9}
        self.queue(order)
        worker = self.started()
        self.wait("no attempt is left", lambda: self.record()[:2] == ("exhausted", 3))
        self.assertEqual(self.begin(order)[0], "exhausted")
        self.assert_told()
        self.assert_effects(0)
        self.stop(worker)

    def test_its_answer_is_replayed(self):
        answers = {f"{self.key}-{status}": {"effect": "done", "status": status, "body": f"answer {status}"} for status in (201, 422)}
        for key, order in answers.items():
            self.queue(order, key)
        worker = self.started()
        self.wait_for_all(2)
        for key, order in answers.items():
            outcome, _, status, body = self.begin(order, key)
            self.assertEqual((outcome, status, body), ("replay", order["status"], order["body"]))
        self.assert_effects(2)
        self.stop(worker)

    def test_answers_that_are_not_kept(self):
        """They are failures: nothing is stored, and nothing is left of the work."""
        self.scope = self.scope_of("late")
        statuses = (408, 425, 429, 500, 503)
        for status in statuses:
            self.queue({"effect": "done", "status": status, "body": "busy"}, f"{self.key}-{status}")
        worker = self.started()
        self.wait("all have failed", lambda: self.count("status = 'retryable' AND attempt = 2") == len(statuses))
        self.assertEqual(self.count("error IS NULL OR error IN ('', 'queued')"), 0)
        self.assert_effects(0)
        self.stop(worker)

    def mishaps(self, state, times):
        """(key, mishap) of records whose effects fail, when they are made and at COMMIT."""
        planned = []
        for number, when in enumerate(("mishap", "late mishap")):
            key = f"{self.key}-{number}"
            planned.append((key, self.database.mishap(f"{when} of {key}", state, times)))
            self.queue({"effect": f"{when} of {key}"}, key)
        return planned

    def check_run_again(self, state):
        """After a conflict the work runs again, and none of its attempts is used up."""
        self.scope = self.scope_of("late")
        planned = self.mishaps(state, RUNS - 1)
        worker = self.started(lease_ms=3600000)
        for key, mishap in planned:
            self.wait_for("completed", attempt=2, key=key)
            self.assertEqual(mishap.met(), RUNS)
        self.assert_effects(2)
        self.stop(worker)

    def test_serialization_failures(self):
        self.check_run_again("40001")

    def test_deadlocks(self):
        self.check_run_again("40P01")

    def check_failed(self, state, runs):
        """Its claim fails, and the worker goes on."""
        self.scope = self.scope_of("late")
        planned = self.mishaps(state, 1000)
        self.queue({"effect": "done"})
        worker = self.started(lease_ms=3600000)
        self.wait_for("completed", attempt=2, key=self.key)
        for key, mishap in planned:
            self.wait_for("retryable", attempt=2, key=key)
            self.assertEqual(mishap.met(), runs)
        self.assertEqual(self.count("status = 'retryable' AND (error IS NULL OR error IN ('', 'queued'))"), 0)
        self.assert_effects(1)
        self.stop(worker)

    def test_conflicts_without_end(self):
        self.check_failed("40001", runs=RUNS)

    def test_errors_of_its_transaction(self):
        for number, state in enumerate(("23514", "54000", "55000", "57014")):
            with self.subTest(state):
                self.key = f"{self.key}-{number}"
                self.principal = f"{self.principal}-{number}"
                self.check_failed(state, runs=1)

    def test_what_was_abandoned(self):
        """No attempt has failed: the lease of the first has expired."""
        outcome, token, _, _ = self.begin({"effect": "done"})
        self.assertEqual(outcome, "execute")
        self.expire(token)
        worker = self.started()
        self.wait_for("completed", attempt=2)
        self.assert_effects(1)
        self.stop(worker)

    def check_deep(self, mode):
        """The handler gets it, or its record fails. The worker goes on."""
        self.scope = self.scope_of("late")
        json = '{"effect": "deep", "deep": ' + "[" * 899 + "]" * 899 + "}"
        self.database.run("SET max_stack_depth = '6MB'")  # for the edition without C
        self.queue(json, f"{self.key}-deep-request")
        self.database.run("RESET max_stack_depth")
        self.queue({"effect": "deep"}, f"{self.key}-deep-state", state=json)
        keys = self.keys(2)
        for key in keys:
            self.queue({"effect": "done"}, key)
        worker = self.started(mode=mode)
        for key in keys:
            self.wait_for("completed", attempt=2, key=key)
        self.assertEqual(self.count("status IN ('completed', 'retryable') AND attempt = 2"), 4)
        self.assertEqual(self.count("status = 'retryable' AND (error IS NULL OR error IN ('', 'queued'))"), 0)
        self.assert_effects(self.count("status = 'completed' AND key LIKE '%%-deep-%%'"), "deep")
        self.stop(worker)

    def test_a_deep_request(self):
        self.check_deep("transactional")

    def test_a_deep_request_leased(self):
        self.check_deep("leased")

    def expire(self, token):
        self.database.run("SELECT idem_extend(%s, %s, scope => %s, principal => %s, lease => '1 ms')", self.key, token, self.scope, self.principal)
        wait_until("the lease has expired", lambda: self.database.value(
            "SELECT lease_until < clock_timestamp() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip


class Leases(Workers):
    LEASE_MS = 2000

    def check_kept(self, mode, conflict=False):
        """A machine that stands still may cost a lease, but not three times."""
        for attempt in range(3):
            self.principal, self.scope = f"{self.principal}-{attempt}", self.scope_of("soon")
            try:
                return self.check_kept_once(mode, conflict)
            except AssertionError as error:
                if attempt == 2 or (mode == "transactional" and isinstance(error, Wrong)):
                    raise

    def check_kept_once(self, mode, conflict):
        """Of the second worker, which is idle, the record is not due."""
        effect = f"late mishap of {self.scope}" if conflict else "done"
        if conflict:
            self.database.mishap(effect, "40001", 1)
        with self.database.gate() as gate:
            self.queue({"effect": effect, "gate": gate.number})
            workers = [self.worker(mode=mode, lease_ms=self.LEASE_MS) for _ in range(2)]
            for worker in workers:
                worker.wait_until_ready()
            gate.wait_for()
            if conflict:
                self.fail_to_commit(gate, workers)
            first = self.lease_until()
            self.wait("the first lease would have expired, and has been extended", lambda: self.lease_until() > first and self.database.value(
                "SELECT clock_timestamp() > %s + interval '500 ms'", first))  # fmt: skip
            self.assertEqual((gate.waiting(), self.record()[:2]), (1, ("in_progress", 2)))
            gate.open()
            self.wait_for("completed", attempt=2)
        self.assert_effects(1)
        self.stop(*workers)

    def fail_to_commit(self, gate, workers):
        """The work of one of them runs again, and stands before the gate again."""
        traps = [worker.proxy.trap(COMMIT, "request", "hold") for worker in workers]
        gate.open()
        self.wait("it is at its COMMIT", lambda: any(trap.reached.is_set() for trap in traps))
        gate.shut()
        for worker in workers:
            worker.proxy.clear()
        gate.wait_for()

    def test_kept_after_a_conflict(self):
        self.check_kept("transactional", conflict=True)

    def test_kept_by_heartbeats(self):
        self.check_kept("transactional")

    def test_kept_by_heartbeats_leased(self):
        self.check_kept("leased")

    def check_told(self, mode, effects):
        self.queue({"effect": "done", "lost": True})
        worker = self.started(mode=mode, lease_ms=self.LEASE_MS)
        self.wait("it is claimed", lambda: self.record()[1] == 2)
        self.resolve()
        decided = self.whole_record()
        self.wait("the handler is told", lambda: self.effects("lost"))
        self.stop(worker)
        self.assertEqual(self.whole_record(), decided)
        self.assertEqual(self.record()[1], 2, "attempt")
        self.assert_effects(effects, "done")

    def test_its_loss_is_told(self):
        self.check_told("transactional", effects=0)

    def test_its_loss_is_told_leased(self):
        self.check_told("leased", effects=1)

    def check_taken_over(self, mode, effects):
        """The handler has not heard, and finishes: the new owner's claim is as it was."""
        with self.database.gate() as gate:
            order = {"effect": "done", "gate": gate.number, "status": 200, "body": "late"}
            self.queue(order)
            worker = self.started(mode=mode, lease_ms=3600000)
            gate.wait_for()
            self.database.run(
                "SELECT idem_extend(key, token, scope => scope, principal => principal, lease => '1 ms')"
                " FROM idempotency.record WHERE principal = %s", self.principal)  # fmt: skip
            outcome, token = self.wait("another has it", lambda: (claim := self.begin(order))[0] == "execute" and claim)[:2]
            taken = self.whole_record()
            gate.open()
            worker.terminate()
        self.assertEqual(worker.child.returncode, 0, worker.logged())
        self.assertEqual(self.whole_record(), taken)
        self.assert_effects(effects)
        self.assertTrue(self.database.value(
            "SELECT idem_complete(%s, 200, 'mine', scope => %s, principal => %s, token => %s)",
            self.key, self.scope, self.principal, token))  # fmt: skip

    def test_taken_over(self):
        """Its effects are rolled back."""
        self.check_taken_over("transactional", effects=0)

    def test_taken_over_leased(self):
        self.check_taken_over("leased", effects=1)


class Leased(Workers):
    def setUp(self):
        super().setUp()
        self.scope = self.scope_of("uncertain")

    def test_an_uncertain_failure(self):
        """An exception, and an answer that is not to be kept: the scope's policy says unknown."""
        for order in ({"throw_until": 9}, {"status": 503, "body": "busy"}):
            self.queue({"effect": "done", **order}, f"{self.key}-{len(order)}")
        worker = self.started(mode="leased")
        self.wait("both are unknown", lambda: self.count("status = 'unknown' AND attempt = 2") == 2)
        self.assertEqual(self.count("error IS NULL OR error IN ('', 'queued')"), 0)
        self.assert_effects(2)
        self.stop(worker)

    def test_nothing_happened(self):
        """It is attempted again, whatever the policy says."""
        order = {"nothing_until": 4, "status": 200, "body": "done"}
        self.queue(order)
        worker = self.started(mode="leased")
        self.wait_for("completed", attempt=4)
        self.assertEqual(self.begin(order)[::2], ("replay", 200))
        self.stop(worker)

    def test_without_an_answer(self):
        self.queue({"effect": "done"})
        worker = self.started(mode="leased")
        self.wait_for("completed", attempt=2)
        self.assert_effects(1)
        self.stop(worker)


class Late(Workers):
    """A handler that exceeds `handlerTimeout` has failed, whatever it returns."""

    LIMIT_MS = 2000  # on a slow machine, the effect of leased work takes some of it

    def check_late(self, mode, effects):
        self.scope = self.scope_of("late")
        with self.database.gate() as gate:
            self.queue({"effect": "done", "gate": gate.number, "status": 200, "body": "late"})
            worker = self.started(mode=mode, handler_timeout_ms=self.LIMIT_MS)
            self.wait("it is claimed", lambda: self.record()[1] == 2)
            claimed = self.database.value("SELECT clock_timestamp()")
            self.wait("its time is over", lambda: self.database.value(
                "SELECT clock_timestamp() > %s + %s * interval '2 ms'", claimed, self.LIMIT_MS))  # fmt: skip
            gate.open()
        self.wait_for("retryable", attempt=2)
        self.assert_told()
        self.assert_effects(effects)
        self.queue({"effect": "next"}, f"{self.key}-next")
        self.wait_for("completed", attempt=2, key=f"{self.key}-next")
        self.stop(worker)

    def test_in_its_transaction(self):
        self.check_late("transactional", effects=0)

    def test_leased(self):
        self.check_late("leased", effects=1)


class Processes(Workers):
    def test_stopped_during_its_work(self):
        """The handler ends, under heartbeats until then."""
        with self.database.gate() as gate:
            order = {"effect": "done", "gate": gate.number}
            for key in self.keys(2):
                self.queue(order, key)
            worker = self.started(lease_ms=4500)
            gate.wait_for()
            worker.tell_to_stop()
            for _ in range(2):
                self.next_beat()
            gate.open()
            self.assertEqual(worker.reap(), 0, worker.logged())
        self.assertEqual(self.count("status = 'in_progress'"), 0, "claims left behind")
        completed = self.count("status = 'completed'")
        self.assertGreater(completed, 0)
        self.assert_effects(completed)

    def next_beat(self):
        leased = "SELECT max(lease_until) FROM idempotency.records WHERE scope = %s AND status = 'in_progress'"
        before = self.database.value(leased, self.scope)
        self.wait("its lease is extended", lambda: (self.database.value(leased, self.scope) or before) > before)

    def test_stopped_when_idle(self):
        """It does not wait for the end of its pause."""
        self.stop(self.started(poll_ms=600000))

    def test_woken_by_a_notification(self):
        worker = self.started(poll_ms=600000, channel=self.key)
        for number, key in enumerate(self.keys(3), 1):
            self.queue({"effect": "done"}, key, notify=self.key)
            self.wait_for_all(number)
        listens = [text for texts in worker.proxy.waits("LISTEN") for text in texts if "LISTEN" in text]
        self.assertEqual(len(listens), 1, "behind a pooler each would be another session's")
        self.stop(worker)

    def test_the_database_is_away_and_back(self):
        worker = self.started()
        trap = worker.proxy.trap("idem_claim_due", "request", "cut", times=3)
        self.wait("it has met three outages", lambda: trap.left == 0)
        worker.proxy.refuse()
        self.queue({"effect": "done"})
        worker.proxy.listen()
        self.wait_for("completed", attempt=2)
        self.assert_effects(1)
        self.assertTrue(worker.runs(), worker.logged())
        worker.proxy.refuse()
        self.stop(worker)

    def test_cut_off_during_its_work(self):
        """The transaction is lost with its effect."""
        with self.database.gate() as gate:
            self.queue({"effect": "done", "gate": gate.number})
            worker = self.started(lease_ms=1500)
            gate.wait_for()
            worker.proxy.refuse()
            worker.proxy.listen()
            gate.open()
            self.wait_for("completed")
        self.assert_effects(1)
        self.stop(worker)

    def test_the_answer_to_a_commit_is_lost(self):
        self.queue({"effect": "done"})
        worker = self.worker(lease_ms=1500)
        trap = worker.proxy.trap(COMMIT, "answer", "cut")
        worker.wait_until_ready()
        self.wait("it is cut", trap.reached.is_set)
        self.wait_for("completed", attempt=2)
        self.stop(worker)
        self.assert_effects(1)
        self.assertEqual(self.record()[:2], ("completed", 2))

    def test_a_mistake_ends_it(self):
        """A scope that the server refuses."""
        self.scope = " "
        worker = self.worker()
        with contextlib.suppress(RuntimeError):  # it may have ended before it was ready
            worker.wait_until_ready()
        self.assertNotEqual(worker.reap(), 0)
        self.assertTrue(worker.logged().strip(), "its error")

    def check_refused(self, state, worker=None):
        """It asks again, and tells why."""
        mishap = self.database.mishap(self.scope, state, 1000)
        worker = worker or self.started()
        self.wait(f"it has met {state} three times", lambda: mishap.met() >= 3)
        self.assertTrue(worker.runs(), worker.logged())
        self.assertTrue(worker.logged().strip(), "its error")
        self.queue({"effect": "done"})
        mishap.end()
        self.wait_for("completed", attempt=2)
        self.stop(worker)

    def test_refused_for_now(self):
        """The first claim fails, but a later one may succeed."""
        for state in ("40001", "53400", "55000", "55P03", "57014"):
            with self.subTest(state):
                self.principal, self.scope = f"{self.principal}-{state}", self.scope_of("soon")
                self.check_refused(state)

    def test_a_mistake_later(self):
        """A right that is missing now was there before."""
        worker = self.started()
        self.queue({"effect": "done"}, f"{self.key}-first")
        self.wait_for_all(1)
        self.principal += "-later"
        self.check_refused("42501", worker)

    def test_a_right_is_missing(self):
        mishap = self.database.mishap(self.scope, "42501", 1000)
        worker = self.worker()
        with contextlib.suppress(RuntimeError):
            worker.wait_until_ready()
        self.assertNotEqual(worker.reap(), 0)
        self.assertEqual(mishap.met(), 1)
