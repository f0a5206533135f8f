#!/usr/bin/env python3
"""Computations of the benchmark, without a server."""

import re
import tempfile
import unittest
from pathlib import Path

from cluster import WORK, ticks_of
from figures import Curves, Figure, chart_of, draw
from load import Calls, Comparison, Contender, Sample, sample
from many_records import busiest_over_last
from single_requests import FIRST_EXECUTIONS


def rounds(*rates):
    return [Sample(rate, 1, 1) for rate in rates]


class Figures(unittest.TestCase):
    def test_ratios_are_taken_within_rounds(self):
        two = Comparison({"slow": rounds(10, 20, 30), "fast": rounds(20, 25, 120)})
        self.assertEqual(two.ratios("slow", "fast"), [0.5, 0.8, 0.25])
        self.assertEqual(two.figure("", "slow", "fast", 0.5).value, 0.5)

    def test_are_reached_at_the_limit(self):
        self.assertTrue(Figure("", [1, 3, 2], 2).reached)
        self.assertFalse(Figure("", [1, 3, 2], 2.1).reached)
        self.assertTrue(Figure("", [1, 3, 2], 2, at_most=True).reached)
        self.assertFalse(Figure("", [1, 3, 2], 2, at_most=True, largest=True).reached)

    def test_are_drawn_as_the_share_of_what_is_wanted(self):
        chart = chart_of([Figure("", [0.9], 0.6), Figure("", [4], 5, at_most=True)])
        self.assertEqual([round(share, 9) for share in chart.series["measured"]], [1.5, 1.25])

    def test_curves_have_a_line_for_each_moment(self):
        with tempfile.TemporaryDirectory() as folder:
            draw(folder, Curves("size", "Size of it", "MiB", [0, 0.5], {"table": [1, 2], "all": [3, 4]}))
            self.assertEqual(Path(folder, "size.data").read_text(),
                             '"minutes" "table" "all"\n0 1 3\n0.5 2 4\n')
            self.assertIn("Size of it", Path(folder, "size.svg").read_text())


class Logs(unittest.TestCase):
    def test_are_read_as_pgbench_writes_them(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "log.1").write_text("0 1 1500 0 100 250000\n1 1 500 0 101 0\n")
            Path(folder, "log.1.1").write_text("2 1 2000 0 102 0 1200\n")  # with a rate: the lag
            calls = Calls.of_logs(folder)
        self.assertEqual(sorted(calls.ended), [100.25, 101, 102])
        self.assertEqual(calls.millis, [0.5, 1.5, 2])

    def test_quantiles_are_calls_within_which_the_share_ended(self):
        calls = Calls(list(range(100)), list(range(1, 101)))
        self.assertEqual([calls.quantile(share) for share in (0.5, 0.99, 0.999, 0)],
                         [50, 99, 100, 1])

    def test_a_sample_leaves_out_the_warm_up(self):
        found = sample(Calls([0.5, 1.5, 2.5, 3], [9, 1, 2, 3]), 2)
        self.assertEqual((found.per_second, found.p50, found.p99), (1.5, 2, 3))

    def test_fall_into_seconds(self):
        calls = Calls([10.1, 11, 11.5, 12], [1, 2, 3, 4])
        self.assertEqual(calls.of_each_second(10, 12), [[1], [2, 3, 4]])


class Scenarios(unittest.TestCase):
    def test_windows_are_of_the_same_length(self):
        self.assertEqual(busiest_over_last([1, 4, 6, 3, 2, 2], 2), 10 / 4)
        self.assertEqual(busiest_over_last([1, 2, 3, 4], 2), 1)
        self.assertEqual(busiest_over_last([3, 1], 5), 1)

    def test_round_trips_are_counted_in_the_scripts(self):
        self.assertEqual(
            {contender.name: contender.round_trips() for contender in FIRST_EXECUTIONS},
            {"bare transaction": 3, "bare, one statement": 1, "unique key": 3, "keys table": 5,
             "keys table, pipelined": 3, "keys table, one statement": 1, "keys table, three commits": 6, "ours": 5,
             "ours, pipelined": 3, "ours, leased": 5, "idem_once": 4, "idem_execute": 1,
             "ours, one WITH": 1})
        self.assertEqual(
            [Contender(name, script).round_trips() for name, script, _ in WORK],
            [3, 3, 5, 3, 1, 1])

    def test_a_server_has_worked_for_as_long_as_all_its_processes(self):
        def process(parent, *times):
            return ["S", parent, *["7"] * 9, *map(str, times), "7"]
        self.assertEqual(ticks_of("10", {
            "10": process("1", 1, 2, 30, 40), "11": process("10", 500, 600, 9, 9),
            "12": process("11", 9, 9, 9, 9), "13": process("10", 1000, 0, 0, 0)}), 2173)


class Clients(unittest.TestCase):
    """The services that bench/clients measures, and the table of its figures."""

    def test_have_a_row_each(self):
        root = Path(__file__).resolve().parents[1]
        examples = {start.parent for start in root.glob("clients/*/example/start")}
        measured = {f"{example.parent.name}/{name}".rstrip("/")
                    for example in examples if example.parent.name != "dotnet"
                    for name in (Path(example, "servers").read_text().split() if Path(example, "servers").exists() else [""])}
        section = re.search(r"^## Clients\n(.*?)^## ", root.joinpath("docs/performance.md").read_text(), re.M | re.S)[1]
        rows = re.findall(r"^\| ([a-z/]+) \| [\d,]+ \|", section, re.M)
        self.assertEqual(sorted(rows), sorted(measured))


if __name__ == "__main__":
    unittest.main()
