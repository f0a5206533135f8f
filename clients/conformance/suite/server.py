"""The server under test: clients/LANGUAGE/example/start as a child process, behind a proxy of its own."""

import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import time

from .http_raw import call
from .proxy import Proxy
from .waiting import PATIENCE

CLIENTS = pathlib.Path(os.environ.get("CLIENTS", pathlib.Path(__file__).resolve().parents[2]))
START_PATIENCE = 300  # the first start may have to build


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, language, variant, database, name, pooler=None):
        # It must not outlive us, however we end.
        self.command = ["setpriv", "--pdeathsig", "KILL", str(CLIENTS / language / "example" / "start")]
        self.proxy = Proxy(pooler)
        self.more = {"POOLED": "1"} if pooler else {}
        self.application = f"{language}-{name}"
        self.variant = variant
        self.database = database
        self.log = tempfile.TemporaryFile()
        self.child = None

    def start(self):
        self.port = free_port()
        environment = {
            **os.environ,
            "PORT": str(self.port),
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.proxy.port),
            "PGUSER": os.environ.get("PGUSER", "postgres"),
            "PGDATABASE": self.database.name,
            "PGAPPNAME": self.application,
            "PGSSLMODE": "disable",
            "SERVER": self.variant,
            **self.more,
        }
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
            env=environment, start_new_session=True,
        )
        deadline = time.monotonic() + START_PATIENCE
        said = b""
        while b"ready\n" not in said:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.child.stdout.fileno(), 4096) if ready else b""
            said += data
            if not data:
                self.kill()
                raise RuntimeError(f"{self.command[-1]} did not say that it is ready, but {said!r}\n{self.logged()}")
        return self

    def logged(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def runs(self):
        return self.child is not None and self.child.poll() is None

    def kill(self):
        """At once, and whatever it has started."""
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.reap()

    def terminate(self):
        self.child.send_signal(signal.SIGTERM)
        return self.reap()

    def reap(self, patience=PATIENCE):
        try:
            return self.child.wait(patience)
        finally:
            if self.child.poll() is not None:
                self.child.stdout.close()

    def ensure(self):
        """Running, with a database that can be reached and no trap set."""
        self.proxy.clear()
        self.proxy.listen()
        if not self.runs():
            self.start()

    def close(self):
        if self.runs():
            self.kill()
        self.proxy.refuse()
        self.log.close()

    def call(self, path, fields=(), body=b"", **named):
        return call(self.port, path, fields, body, **named)
