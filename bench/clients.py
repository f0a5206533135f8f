#!/usr/bin/python3
"""Measures the clients: the same route with and without protection. Called by bench/clients.

usage: clients.py [--seconds S] [--rounds N] [--connections N] [LANGUAGE[/SERVER]...]

Each service is that of the conformance suite, with BENCH=1: no hooks, and a route /bare that does the
same work in a transaction of its own, without the client. Four contenders take turns in each round:

  bare     no protection
  first    each key once
  replay   the keys of the round's `first` again
  leased   each key once; the route has a lease and one step

Every figure is the median of the rounds. Processor time is that of the service's processes and that of
the server's backends, for one request.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "clients/conformance"))

from suite.database import Database
from suite.server import CLIENTS, Server

TICK = os.sysconf("SC_CLK_TCK")
LANGUAGES = ("go", "rust", "java", "cpp", "node", "python", "ruby", "php")
PATHS = {"bare": "/bare", "first": "/transactional", "replay": "/transactional", "leased": "/leased"}
# Requests a second against the bare route, and the service's processor time.
GOALS = {"go": 0.75, "rust": 0.75, "java": 0.75, "cpp": 0.75, "node": 0.6, "python": 0.6, "ruby": 0.6, "php": 0.6}
MOST_CPU = 1.6


def say(line):
    print(f"        {line}", file=sys.stderr, flush=True)


def processes():
    """By process id: parent, group, command, and the processor time so far, in seconds."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        # utime, stime, and those of children that were waited for
        found[int(stat.parent.name)] = (int(fields[1]), int(fields[2]), name, sum(map(int, fields[11:15])) / TICK)
    return found


def processor_time(service, postmaster):
    """Of the service's process group, and of the server. What a backend that has ended used is the postmaster's."""
    found = processes()
    return (sum(seconds for _, group, _, seconds in found.values() if group == service),
            sum(seconds for pid, (parent, _, _, seconds) in found.items() if postmaster in (pid, parent)))


class Straight:
    """In the place of the suite's proxy: the service reaches the database itself."""

    port = os.environ.get("PGPORT", "5432")

    def refuse(self):
        pass


class Bench:
    def __init__(self, options):
        self.options = options
        self.loader = os.environ["IDEM_LOAD"]

    def load(self, server, contender, prefix, keys, seconds=None):
        command = [self.loader, str(server.port), PATHS[contender], str(self.options.connections),
                   str(seconds or self.options.seconds), prefix, str(keys)]
        owners = server.child.pid, self.postmaster(server)
        before = processor_time(*owners)
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        after = processor_time(*owners)
        if result["failed"] or not result["requests"]:
            raise RuntimeError(f"{contender}: {result['failed']} requests failed\n{server.logged()[-2000:]}")
        count = result["requests"]
        return {"rate": count / result["seconds"], "p99": result["p99"], "requests": count,
                "service_us": (after[0] - before[0]) * 1e6 / count,
                "server_us": (after[1] - before[1]) * 1e6 / count}

    def postmaster(self, server):
        backend = server.database.value("SELECT pg_backend_pid()")
        return processes()[backend][0]

    def round(self, server, number):
        prefix = f"{number}-{os.getpid()}"
        rows = {"bare": self.load(server, "bare", prefix, "none"),
                "first": self.load(server, "first", f"{prefix}-first", "new")}
        rows["replay"] = self.load(server, "replay", f"{prefix}-first", rows["first"]["requests"] // 2)
        rows["leased"] = self.load(server, "leased", f"{prefix}-leased", "new")
        return rows

    def measure(self, language, variant):
        database = Database()
        server = Server(language, variant, database, "bench")
        server.proxy.refuse()
        server.proxy = Straight()
        os.environ["BENCH"] = "1"
        try:
            server.start()
            ways = server.call("/ways", method="GET")
            waits = ways.json().get("waits", {}) if ways.status == 200 else {}
            for contender, keys in (("bare", "none"), ("first", "new"), ("leased", "new")):
                self.load(server, contender, f"warm-{contender}", keys, 4)
            rounds = [self.round(server, number) for number in range(self.options.rounds)]
            rows = {name: {figure: median(each[name][figure] for each in rounds) for figure in rounds[0][name]}
                    for name in PATHS}
            return rows, ", ".join(str(waits.get(name, "?")) for name in ("execute", "replay", "leased"))
        finally:
            server.close()


def table(results):
    yield "| service | bare, requests/s | first | replay | leased | p99 of first, ms (bare) | service CPU, us (bare) | server CPU, us (bare) | waits: first, replay, leased |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, (rows, waits) in results.items():
        bare, first = rows["bare"], rows["first"]
        ratio = {each: rows[each]["rate"] / bare["rate"] for each in rows}
        yield (f"| {name} | {bare['rate']:,.0f} | {ratio['first']:.2f} | {ratio['replay']:.2f} | {ratio['leased']:.2f} "
               f"| {first['p99']:.1f} ({bare['p99']:.1f}) | {first['service_us']:.0f} ({bare['service_us']:.0f}) "
               f"| {first['server_us']:.0f} ({bare['server_us']:.0f}) | {waits} |")


def verdicts(results):
    for name, (rows, _) in results.items():
        goal = GOALS[name.split("/")[0]]
        ratio = rows["first"]["rate"] / rows["bare"]["rate"]
        cpu = rows["first"]["service_us"] / rows["bare"]["service_us"]
        yield f"{name}: first {ratio:.2f} of bare (goal {goal}), processor time {cpu:.2f} times (goal {MOST_CPU})"


def variants(language):
    listed = CLIENTS / language / "example" / "servers"
    return listed.read_text().split() if listed.exists() else [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("services", nargs="*", default=LANGUAGES)
    options = parser.parse_args()
    bench, results = Bench(options), {}
    for service in options.services:
        language, _, variant = service.partition("/")
        for each in [variant] if variant else variants(language):
            name = f"{language}/{each}" if each else language
            say(f"{name}: {options.rounds} rounds of {options.seconds:g} s for each of {', '.join(PATHS)}")
            results[name] = bench.measure(language, each)
    print(*table(results), "", *verdicts(results), sep="\n")


if __name__ == "__main__":
    main()
