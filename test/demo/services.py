"""The programs under test, two processes of the service over one database and the gateway, and the
injector of test/chaos, which harms them."""

import ctypes
import os
import random
import select
import signal
import subprocess

PORTS = 10  # that are tried
STARTING = 60  # seconds


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def live_with_parent():
    """Ctrl-C is for the parent, who ends it then."""
    os.setpgid(0, 0)
    die_with_parent()


def likely_port():
    """A service that is killed has to find its port free again, so it is not one of those that the
    system gives to outgoing connections (from 32768 on)."""
    return random.randrange(20000, 32000)


class Program:
    def __init__(self, options, name, *arguments):
        self.log = open(options.log, "ab")
        for _ in range(PORTS):
            self.port = likely_port()
            self.url = f"http://127.0.0.1:{self.port}"
            self.command = [f"{options.bin}/{name}", "--listen", f"127.0.0.1:{self.port}",
                            *arguments]
            self.start()
            if self.comes_to_listen():
                return
            self.end()
        self.complain("did not start")

    def start(self):
        self.listens = False
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
            preexec_fn=live_with_parent)

    def comes_to_listen(self):
        """Not where somebody else has the port."""
        if not self.listens:
            ready, _, _ = select.select([self.process.stdout], [], [], STARTING)
            self.listens = ready and b"listening on" in self.process.stdout.readline()
        return self.listens

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def tend(self):
        """Whoever was killed is started again; whoever has ended otherwise is an error."""
        if self.process.poll() is None:
            return
        if self.process.returncode != -signal.SIGKILL:
            self.complain("ended by itself")
        self.process.stdout.close()
        self.start()

    def stop(self):
        """The injector's last strike may still be on its way. Who dies of it has to stop once more."""
        if self.ended_at_a_signal() == -signal.SIGKILL:
            self.tend()
            self.ended_at_a_signal()
        if self.process.returncode != 0:
            self.complain(f"did not stop cleanly, but with {self.process.returncode}")

    def ended_at_a_signal(self):
        if not self.comes_to_listen():  # it knows nothing of SIGTERM before
            self.complain("did not start again")
        self.process.terminate()
        return self.process.wait()

    def complain(self, what):
        raise RuntimeError(f"{self.command[0]} {what}, see {self.log.name}")


class Services:
    def __init__(self, options):
        self.gateway = Program(options, "payments_gateway")
        arguments = ("--database", "", "--gateway", self.gateway.url, "--test-cards")
        self.services = [Program(options, "payments_service", *arguments) for _ in range(2)]
        self.all = [self.gateway, *self.services]

    def tend(self):
        for program in self.all:
            program.tend()

    def stop(self):
        for program in reversed(self.all):
            program.stop()


class Harm:
    """idem_chaos, as long as it is told to."""

    def __init__(self, options):
        self.process = None
        if options.blow_every:
            self.process = subprocess.Popen(
                [options.chaos, "--harm", "payments_service", "--seed", str(options.seed),
                 "--pause", str(options.blow_every)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                preexec_fn=live_with_parent)

    def stop(self):
        """How often each kind of harm was done."""
        if not self.process:
            return {}
        printed, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError("the injector failed")
        pairs = (line.rsplit(": ", 1) for line in printed.splitlines())
        return {kind: int(count) for kind, count in pairs}
