"""Ports of 127.0.0.1 for the servers that tests start. As a program, it prints one."""

import contextlib
import random
import socket


def free_port():
    """None that the kernel may give to a connection before the server listens, or while it is away: those begin at 32768."""
    while True:
        port = random.randrange(10240, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


if __name__ == "__main__":
    print(free_port())
