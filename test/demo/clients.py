"""Client processes: each has one line after the other answered, with the same key on every retry,
over a network with a client's faults in it. Their parent deals the lines and keeps the reports."""

import collections
import dataclasses
import http.client
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import socket
import time

from services import die_with_parent

ATTEMPTS = 400
PATIENCE, IMPATIENCE = 5.0, 0.002  # seconds of silence until a client gives up
PASSING = ("idempotent-replayed", "connection", "keep-alive")  # headers that a repeat need not have
FAULTS = ("unheard", "crashed", "impatient")  # see Sending

PROCESSES = multiprocessing.get_context("fork")


@dataclasses.dataclass
class Sending:
    """A request that was sent, as its client saw it. It ends as

    answered   status, headers and body are known
    unheard    executed; the client hung up before it read the answer
    crashed    executed; the client was killed before it read the answer
    impatient  the client hung up while the service was at work
    lost       the service was killed while the client was waiting
    unreached  the service was not there
    """

    line: int
    invoked: int = 0  # microseconds since 1970
    returned: int = 0
    ending: str = "lost"
    status: int = 0
    replayed: bool = False
    headers: str = ""
    body: str = ""

    @property
    def executed(self):
        return self.status == 201 and not self.replayed

    @property
    def final(self):
        return self.ending == "answered" and self.status != 409 and self.status < 500


def now():
    return time.time_ns() // 1000


class Client:
    """One process. `pipe` brings it lines and takes away what it has sent."""

    def __init__(self, options, ports, number, pipe):
        self.options, self.pipe = options, pipe
        self.ports = collections.deque(ports)
        self.ports.rotate(number)  # each turns to another process of the service first

    def run(self):
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers for all
        try:
            while True:
                self.play(*self.pipe.recv())
        except EOFError:
            pass

    def play(self, line, struck):
        fault = None if struck else planned_fault(self.options, line.n)
        for attempt in range(ATTEMPTS):
            sending = Sending(line.n, invoked=now())
            self.send(line, fault, sending)
            if sending.ending == fault:
                fault = None  # once is enough
            self.pipe.send(sending)
            if sending.final:
                return
            # Full jitter. Retry-After counts seconds, and a payment here takes less.
            time.sleep(random.random() * min(0.005 * 2**min(attempt, 10), 0.1))
            self.ports.rotate(1)
        raise RuntimeError(f"line {line.n} gets no final answer")

    def send(self, line, fault, sending):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=PATIENCE)
        try:
            connection.connect()
        except OSError:
            sending.ending = "unreached"
            return
        try:
            if fault == "impatient":
                connection.sock.settimeout(IMPATIENCE)
            connection.request("POST", "/payments", line.body.encode(), self.headers_of(line))
            self.receive(connection.getresponse(), fault, sending)
        except socket.timeout:
            sending.ending = fault if fault == "impatient" else "lost"
        except (OSError, http.client.HTTPException):
            sending.ending = "lost"
        finally:
            sending.returned = now()
            connection.close()

    def headers_of(self, line):
        headers = {"Authorization": f"Bearer sk_{line.tenant}", "Content-Type": "application/json"}
        if line.field is not None:
            headers["Idempotency-Key"] = line.field.strip(" \t").encode()
        if self.options.sabotage and line.key is not None:
            headers["Idempotency-Key"] = f'"{random.getrandbits(128)}"'
        return headers

    def receive(self, response, fault, sending):
        """The service has committed, for it answers. Only the first answer is worth losing."""
        status, replayed = response.status, response.headers["Idempotent-Replayed"] == "true"
        sending.status, sending.replayed = status, replayed
        if sending.executed and fault in ("unheard", "crashed"):
            sending.ending = fault
            if fault == "crashed":
                sending.returned = now()
                self.pipe.send(sending)
                os.kill(os.getpid(), signal.SIGKILL)
            return
        sending.body = response.read().decode()
        sending.headers = "".join(
            f"{name.lower()}: {value}\n"
            for name, value in response.headers.items()
            if name.lower() not in PASSING
        )
        sending.ending = "answered"


def planned_fault(options, line):
    """The same for the same seed and line, so that a run can be repeated."""
    chance = random.Random(options.seed * 100000 + line)
    if chance.random() * 100 >= options.faults:
        return None
    return FAULTS[int(chance.random() * len(FAULTS))]


class Crew:
    """All clients, seen from their parent."""

    def __init__(self, options, ports, lines):
        self.options, self.ports = options, ports
        self.waiting = collections.deque(lines)
        self.sendings = []
        self.answers = {}  # of each line, by its number: the final one
        self.hands = {}  # what each client is at, by its pipe: its number, process and line
        for number in range(options.workers):
            self.hire(number)

    def hire(self, number, line=None):
        pipe, theirs = PROCESSES.Pipe()
        client = Client(self.options, self.ports, number, theirs)
        process = PROCESSES.Process(target=client.run, daemon=True)
        process.start()
        theirs.close()
        self.hands[pipe] = [number, process, None]
        if line:
            self.deal(pipe, line, struck=True)

    def deal(self, pipe, line, struck=False):
        self.hands[pipe][2] = line
        pipe.send((line, struck))

    def tend(self, seconds):
        """One round of at most this long. False when every line is answered."""
        self.deal_all()
        for pipe in multiprocessing.connection.wait(list(self.hands), seconds):
            self.hear(pipe)
        return bool(self.waiting) or any(line for _, _, line in self.hands.values())

    def deal_all(self):
        """The two clicks of a double click leave together, as soon as two clients are free."""
        idle = [pipe for pipe, (_, _, line) in self.hands.items() if line is None]
        while idle:
            lines = self.next_lines()
            if not lines or len(idle) < min(len(lines), len(self.hands)):
                return
            for line in lines[:len(idle)]:
                self.waiting.remove(line)
                self.deal(idle.pop(), line)

    def next_lines(self):
        """The first that may be sent, and the twin that comes after it, if there is one."""
        for line in self.waiting:
            if line.after is None or line.after.n in self.answers:
                return [line, *(other for other in self.waiting if other.twin is line)]
        return []

    def hear(self, pipe):
        try:
            sending = pipe.recv()
        except EOFError:
            self.replace(pipe)
            return
        self.sendings.append(sending)
        if sending.final:
            self.answers[sending.line] = sending
            self.hands[pipe][2] = None

    def replace(self, pipe):
        """One that was killed has a successor, which goes on with the line."""
        number, process, line = self.hands.pop(pipe)
        pipe.close()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"client {number} failed")
        self.hire(number, line)

    def dismiss(self):
        for _, process, _ in self.hands.values():
            process.terminate()
            process.join()
