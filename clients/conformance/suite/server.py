"""The programs under test: clients/LANGUAGE/example/start and worker as child processes, each behind a proxy of its own."""

import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

from .http_raw import call
from .ports import free_port
from .proxy import Proxy
from .waiting import PATIENCE

CLIENTS = pathlib.Path(os.environ.get("CLIENTS", pathlib.Path(__file__).resolve().parents[2]))
START_PATIENCE = 300  # the first start may have to build


class Program:
    """clients/LANGUAGE/example/NAME."""

    def __init__(self, language, program, application, database, pooler=None):
        # It must not outlive us, however we end.
        self.command = ["setpriv", "--pdeathsig", "KILL", str(CLIENTS / language / "example" / program)]
        self.proxy = Proxy(pooler)
        self.application = application
        self.database = database
        self.log = tempfile.TemporaryFile()
        self.child = None

    def variables(self):
        """What this kind of program is told besides the database."""
        raise NotImplementedError

    def start(self):
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self):
        environment = {
            **os.environ,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.proxy.port),
            "PGUSER": os.environ.get("PGUSER", "postgres"),
            "PGDATABASE": self.database.name,
            "PGAPPNAME": self.application,
            "PGSSLMODE": "disable",
            **self.variables(),
        }
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
            env=environment, start_new_session=True,
        )

    def wait_until_ready(self):
        deadline = time.monotonic() + START_PATIENCE
        said = b""
        while b"ready\n" not in said:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.child.stdout.fileno(), 4096) if ready else b""
            said += data
            if not data:
                self.kill()
                raise RuntimeError(f"{self.command[-1]} did not say that it is ready, but {said!r}\n{self.logged()}")

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

    def tell_to_stop(self):
        self.child.send_signal(signal.SIGTERM)

    def terminate(self):
        self.tell_to_stop()
        return self.reap()

    def reap(self, patience=PATIENCE):
        try:
            return self.child.wait(patience)
        finally:
            if self.child.poll() is not None:
                self.child.stdout.close()

    def close(self):
        if self.runs():
            self.kill()
        self.proxy.refuse()
        self.log.close()


class Server(Program):
    def __init__(self, language, variant, database, name, pooler=None):
        super().__init__(language, "start", f"{language}-{name}", database, pooler)
        self.more = {"POOLED": "1"} if pooler else {}
        self.variant = variant

    def variables(self):
        return {"PORT": str(self.port), "SERVER": self.variant, **self.more}

    def launch(self):
        self.port = free_port()
        super().launch()

    def ensure(self):
        """Running, with a database that can be reached and no trap set."""
        self.proxy.clear()
        self.proxy.listen()
        if not self.runs():
            self.start()

    def call(self, path, fields=(), body=b"", **named):
        return call(self.port, path, fields, body, **named)


class Worker(Program):
    def __init__(self, language, database, scope, **options):
        super().__init__(language, "worker", f"{language}-{scope}", database)
        self.options = {
            "scope": scope, "size": 1, "lease_ms": 30000, "poll_ms": 50, "channel": "", "mode": "transactional",
            "handler_timeout_ms": 600000, **options,
        }  # fmt: skip

    def variables(self):
        return {f"WORKER_{name.upper()}": str(value) for name, value in self.options.items()}
