"""What the demo plays and how it judges: its requests, and its verdict over stories made by hand."""

import collections
import hashlib
import json
import pathlib
import sys
import tempfile
import types
import unittest

from processes import program

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "demo"))

# pylint: disable=wrong-import-position
import traffic
import verdict
from clients import Sending


def fingerprint(lines):
    said = [(line.n, line.tenant, line.field, line.body, line.expect) for line in lines]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


class Requests(unittest.TestCase):
    def test_a_seed_draws_the_same_requests_on_every_machine(self):
        self.assertEqual(
            fingerprint(traffic.requests(20250314)),
            "e1dd24f0ba4246f8456ddfdf613e31be0ea4a0674e76a32207afa56c81644c9a",
        )
        self.assertNotEqual(fingerprint(traffic.requests(1)), fingerprint(traffic.requests(2)))

    def test_no_request_waits_for_a_later_one(self):
        for line in traffic.requests(3):
            for other in (line.after, line.twin):
                self.assertTrue(other is None or other.n < line.n, line.n)

    def test_no_customer_asks_for_the_same_amount_twice(self):
        wanted = collections.defaultdict(set)
        for line in traffic.requests(4):
            if line.expect == 201:
                wanted[line.tenant, line.key].add(line.pays)
        self.assertEqual({len(pays) for pays in wanted.values()}, {1})
        self.assertEqual(len(set().union(*wanted.values())), len(wanted))

    def test_each_kind_occurs(self):
        expected = collections.Counter(line.expect for line in traffic.requests(5))
        self.assertEqual(set(expected), {201, 400, 422})
        self.assertGreater(expected[201], 3000)


class Verdict(unittest.TestCase):
    """One payment of acme's, asked for twice: charged, answered and replayed."""

    def setUp(self):
        self.start = verdict.now() - 10**7
        amount = {"value": "1.00", "currency": "EUR"}
        body = json.dumps({"amount": amount, "customer": "CUS"})
        self.lines = [traffic.Line(0, "acme", "k", body, "payment") for _ in range(3)]
        for n, line in enumerate(self.lines, start=1):
            line.n = n
        self.sendings = [self.sending(1, 1000), self.sending(2, 2000, replayed=True)]
        self.charges = [{"name": "pay_1 acme CUS 1.00 EUR", "tenant": "acme", "key": "k"}]
        self.records = [{"principal": "acme", "key": "k", "status": "completed", "attempt": 1,
                         "status_code": 201, "headers": {"Location": "/1"},
                         "body": '{"id":"pay_1"}'}]

    def sending(self, line, moment, **said):
        usual = {"ending": "answered", "status": 201, "headers": "location: /1\n",
                 "body": '{"id":"pay_1"}'}
        at = self.start + moment
        return Sending(line, invoked=at, returned=at + 500, **{**usual, **said})

    def found(self, checker=None):
        with tempfile.TemporaryDirectory() as folder:
            history = folder + "/history.jsonl"
            verdict.Story(self.lines, self.sendings).write(history, self.charges, self.records)
            options = types.SimpleNamespace(chaos=checker or program("idem_chaos"))
            return verdict.violations(options, history)

    def violated(self):
        """The numbers of the claims that do not hold."""
        found = self.found()
        claims = list(enumerate((invariants for _, invariants in verdict.CLAIMS), start=1))
        return {next(number for number, invariants in claims if invariant in invariants)
                for invariant in found}

    def test_a_sound_story_holds(self):
        self.assertEqual(self.violated(), set())

    def test_the_whole_reason_is_printed(self):
        self.sendings = [self.sending(1, 0, replayed=True), self.sending(2, 1000)]
        reasons = [reason for reasons in self.found().values() for reason in reasons]
        told = next(reason for reason in reasons if "no order explains" in reason)
        self.assertIn('"outcome":"replay"', told)
        self.assertRegex(told, "the key was absent$")

    def test_what_the_checker_cannot_decide_is_no_verdict(self):
        with tempfile.TemporaryDirectory() as folder:
            checker = pathlib.Path(folder, "checker")
            checker.write_text("#!/bin/sh\necho '    undecided: too many orders'\nexit 4\n")
            checker.chmod(0o755)
            self.assertEqual(self.found(checker), {verdict.UNDECIDED: ["too many orders"]})

    def test_answers_that_were_lost_excuse_nothing_that_was_not_asked(self):
        self.sendings.insert(0, self.sending(1, 0, ending="lost", status=0))
        self.assertEqual(self.violated(), set())

    def test_an_execution_with_an_unread_answer_counts(self):
        self.sendings[0].ending = "unheard"
        self.assertEqual(self.violated(), set())
        self.sendings.append(self.sending(3, 3000))
        self.assertIn(1, self.violated())

    def test_a_service_that_lost_its_commit_replays_to_itself(self):
        self.sendings = [self.sending(1, 1000, replayed=True), self.sending(2, 2000, replayed=True)]
        self.assertEqual(self.violated(), set())
        self.charges.append({"name": "pay_2 acme CUS 1.00 EUR", "tenant": "acme", "key": "k"})
        self.assertEqual(self.violated(), {1})

    def test_a_replay_that_came_before_its_execution_is_seen(self):
        self.sendings = [self.sending(1, 0, replayed=True), self.sending(2, 1000)]
        self.assertIn(2, self.violated())

    def test_a_second_charge_is_seen(self):
        self.charges.append({"name": "pay_2 acme CUS 1.00 EUR", "tenant": "acme", "key": "k"})
        self.assertEqual(self.violated(), {1})

    def test_a_missing_charge_is_seen(self):
        self.charges.clear()
        self.assertEqual(self.violated(), {1})

    def test_another_amount_is_seen(self):
        self.charges[0]["name"] = "pay_1 acme CUS 1.01 EUR"
        self.assertEqual(self.violated(), {1})

    def test_a_repeat_without_its_mark_is_seen(self):
        self.sendings[1].replayed = False
        self.assertIn(1, self.violated())

    def test_a_repeat_with_other_bytes_is_seen(self):
        self.sendings[1].body += " "
        self.assertIn(2, self.violated())

    def test_a_repeat_with_another_header_is_seen(self):
        self.sendings[1].headers = "location: /2\n"
        self.assertIn(2, self.violated())

    def test_a_record_with_another_answer_is_seen(self):
        self.records[0]["body"] = '{"id":"pay_2"}'
        self.assertEqual(self.violated(), {3})

    def test_a_missing_record_is_seen(self):
        self.records.clear()
        self.assertEqual(self.violated(), {3})

    def test_a_record_of_an_unknown_key_is_found(self):
        self.records.append({**self.records[0], "key": "stray"})
        self.assertEqual(self.violated(), {3})

    def test_in_progress_without_another_request_is_seen(self):
        self.sendings.append(self.sending(3, 3000, status=409))
        self.assertEqual(self.violated(), {4})

    def test_a_mismatch_of_the_same_payload_is_seen(self):
        self.sendings.append(self.sending(3, 3000, status=422))
        self.assertEqual(self.violated(), {5})
