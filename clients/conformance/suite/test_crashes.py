"""The server under test, its backend, and the wire between them die, at each step."""

from .support import Case, needs
from .waiting import wait_until

COMMIT = r"^\s*(commit|end)\b"
# What a client of a slow machine may be told before the process is killed: after databaseTimeout it asks for the result of
# a COMMIT, and a claim whose lease has ended meanwhile is in progress, for all it knows.
TOLD = {"committed": [201], "leased": [409], "complete": [409]}


class Process(Case):
    """kill -9, or the end that the handler brings about; then a new process."""

    lone = True

    def restart(self):
        self.server.reap()
        self.server.start()

    def crash_with(self, path, order):
        pending = self.send_in_background(path, order)
        self.assertEqual(self.server.reap(), 3, "the handler's exit")
        self.assert_died(pending)
        self.server.start()

    def assert_died(self, call, *statuses):
        """Without an answer, or, on a machine that was slow, told that the database is, or what else is true then."""
        try:
            answer = call.result()
        except (ConnectionError, IndexError, ValueError):
            return
        self.assertIn(answer.status, (503, *statuses), answer)

    def test_after_the_effect(self):
        self.crash_with("/transactional", {"effect": "done", "exit": True})
        self.assert_nothing()
        self.assert_executed(self.send("/transactional", {"effect": "other"}))
        self.assert_effects(1, "other")

    def test_leased_after_the_effect(self):
        order = {"effect": "done", "exit": True}
        self.crash_with("/leased", order)
        self.assert_effects(1)
        self.assertEqual(self.record()[:3], ("in_progress", 1, "effect"))
        self.set_lease("1 day")
        self.assert_problem(self.send("/leased", order), "in_progress")
        self.set_lease("1 ms")
        self.wait_for_end_of_leases()
        # The second attempt ends the process, too: that is how it is known to have been run.
        self.crash_with("/leased", order)
        self.assertEqual(self.record()[:3], ("in_progress", 2, "effect"))
        self.assert_effects(1)

    def set_lease(self, lease):
        """As long as a case needs it, however slowly the server starts."""
        self.database.run(
            "SELECT idem_extend(key, token, lease => %s, scope => scope, principal => principal)"
            " FROM idempotency.record WHERE principal = %s", lease, self.principal)  # fmt: skip

    def test_killed_at_each_step(self):
        """Before the effect, before COMMIT, after COMMIT, and before a leased answer is stored: all at once."""
        keys = {step: f"{self.key}-{step}-" for step in ("work", "uncommitted", "committed", "leased", "complete")}
        proxy = self.server.proxy
        traps = [
            proxy.trap(COMMIT, "request", "hold", keys["uncommitted"], times=100),
            proxy.trap(COMMIT, "answer", "hold", keys["committed"], times=100),
            proxy.trap("idem_complete", "request", "hold", keys["complete"], times=100),
        ]
        with self.database.gate() as gate:
            order = {"effect": "done"}
            orders = {
                "work": ("/transactional", {**order, "gate": gate.number}),
                "uncommitted": ("/transactional", order),
                "committed": ("/transactional", order),
                "leased": ("/leased", {**order, "gate": gate.number}),
                "complete": ("/leased", order),
            }
            calls = [self.send_in_background(path, what, key=keys[step]) for step, (path, what) in orders.items()]
            gate.wait_for(2)
            for trap in traps:
                wait_until("a step is reached", trap.reached.is_set)
            self.server.kill()
            proxy.cut_all()
            for step, call in zip(orders, calls):
                self.assert_died(call, *TOLD.get(step, ()))
        self.server.ensure()
        wait_until("the claims of the dead are gone", lambda: not self.database.holder_of(self.server.application))
        self.assert_effects(2)  # of those that were past COMMIT, and past their step
        self.assertIsNone(self.record(keys["work"]))
        self.assertIsNone(self.record(keys["uncommitted"]))
        for step in ("work", "uncommitted"):
            with self.subTest(step):
                self.assert_executed(self.send("/transactional", order, key=keys[step]))
        with self.subTest("committed"):
            answer = self.send("/transactional", order, key=keys["committed"])
            self.assert_status(answer, 201)
            self.assertEqual(answer.all("Idempotent-Replayed"), ["true"])
        self.wait_for_end_of_leases()
        with self.subTest("complete"):
            self.assert_executed(self.send("/leased", order, key=keys["complete"]))
            self.assertEqual(self.record(keys["complete"])[:2], ("completed", 2))
        with self.subTest("leased"):
            path, what = orders["leased"]
            self.assert_executed(self.send(path, what, key=keys["leased"]))
            self.assertEqual(self.record(keys["leased"])[:2], ("completed", 2))
        self.assert_effects(5)

    def wait_for_end_of_leases(self):
        wait_until("the leases have ended", lambda: self.database.value(
            "SELECT bool_and(lease_until < now()) FROM idempotency.records"
            " WHERE principal = %s AND status IN ('in_progress', 'unknown')", self.principal))  # fmt: skip

    def test_sigterm(self):
        """Ends it soon, also while clients are connected that say nothing."""
        from .http_raw import Connection

        with Connection(self.server.port) as silent:
            silent.send(b"POST /transactional HTTP/1.1\r\nHost: x\r\n")
            self.server.terminate()
        self.server.start()


class Backend(Case):
    """What the server holds of the claim ends; it tries again by itself."""

    def test_killed_at_work(self):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            trap = self.server.proxy.trap("INSERT INTO effect", "request", "hold", self.key)
            first = self.send_in_background("/transactional", order)
            gate.wait_for()
            gate.open()
            wait_until("the effect is to be written", trap.reached.is_set)
            self.assertEqual(self.database.value("SELECT pg_terminate_backend(%s)", trap.pid), True)
            self.server.proxy.release(trap)
        self.assert_executed(first.result())
        self.assert_effects(1)

    def check_cut(self, path, statement, moment, times=1):
        order = {"effect": "done", "body": self.encoded(b"body"), "headers": [["X-One", "1"]]}
        trap = self.server.proxy.trap(statement, moment, "cut", self.key, times)
        first = self.send(path, order)
        self.assertTrue(trap.reached.is_set(), first)
        self.assert_status(first, 201)
        self.assertEqual((first.body, first.all("X-One")), (b"body", ["1"]))
        again = self.send(path, order)
        self.assertEqual(again.essence("Idempotent-Replayed"), first.essence("Idempotent-Replayed"))
        self.assertEqual(again.all("Idempotent-Replayed"), ["true"])
        self.assert_effects(1)

    def test_begin_is_cut(self):
        self.check_cut("/transactional", "idem_begin", "request")

    def test_answer_to_begin_is_cut(self):
        self.check_cut("/transactional", "idem_begin", "answer")

    def test_effect_is_cut(self):
        self.check_cut("/transactional", "INSERT INTO effect", "request")

    def test_complete_is_cut(self):
        self.check_cut("/transactional", "idem_complete", "request")

    def test_answer_to_complete_is_cut(self):
        self.check_cut("/transactional", "idem_complete", "answer")

    def test_commit_is_cut(self):
        self.check_cut("/transactional", COMMIT, "request")

    def test_answer_to_commit_is_cut(self):
        """Nobody knows whether it was done; the same key does."""
        self.check_cut("/transactional", COMMIT, "answer")

    def test_answer_to_commit_is_cut_under_a_derived_key(self):
        """The second run gets the same key, and the first one's answer."""
        for attempt in range(3):  # a machine that stands still may outlast the window, but not each time
            self.principal = f"{self.principal}-{attempt}"
            trap = self.server.proxy.trap(COMMIT, "answer", "cut", self.principal)
            answer = self.send("/derive", {"effect": "done"}, key=None)
            self.assertTrue(trap.reached.is_set(), "the trap")
            self.assert_status(answer, 201)
            self.assertRegex(answer.one("Idempotency-Key"), '^"[0-9a-f]{64}"$')
            if self.effects() == 1:
                return
        self.fail("executed twice")

    def test_answers_to_commit_are_cut_again(self):
        self.check_cut("/transactional", COMMIT, "answer", times=2)

    def test_commit_that_was_cut_is_not_answered_503_though_done(self):
        order = {"effect": "done"}
        trap = self.server.proxy.trap(COMMIT, "answer", "cut", self.key)
        self.send("/transactional", order)
        self.assertTrue(trap.reached.is_set())
        self.assert_effects(1)
        self.assertEqual(self.record()[0], "completed")

    def test_answer_to_commit_without_a_claim_is_cut(self):
        """Nobody can say whether it was done, so it is not done again."""
        trap = self.server.proxy.trap(COMMIT, "answer", "cut", self.principal)
        answer = self.send("/pass", {"effect": "done"}, key=None)
        self.assertTrue(trap.reached.is_set(), "the trap")
        self.assert_problem(answer, status=503)
        self.assert_effects(1)

    def test_leased_begin_is_cut(self):
        self.check_cut("/leased", "idem_begin", "request")

    def test_leased_complete_is_cut(self):
        self.check_cut("/leased", "idem_complete", "request")

    def test_answer_to_leased_complete_is_cut(self):
        self.check_cut("/leased", "idem_complete", "answer")

    def test_checkpoint_is_cut(self):
        self.check_cut("/leased", "idem_checkpoint", "request")

    def test_answer_to_checkpoint_is_cut(self):
        self.check_cut("/leased", "idem_checkpoint", "answer")

    def test_answer_to_leased_begin_is_cut(self):
        """No request gets its claim until the lease has ended; then one takes it over."""
        order = {"effect": "done"}
        trap = self.server.proxy.trap("idem_begin", "answer", "cut", self.key)
        first = self.send("/leased", order)
        self.assertTrue(trap.reached.is_set())
        self.assertIn(first.status, (409, 503), first)
        self.assert_effects(0)
        wait_until("the lease has ended", lambda: self.database.value(
            "SELECT lease_until < now() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip
        self.assert_executed(self.send("/leased", order))
        self.assert_effects(1)

    def test_fail_is_cut(self):
        for moment in ("request", "answer"):
            with self.subTest(moment):
                key = f"{self.key}-{moment}"
                trap = self.server.proxy.trap("idem_fail", moment, "cut", key)
                self.assert_status(self.send("/leased", {"status": 503}, key=key), 503)
                self.assertTrue(trap.reached.is_set())
                self.assertEqual(self.record(key)[0], "retryable")


class Pool(Case):
    lone = True

    def test_killed_idle(self):
        """Connections that wait in a pool are gone; no request notices."""
        self.assert_executed(self.send("/transactional"))
        self.database.run(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity"
            " WHERE application_name = %s AND state = 'idle' AND datname = current_database()", self.server.application)  # fmt: skip
        self.assert_executed(self.send("/transactional", {"effect": "done"}, key=self.key + "-2"))


class Away(Case):
    lone = True

    def test_refused(self):
        self.server.proxy.refuse()
        for path in ("/transactional", "/leased", "/generate", "/derive"):
            with self.subTest(path):
                self.assert_unavailable(self.send(path, {"effect": "done"}, key=None if path in ("/generate", "/derive") else True))
        self.assert_unavailable(self.send("/configured", {"effect": "done"}, header="X-Request-Key"), 500)
        self.assert_status(self.health(), 200)
        self.server.proxy.listen()
        self.assert_effects(0)
        self.assert_executed(self.send("/transactional", {"effect": "done"}))

    def test_swallows_bytes(self):
        """A database that takes everything and says nothing has a deadline."""
        self.send("/transactional", key=self.key + "-warm")  # so that there are connections to be disappointed by
        self.server.proxy.swallow()
        calls = [self.send_in_background(path, {"effect": "done"}) for path in ("/transactional", "/leased")]
        self.assert_status(self.health(), 200)
        for call in calls:
            self.assert_unavailable(call.result())
        self.server.proxy.heal()
        self.assert_effects(0)
        self.assert_executed(self.send("/transactional", {"effect": "done"}))

    def test_swallows_an_answer_to_commit(self):
        trap = self.server.proxy.trap(COMMIT, "answer", "swallow", self.key)
        first = self.send("/transactional", {"effect": "done"})
        self.assertTrue(trap.reached.is_set())
        self.assert_status(first, 201)
        self.assert_effects(1)

    def test_late_begin_is_not_executed(self):
        """Who was told 503 is not served in secret when the database wakes up."""
        trap = self.server.proxy.trap("idem_begin", "answer", "hold", self.key, times=5)
        answer = self.send("/transactional", {"effect": "done"})
        self.assertIn(answer.status, (503, 409), answer)
        self.server.proxy.release(trap)
        self.assert_executed(self.until_free({"effect": "other"}))
        self.assert_effects(0, "done")

    def until_free(self, order):
        return wait_until("the key is free", lambda: (
            answer if (answer := self.send("/transactional", order)).status != 409 else None))  # fmt: skip

    def test_unprotected_by_choice(self):
        self.server.proxy.refuse()
        for _ in range(2):
            self.assert_executed(self.send("/unprotected", {"body": self.encoded(b"done")}))
        self.server.proxy.listen()
        first = self.send("/unprotected", {"effect": "done"})
        self.assert_executed(first)
        self.assert_replay_of(first, self.send("/unprotected", {"effect": "done"}))
        self.assert_effects(1)

    @needs("raise")
    def test_an_error_with_a_status_unprotected_by_choice(self):
        """It is the answer there as well."""
        self.server.proxy.refuse()
        self.assert_executed(self.send("/unprotected", {"raise": 409}), 409)

    def test_a_bad_key_is_refused_without_it(self):
        self.server.proxy.refuse()
        for key in ("", "x" * 256):
            self.assert_status(self.send("/transactional", key=key), 400)
        self.assert_status(self.send("/transactional", key=None), 400)

    def test_whose_handler_has_failed_is_still_told_so(self):
        """A handler's own failure is not taken for the database's."""
        self.assert_status(self.send("/leased", {"throw": True}), 500)


class Standby(Case):
    lone = last = True

    def test_it_is_away(self):
        """A server that takes no writes takes no claims. When it does again, the service need not be started anew."""
        self.become("on")
        self.addCleanup(self.become, "off")
        for path in ("/transactional", "/leased"):
            with self.subTest(path):
                self.assert_unavailable(self.send(path, {"effect": "done"}))
        self.become("off")
        self.assert_effects(0)
        # A pool may have many connections that have died, and a caller comes again after 503.
        self.assert_executed(wait_until("it executes", lambda: (
            answer if (answer := self.send("/transactional", {"effect": "done"})).status != 503 else None)))  # fmt: skip
        self.assert_effects(1)

    def become(self, read_only):
        """As after a failover: no connection of before is left, and a new one meets another server."""
        database = self.suite.database
        self.server.proxy.refuse()
        with database.connect() as admin:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = {read_only}")
        self.server.proxy.listen()
