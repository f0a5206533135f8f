#!/usr/bin/env python3
"""Runs scenarios against the throw-away server that libpq's environment names, prints a table of
each and what was reached. Exit status: 0 if every figure is reached, 1 if not, 2 on errors.
Scenarios, options, and a server to measure are script/bench's business to explain and to bring."""

import argparse
import json
import sys

from beyond_memory import beyond_memory
from cluster import cluster, nodes
from figures import chart_of, draw, print_figures, print_table
from large import large
from long_run import hour
from managed import managed
from many_records import backlog, live_rows, steady_state
from pooler import connections
from server import Server, describe_machine
from single_requests import (encryption, first_execution, hot_key, once, once_each, peers, replay,
                             resources)
from waiters import waiters

SCENARIOS = {scenario.__name__: scenario for scenario in (
    first_execution, once, once_each, replay, encryption, peers, hot_key, resources, live_rows, steady_state, backlog,
    cluster, managed)}
# These take an hour, or much of the disk.
ON_REQUEST = {scenario.__name__: scenario for scenario in (hour, large, beyond_memory, connections, waiters)}

# name: default, with --quick, most
NUMBERS = {"clients": (4, 4, 64), "rounds": (7, 3, 100), "slice": (4, 1, 600), "pairs": (3, 2, 100),
           "seconds": (45, 8, 3600), "ttl": (30, 15, 3600), "rows": (10**6, 200000, 10**8),
           "rate": (200, 200, 10**5), "live": (20 * 10**6, 10**6, 10**9), "minutes": (60, 2, 10**5),
           "records": (None, 10**6, 10**9), "memory": (512, 64, 10**6)}


class Quick(argparse.Action):
    """Short, and still several rounds of each. What comes after it on the command line counts."""

    def __call__(self, parser, options, *_):
        vars(options).update({name: quick for name, (_, quick, _) in NUMBERS.items()})


def number_up_to(most):
    def number(text):
        if not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {most}")
        return int(text)
    return number


def parse():
    parser = argparse.ArgumentParser(add_help=False, usage="see script/bench --help",
                                     allow_abbrev=False)
    parser.add_argument("--quick", action=Quick, nargs=0)
    parser.add_argument("--scenario", action="append", choices={**SCENARIOS, **ON_REQUEST})
    parser.add_argument("--store", default="auto")
    parser.add_argument("--json")
    parser.add_argument("--plots")
    for name, (default, _, most) in NUMBERS.items():
        parser.add_argument(f"--{name}", type=number_up_to(most), default=default)
    return parser.parse_args()


def write_json(file, machine, options, found):
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"machine": machine, "options": vars(options),
                   "scenarios": [{"scenario": findings.scenario, "details": findings.details,
                                  "figures": [figure.as_json() for figure in findings.figures]}
                                 for findings in found]}, out, indent=2)


def main():
    options = parse()
    server = Server()
    server.set("idempotency.store", options.store)
    machine = describe_machine(server.sql)
    found = []
    wanted = set(options.scenario or SCENARIOS) - (set() if nodes() else {"cluster"})
    for name, scenario in {**SCENARIOS, **ON_REQUEST}.items():
        if name in wanted:
            found.append(scenario(server, options))
            print_table(name, found[-1].table)
    figures = [figure for findings in found for figure in findings.figures]
    if figures:
        print_figures(figures)
    if options.json:
        write_json(options.json, machine, options, found)
    if options.plots:
        charts = [chart for findings in found for chart in findings.charts]
        for chart in ([chart_of(figures)] if figures else []) + charts:
            draw(options.plots, chart)
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, OSError) as error:
        sys.exit(print(f"idem_bench: {error}", file=sys.stderr) or 2)
