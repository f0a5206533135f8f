"""What commits, what rolls back, what is kept: the cells of the table in clients/README.md."""

from .support import Case, needs
from .waiting import unique, wait_until


class Verdict(Case):
    def runs(self):
        return len(self.database.hooks("execute", self.key))

    def assert_runs(self, count):
        wait_until(f"{count} runs are told", lambda: self.runs() >= count)
        self.assertEqual(self.runs(), count)

    def fresh(self, suffix):
        self.principal, self.key = unique("tenant"), f"{self.key}-{suffix}"

    def check_kept(self, path, order, status, effects):
        """The answer of the first is the answer of the repeat, and the handler has run once."""
        first = self.send(path, order)
        self.assert_executed(first, status)
        self.assert_effects(effects)
        self.assertEqual(self.record()[:2], ("completed", 1))
        self.assert_replay_of(first, self.send(path, order))
        self.assert_effects(effects)
        self.assert_runs(1)

    def check_free(self, path, order, status):
        for _ in range(2):
            self.assert_executed(self.send(path, order), status)
            self.assert_nothing()
        self.assert_runs(2)

    def check_open(self, path, order, status, ends_as):
        """A leased claim that does not end with an answer; the work was done outside of a transaction."""
        self.assert_executed(self.send(path, order), status)
        self.assertEqual(self.record()[0], ends_as)
        self.assert_problem(self.send(path, order), {"retryable": "retry_later"}.get(ends_as, ends_as))
        self.assert_effects(1)
        self.assert_runs(1)


class Returned(Verdict):
    def test_kept(self):
        for path in ("/transactional", "/leased"):
            for status in (200, 201, 303, 400, 404, 409, 422):
                with self.subTest((path, status)):
                    self.fresh(status)
                    self.check_kept(path, {"effect": "done", "status": status}, status, 1)

    def test_not_kept(self):
        for status in (408, 425, 429, 500, 503):
            with self.subTest(status):
                self.fresh(status)
                self.check_free("/transactional", {"effect": "done", "status": status}, status)

    def test_not_kept_leased(self):
        for path, ends_as in (("/leased", "retryable"), ("/uncertain", "unknown")):
            for status in (429, 500):
                with self.subTest((path, status)):
                    self.fresh(status)
                    self.check_open(path, {"effect": "done", "status": status}, status, ends_as)


@needs("raise")
class Raised(Verdict):
    """The error with a status that a framework, or the package, has for handlers."""

    def test_4xx_is_kept_without_the_work(self):
        for status in (400, 404, 409, 422):
            with self.subTest(status):
                self.fresh(status)
                self.check_kept("/transactional", {"effect": "done", "raise": status}, status, 0)

    def test_4xx_after_a_failed_statement(self):
        self.check_kept("/transactional", {"effect": "done", "hide_error": True, "raise": 409}, 409, 0)

    def test_4xx_under_a_derived_key(self):
        order = {"effect": "done", "raise": 409}
        first = self.send("/derive", order, key=None)
        self.assert_executed(first, 409)
        self.prolong()
        self.assert_replay_of(first, self.send("/derive", order, key=None))
        self.assert_effects(0)

    def test_4xx_without_a_key(self):
        for _ in range(2):
            self.assert_executed(self.send("/pass", {"effect": "done", "raise": 409}, key=None), 409)
        self.assert_nothing()

    def test_what_may_be_tried_again_is_not_kept(self):
        for status in (408, 425, 429, 500, 503):
            with self.subTest(status):
                self.fresh(status)
                self.check_free("/transactional", {"effect": "done", "raise": status}, status)

    def test_4xx_of_a_leased_route_is_kept(self):
        for path in ("/leased", "/uncertain"):
            with self.subTest(path):
                self.fresh(path[1:])
                self.check_kept(path, {"effect": "done", "raise": 409}, 409, 1)

    def test_5xx_of_a_leased_route(self):
        for path, ends_as in (("/leased", "retryable"), ("/uncertain", "unknown")):
            with self.subTest(path):
                self.fresh(path[1:])
                self.check_open(path, {"effect": "done", "raise": 503}, 503, ends_as)


class Thrown(Verdict):
    def test_any_other_error(self):
        self.check_free("/transactional", {"effect": "done", "throw": True}, 500)

    def test_any_other_error_leased(self):
        for path, ends_as in (("/leased", "retryable"), ("/uncertain", "unknown")):
            with self.subTest(path):
                self.fresh(path[1:])
                self.check_open(path, {"effect": "done", "throw": True}, 500, ends_as)

    @needs("strangers")
    def test_an_error_that_looks_like_the_databases(self):
        """A payment gateway's code of five characters, a mail server's words: no reason to run again."""
        for stranger in ("code", "words"):
            with self.subTest(stranger):
                self.fresh(stranger)
                self.check_free("/transactional", {"effect": "done", "stranger": stranger}, 500)

    @needs("idle")
    def test_idle_in_transaction(self):
        """A limit that each run would exceed is no reason to run again."""
        answer = self.send("/transactional", {"effect": "done", "idle": 200})
        self.assertIn(answer.status, (500, 503), answer)
        self.assert_nothing()
        self.assert_runs(1)


@needs("judge")
class Judged(Verdict):
    """The option `verdict`: the route's own function of the answer."""

    def order(self, verdict, **more):
        return {"effect": "done", "headers": [["X-Verdict", verdict]], **more}

    def test_keep(self):
        for path in ("/judged", "/judged_leased"):
            for status in (200, 503):
                with self.subTest((path, status)):
                    self.fresh(status)
                    self.check_kept(path, self.order("keep", status=status), status, 1)

    def test_free(self):
        for status in (200, 402):
            with self.subTest(status):
                self.fresh(status)
                self.check_free("/judged", self.order("free", status=status), status)

    def test_free_leased(self):
        """The route says that nothing has happened, so that the policy of an uncertain end does not apply."""
        self.check_open("/judged_leased", self.order("free", status=402), 402, "retryable")

    def test_unknown(self):
        for path in ("/judged", "/judged_leased"):
            with self.subTest(path):
                self.fresh(path[1:])
                self.check_open(path, self.order("unknown", status=202), 202, "unknown")

    def test_nothing_said(self):
        """Then the status decides."""
        self.check_kept("/judged", {"effect": "done", "status": 422}, 422, 1)
        self.fresh("503")
        self.check_free("/judged", {"effect": "done", "status": 503}, 503)


class Handlers(Verdict):
    """Handlers that break rules."""

    def ways(self, name):
        ways = self.server.call("/ways", method="GET").json()[name]
        self.assertTrue(ways)
        return ways

    def check_refused(self, order):
        self.assert_status(self.send("/transactional", {"effect": "done", **order}), 500)
        self.assert_nothing()
        self.assert_executed(self.send("/transactional", {"effect": "other"}))
        self.assert_effects(1, "other")

    @needs("ways")
    def test_hidden_error_through_each_call(self):
        for way in self.ways("hide_error"):
            with self.subTest(way):
                self.fresh(way)
                self.check_refused({"hide_error": way})

    @needs("ways")
    def test_commits_through_each_call(self):
        for way in self.ways("commit"):
            with self.subTest(way):
                self.fresh(way)
                self.check_refused({"commit": way})

    @needs("late")
    def test_writes_after_its_answer(self):
        """The transaction it was given is over, and the connection may be another request's."""
        self.assert_executed(self.send("/transactional", {"effect": "done", "late": "late"}))
        wait_until("it has tried", lambda: self.effects("tried"))
        self.assertEqual((self.effects("done"), self.effects("late")), (1, 0))


@needs("never")
class Never(Verdict):
    """A handler that never answers."""

    lone = True

    def test_it_is_given_up(self):
        order = {"effect": "done", "never": True}
        answer = self.send("/impatient", order)
        self.assert_problem(answer, status=503)
        self.assertEqual(answer.json()["type"], "/problems/idempotency/handler-late")
        self.assert_nothing()
        self.assert_executed(self.send("/impatient", {"effect": "other"}))

    def test_more_of_them_than_connections(self):
        calls = [self.send_in_background("/impatient", {"never": True}, key=f"{self.key}-{n}") for n in range(15)]
        for call in calls:
            self.assert_status(call.result(), 503)
        self.assert_executed(self.send("/impatient", {"effect": "other"}))

    def test_its_connection_is_lost(self):
        """It has nothing to wait for any more. Each loss is a reason to run again, five times at most."""
        call = self.send_in_background("/transactional", {"effect": "done", "never": True})

        def ended():
            for pid in self.database.holder_of(self.server.application):
                self.database.run("SELECT pg_terminate_backend(%s)", pid)
            return call.done()

        wait_until("it is given up", ended, pause=0.1)
        self.assert_problem(call.result(), status=503)
        self.assertLessEqual(self.runs(), 5)
        self.assert_nothing()


@needs("patience")
class Patience(Verdict):
    """`wait` of 4 s where `databaseTimeout` is 2 s."""

    def test_it_waits_to_the_end(self):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            first = self.send_in_background("/patient", order)
            gate.wait_for()
            self.assert_problem(self.send("/patient", order), "in_progress")
            gate.open()
            self.assert_executed(first.result())
        self.assert_effects(1)

    def test_it_gets_the_answer(self):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            first = self.send_in_background("/patient", order)
            gate.wait_for()
            second = self.send_in_background("/patient", order)
            since = self.database.value("SELECT clock_timestamp()")
            wait_until("more than the limit has passed", lambda: self.database.value(
                "SELECT clock_timestamp() - %s > interval '2.5 s'", since))  # fmt: skip
            gate.open()
            self.assert_executed(first.result())
            self.assert_replay_of(first.result(), second.result())
        self.assert_effects(1)


@needs("waits")
class Waits(Case):
    """How often a request waits for the database before its answer, as the server says of itself at /ways."""

    lone = True

    def counted(self, path, order, name):
        """After a few others, which prepare statements and open connections. One more may get another connection."""
        for number in range(3):
            self.assert_executed(self.send(path, order, key=f"{self.key}-{number}"))
            self.send(path, order, key=f"{self.key}-{number}")
        for key in (self.key, f"{self.key}-again", f"{self.key}-at-last"):
            self.count_from_here(lingering=name != "leased")
            self.assert_executed(self.send(path, order, key=key))
            waits = [wait for wait in self.waits() if name != "leased" or "idem_" in "".join(wait)]
            if len(waits) == self.declared[name]:
                break
        return waits

    def count_from_here(self, lingering=True):
        """Drivers that send BEGIN and the next statement in two writes do not wait in between, however fast the database is.
        Of a leased request no BEGIN is counted, and a heartbeat would come while one lingers."""
        self.server.proxy.forget_waits()
        if lingering:
            self.server.proxy.trap(r"^\s*(begin|start)", "answer", "linger")

    def waits(self):
        """Without the end of a replay's transaction, for which no answer waits."""
        waits = self.server.proxy.waits("idem_")
        return [wait for wait in waits if self.declared["replay"] > 1 or wait not in (["ROLLBACK"], ["COMMIT"])]

    def setUp(self):
        super().setUp()
        self.declared = self.server.call("/ways", method="GET").json()["waits"]

    def test_execution(self):
        waits = self.counted("/transactional", {"effect": "done"}, "execute")
        self.assertEqual(len(waits), self.declared["execute"], waits)

    def test_leased(self):
        """With one step."""
        waits = self.counted("/leased", {"effect": "done"}, "leased")
        self.assertEqual(len(waits), self.declared["leased"], waits)

    def test_replay(self):
        """The end of its transaction may come after the answer."""
        order = {"effect": "done"}
        self.counted("/transactional", order, "execute")
        proxy = self.server.proxy
        self.count_from_here()
        held = proxy.trap(r"^\s*(rollback|commit)", "request", "hold", times=100) if self.declared["replay"] == 1 else None
        answer = self.send("/transactional", order)
        self.assertEqual(answer.all("Idempotent-Replayed"), ["true"])
        waits = self.waits()
        if held:
            proxy.release(held)
        self.assertEqual(len(waits), self.declared["replay"], waits)
