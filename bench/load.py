"""Load by pgbench, or by idem_peers where Redis takes part; contenders in turns; what came of it,
from the log of every transaction that both write."""

import math
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from figures import Figure
from server import say

SCRIPTS = Path(__file__).with_name("scripts")
BODY = "x" * 200
KNOWN_RECORDS = 10000
WARM_UP = 1  # seconds: preparing, and filling the caches of new sessions


@dataclass(frozen=True)
class Contender:
    name: str
    script: str  # a file of scripts/, or a work of idem_peers
    # The table whose count a transaction raises by one if the answer is right; '': the client
    # checks itself.
    counted: str = ""
    by_peers: bool = False
    redis: str = "REDIS_SOCKET"  # which variable of the environment has its address
    database: str = ""
    host: str = ""  # '': that of libpq's environment
    tenant: str = ""
    records: int = KNOWN_RECORDS  # requested once more: those numbered 1 to this
    defines: tuple = ()  # further variables of the script, NAME=VALUE

    def round_trips(self):
        """A statement outside of pipelines, or a pipeline."""
        trips, in_pipeline = 0, False
        for line in (SCRIPTS / f"{self.script}.sql").read_text().splitlines():
            in_pipeline = in_pipeline and line != "\\endpipeline" or line == "\\startpipeline"
            ends = line.endswith(";") or line.endswith("\\gset")
            trips += (ends and not in_pipeline) or line == "\\endpipeline"
        return trips


class Calls:
    """Transactions: when each ended, in seconds of the epoch, and how long it took, in
    milliseconds. With a rate that counts from the moment it was due, so that a call that a slow one
    held up counts as slow, too."""

    def __init__(self, ended, millis):
        self.ended, self.millis = ended, sorted(millis)
        self.pairs = list(zip(ended, millis))

    @classmethod
    def of_logs(cls, folder):
        ended, millis = [], []
        for file in Path(folder).iterdir():
            for line in file.read_text().splitlines():
                _, _, micros, _, seconds, fraction, *_ = line.split()
                ended.append(int(seconds) + int(fraction) / 1e6)
                millis.append(int(micros) / 1e3)
        return cls(ended, millis)

    def __len__(self):
        return len(self.ended)

    def between(self, start, end):
        chosen = [pair for pair in self.pairs if start < pair[0] <= end]
        return Calls([ended for ended, _ in chosen], [millis for _, millis in chosen])

    def quantile(self, share):
        return self.millis[max(math.ceil(share * len(self.millis)), 1) - 1]

    def of_each_second(self, start, end):
        seconds = [[] for _ in range(round(end - start))]
        for ended, millis in self.pairs:
            if start < ended <= end:
                seconds[min(int(ended - start), len(seconds) - 1)].append(millis)
        return seconds


class Load:
    """Clients at work, from its making until `ended` or `stop`. The session is to their database.
    Options are pgbench's own."""

    def __init__(self, contender, sql, clients, durable=True, threads=None, **options):
        self.contender, self.sql, self.counted = contender, sql, count(contender, sql)
        self.logs = tempfile.mkdtemp(prefix="idem_bench.")
        self.clients = clients
        environment = dict(os.environ)
        if contender.database:
            environment["PGDATABASE"] = contender.database
        if contender.host:
            environment["PGHOST"] = contender.host
        if not durable:
            environment["PGOPTIONS"] = "-c synchronous_commit=off"
        prefix = f"{self.logs}/log"
        if contender.by_peers:
            environment["REDIS_ADDRESS"] = os.environ[contender.redis]
            command = [os.environ["IDEM_PEERS"], contender.script, str(clients),
                       str(options["time"]), prefix]
        else:
            command = ["pgbench", "--no-vacuum", "--protocol=prepared", "--log",
                       f"--log-prefix={prefix}", f"--file={SCRIPTS / contender.script}.sql",
                       f"--client={clients}", f"--jobs={threads or clients}",
                       f"--define=body={BODY}"]
            command += [f"--define=tenant={contender.tenant}"] if contender.tenant else []
            command += [f"--define={one}" for one in (f"records={contender.records}", *contender.defines)]
            command += [f"--{name}={value}" for name, value in options.items()]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self):
        """Waits for it. A client that was refused anything ends the run."""
        _, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(errors)
        return self._calls()

    def stop(self):
        """pgbench has no other way to end early and still write all of its log."""
        stopped = self.sql.number("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                             " WHERE application_name = 'pgbench'")
        _, errors = self.process.communicate()
        if stopped != self.clients:
            raise RuntimeError(errors)
        return self._calls(under_way=self.clients)

    def _calls(self, under_way=0):
        """What was under way when it was stopped may have been counted."""
        calls = Calls.of_logs(self.logs)
        shutil.rmtree(self.logs)
        counted = count(self.contender, self.sql) - self.counted
        if self.contender.counted and not 0 <= counted - len(calls) <= under_way:
            raise RuntimeError(
                f"{self.contender.name}: {len(calls)} transactions, and {counted:.0f} were as they"
                f" should be, by {self.contender.counted}")
        return calls


def count(contender, sql):
    return sql.number(contender.counted or "SELECT 0")


@dataclass
class Sample:
    per_second: float
    p50: float
    p99: float


def sample(calls, seconds):
    """Of the last seconds."""
    end = max(calls.ended)
    last = calls.between(end - seconds, end)
    return Sample(len(last) / seconds, last.quantile(0.5), last.quantile(0.99))


@dataclass
class Course:
    name: str
    clients: int
    rounds: int
    seconds: int  # that each contender is measured in each round
    prepare: object  # before each contender's turn, so that all begin alike
    finish: object = lambda contender: None
    sql_of: object = None  # a session in the database of a contender
    durable: bool = True
    options: dict = field(default_factory=dict)  # pgbench's own, besides those that Load knows


class Comparison:
    """What contenders came to, each with a sample for each round. Ratios are taken within the
    rounds, for the machine's mood changes slower than a round takes."""

    def __init__(self, samples):
        self.samples = samples

    def median(self, name, what):
        return median(getattr(sample, what) for sample in self.samples[name])

    def ratios(self, name, against):
        return [ours.per_second / theirs.per_second
                for ours, theirs in zip(self.samples[name], self.samples[against])]

    def figure(self, what, name, against, at_least):
        return Figure(f"{what}: {name} / {against}", self.ratios(name, against), at_least)

    def throughputs(self):
        return [self.median(name, "per_second") for name in self.samples]

    def row(self, name, against):
        return [f"{self.median(name, 'per_second'):.0f}", f"{self.median(name, 'p50'):.3f}",
                f"{self.median(name, 'p99'):.3f}", f"{median(self.ratios(name, against)):.2f}"]

    def table(self, against, beside=None):
        """A row for each contender; with the other comparison's columns beside ours."""
        columns = ["per second", "p50 ms", "p99 ms", f"of {against}"]
        table = [["contender", *columns]]
        table += [[name, *self.row(name, against)] for name in self.samples]
        if beside:
            table[0] += [f"async {column}" for column in columns]
            for line in table[1:]:
                line += beside.row(line[0], against)
        return table

    def details(self):
        return {name: [vars(sample) for sample in samples]
                for name, samples in self.samples.items()}


def take_turn(contender, course):
    course.prepare(contender)
    calls = Load(contender, course.sql_of(contender), course.clients, course.durable,
                 time=WARM_UP + course.seconds, **course.options).ended()
    course.finish(contender)
    return sample(calls, course.seconds)


def side_by_side(contenders, course):
    """Contenders in turn: first to last, then last to first, and so on."""
    samples = {contender.name: [] for contender in contenders}
    for number in range(course.rounds):
        say(f"{course.name}: round {number + 1} of {course.rounds}")
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            samples[contender.name].append(take_turn(contender, course))
    return Comparison(samples)
