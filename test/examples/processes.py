"""The programs of the example as child processes.

PAYMENTS_BIN names the folder that they were built in.
"""

import json
import os
import pathlib
import select
import subprocess
import tempfile

from http_call import call
from waiting import PATIENCE

PATIENCE_MS = 1000 * PATIENCE
SHORT_LEASE_MS = 3000  # where a test waits for its end


def program(name):
    folder = os.environ.get("PAYMENTS_BIN")
    if not folder:
        raise RuntimeError("PAYMENTS_BIN does not name the folder of the payments programs")
    for path in (pathlib.Path(folder) / name, *pathlib.Path(folder).rglob(name)):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise RuntimeError(f"no program {name} in {folder}")


class Process:
    """One program that serves HTTP on a port of its own choice."""

    def __init__(self, name, *arguments):
        self.command = [program(name), *arguments]
        self.log = tempfile.TemporaryFile()
        self.start()

    def start(self):
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log
        )
        self.port = int(self.first_line().rsplit(":", 1)[1])

    def first_line(self):
        ready, _, _ = select.select([self.child.stdout], [], [], PATIENCE)
        line = self.child.stdout.readline().decode() if ready else ""
        if not line.startswith("listening on 127.0.0.1:"):
            self.kill()
            raise RuntimeError(f"{self.command}: {line!r} instead of its address\n{self.logged()}")
        return line

    def call(self, method, path, headers=(), body=b"", **named):
        return call(self.port, method, path, headers, body, **named)

    def logged(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def runs(self):
        return self.child.poll() is None

    def kill(self):
        self.child.kill()
        self.reap()

    def reap(self):
        """Waits for its end; answers its exit status."""
        try:
            status = self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            status = self.child.wait()
        self.child.stdout.close()
        return status

    def restart(self):
        if self.runs():
            self.kill()
        self.start()

    def close(self):
        if self.runs():
            self.kill()
        self.log.close()


class Gateway(Process):
    """The external payment provider, which can be told to misbehave."""

    def __init__(self):
        super().__init__("payments_gateway", "--listen", "127.0.0.1:0")
        self.command[2] = f"127.0.0.1:{self.port}"  # also after a restart: the pods know no other

    def control(self, **orders):
        body = json.dumps(orders).encode()
        answer = self.call("POST", "/control", [("Content-Type", "application/json")], body)
        assert answer.status < 300, answer

    def release(self):
        """Answers those who were charged and kept waiting."""
        self.control(release=1)

    def charges(self):
        return self.call("GET", "/charges").json()

    def reset(self):
        self.control()
        self.call("DELETE", "/charges")


class Pod(Process):
    """One of the service's processes."""

    def __init__(self, conninfo, gateway, *arguments, lease=PATIENCE_MS, gateway_timeout=PATIENCE_MS):
        super().__init__(
            "payments_service",
            "--listen",
            "127.0.0.1:0",
            "--database",
            conninfo,
            "--gateway",
            f"http://127.0.0.1:{gateway.port}",
            "--lease",
            str(lease),
            "--gateway-timeout",
            str(gateway_timeout),
            *arguments,
        )

    def send(self, method, path, body=None, *, tenant, key=None, headers=(), **named):
        """A request as a well-behaved client sends it. A body of bytes is sent as it is."""
        fields = [("Authorization", f"Bearer sk_{tenant}"), *headers]
        if key is not None:
            fields.append(("Idempotency-Key", f'"{key}"'))
        if body is None:
            return self.call(method, path, fields, **named)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        if not any(name.lower() == "content-type" for name, _ in fields):
            fields.append(("Content-Type", "application/json"))
        return self.call(method, path, fields, content, **named)

    def pay(self, body, **named):
        return self.send("POST", "/payments", body, **named)
