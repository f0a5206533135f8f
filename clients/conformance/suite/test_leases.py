"""Leases of 2 s: kept, lost, and taken over."""

from .support import Case
from .waiting import wait_until

LEASE = 2.0


class Leases(Case):
    def lease_is_over(self, since="created_at"):
        """More than one and a half leases have passed since the claim."""
        wait_until("the claim is older than its first lease", lambda: self.database.value(
            f"SELECT {since} + interval '3 s' < clock_timestamp() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip

    def check_kept(self, prepare):
        """A machine that stands still may cost a lease, but not three times. A duplicate that then gets the claim
        waits at the gate as well, until its connection times out."""
        for attempt in range(3):
            self.principal, self.key = f"{self.principal}-{attempt}", f"{self.key}-{attempt}"
            try:
                return self.check_kept_once(prepare)
            except (AssertionError, TimeoutError):
                if attempt == 2:
                    raise

    def check_kept_once(self, prepare):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            trap = prepare()
            first = self.send_in_background("/leased", order)
            gate.wait_for()
            self.lease_is_over()
            if trap:
                self.assertTrue(trap.reached.is_set(), "the beat")
            self.assert_problem(self.send("/leased", order), "in_progress")
            gate.open()
            self.assert_executed(first.result())
        self.assertEqual(self.record()[:2], ("completed", 1))
        self.assert_effects(1)
        self.assertEqual(self.database.hooks("lease_lost", self.key), [])

    def test_kept_by_heartbeats(self):
        self.check_kept(lambda: None)

    def test_one_lost_beat_is_survived(self):
        """Whose connection is cut."""
        self.check_kept(lambda: self.server.proxy.trap("idem_extend", "request", "cut", self.key))

    def test_one_beat_without_an_answer_is_survived(self):
        self.check_kept(lambda: self.server.proxy.trap("idem_extend", "request", "swallow", self.key))

    def test_one_lost_answer_is_survived(self):
        self.check_kept(lambda: self.server.proxy.trap("idem_extend", "answer", "cut", self.key))

    def lost_at(self):
        found = self.database.rows("SELECT at FROM effect WHERE principal = %s AND note = 'lost'", self.principal)
        return found[0][0] if found else None

    def test_told_to_stop(self):
        """No beat comes through, without an error: the work ends by the client's own clock, in time."""
        late = []
        for attempt in range(3):  # a machine that stands still may make it late, but not each time
            self.principal, self.key = f"{self.principal}-{attempt}", f"{self.key}-{attempt}"
            self.server.proxy.trap("idem_extend", "request", "swallow", self.key, times=100)
            answer = self.send("/leased", {"hang": True})
            self.assert_problem(answer, "in_progress")
            ((claimed, until, status),) = self.database.rows(
                "SELECT created_at, lease_until, status FROM idempotency.records WHERE principal = %s", self.principal)  # fmt: skip
            self.assertEqual(status, "in_progress")
            stopped = self.lost_at()
            self.assertGreater((stopped - claimed).total_seconds(), LEASE / 2, "told while the lease could be kept")
            self.assert_hook()
            if stopped <= until + (until - claimed) / 10:
                return
            late.append(str(stopped - until))
        self.fail(f"told to stop after the end of the lease: {late}")

    def assert_hook(self):
        wait_until("onLeaseLost is called", lambda: self.database.hooks("lease_lost", self.key))

    def test_told_by_the_server(self):
        """Somebody else has the claim: the next beat says so, long before the lease would end."""
        late = []
        for attempt in range(3):  # a machine that stands still may make it late, but not each time
            self.principal, self.key = f"{self.principal}-{attempt}", f"{self.key}-{attempt}"
            pending = self.send_in_background("/leased", {"hang": True})
            wait_until("it is claimed", self.record)
            self.database.run(
                "SELECT idem_resolve(%s, 'complete', scope => 'POST /leased', principal => %s, status_code => 200, body => 'resolved')",
                self.key, self.principal)  # fmt: skip
            self.assert_problem(pending.result(), "in_progress")
            self.assert_hook()
            answer = self.send("/leased", {"hang": True})
            self.assertEqual((answer.status, answer.body, answer.all("Idempotent-Replayed")), (200, b"resolved", ["true"]))
            held = self.lost_at() - self.database.value("SELECT created_at FROM idempotency.records WHERE principal = %s", self.principal)
            if held.total_seconds() < LEASE * 0.9:
                return
            late.append(str(held))
        self.fail(f"told by the lease's end, not by the server: {late}")

    def test_late_holder_changes_nothing(self):
        """It has not heard, and finishes."""
        with self.database.gate() as gate:
            self.server.proxy.trap("idem_extend", "request", "swallow", self.key, times=100)
            order = {"gate": gate.number, "body": self.encoded(b"late")}
            first = self.send_in_background("/leased", order)
            gate.wait_for()
            self.database.run(
                "SELECT idem_resolve(%s, 'complete', scope => 'POST /leased', principal => %s, status_code => 200, body => 'resolved')",
                self.key, self.principal)  # fmt: skip
            before = self.whole_record()
            gate.open()
            self.assert_problem(first.result(), "in_progress")
        self.assertEqual(self.whole_record(), before)
        self.assertEqual(self.send("/leased", order).body, b"resolved")

    def test_late_failure_changes_nothing(self):
        with self.database.gate() as gate:
            self.server.proxy.trap("idem_extend", "request", "swallow", self.key, times=100)
            order = {"gate": gate.number, "throw": True}
            first = self.send_in_background("/leased", order)
            gate.wait_for()
            self.database.run("SELECT idem_resolve(%s, 'release', scope => 'POST /leased', principal => %s, even_if_running => true)", self.key, self.principal)
            before = self.whole_record()
            gate.open()
            self.assert_problem(first.result(), "in_progress")
        self.assertEqual(self.whole_record(), before)

    def whole_record(self):
        return self.database.rows("SELECT r::text FROM idempotency.record AS r WHERE principal = %s", self.principal)

    def test_late_holder_after_a_takeover(self):
        """Its lease has ended, another has executed: nothing of its answer is kept."""
        with self.database.gate() as gate:
            self.server.proxy.trap("idem_extend", "request", "swallow", self.key, times=100)
            order = {"gate": gate.number, "body": self.encoded(b"one"), "effect": "done"}
            first = self.send_in_background("/leased", order)
            gate.wait_for(1)
            wait_until("the lease has ended", lambda: self.database.value(
                "SELECT lease_until < clock_timestamp() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip
            second = self.send_in_background("/leased", order)
            wait_until("the second is at work", lambda: self.record()[1] == 2)
            gate.wait_for(2)
            gate.open()
            self.assert_problem(first.result(), "in_progress")
            self.assert_executed(second.result())
        self.assertEqual(self.record()[:2], ("completed", 2))
        self.assert_effects(1)
        self.assert_replay_of(second.result(), self.send("/leased", order))
