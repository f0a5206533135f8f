"""Servers that don't keep to the rules, on a port of their own: whoever calls them must cope."""

import json
import socket
import threading

from psycopg.conninfo import make_conninfo


def json_answer(status, document):
    """A whole answer; None stands for a body that is no JSON."""
    body = b"{" if document is None else json.dumps(document).encode()
    fields = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
    head = f"HTTP/1.1 {status} X\r\n{fields}\r\n\r\n"
    return head.encode() + body


class Hostile:
    """Reads a request and does what it has been told to do with the connection."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.closed = threading.Event()
        self.answers(b"")
        threading.Thread(target=self.serve, daemon=True).start()

    def answers(self, message):
        self.behave = lambda connection: connection.sendall(message)

    def drips(self, head, pause=0.2):
        """Sends the head, and then one byte after the other for as long as anybody listens."""

        def drip(connection):
            connection.sendall(head)
            while not self.closed.wait(pause):
                connection.sendall(b" ")

        self.behave = drip

    def serve(self):
        while not self.closed.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.handle, args=(connection,), daemon=True).start()

    def handle(self, connection):
        with connection:
            try:
                connection.settimeout(10)
                self.read_request(connection)
                self.behave(connection)
            except OSError:
                pass  # the caller has had enough, which is what some tests wait for

    @staticmethod
    def read_request(connection):
        received = b""
        while b"\r\n\r\n" not in received:
            part = connection.recv(65536)
            if not part:
                return
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        fields = (line.split(b":", 1) for line in head.split(b"\r\n")[1:])
        length = next((int(value) for name, value in fields if name.lower() == b"content-length"), 0)
        while len(body) < length:
            body += connection.recv(65536)

    def close(self):
        self.closed.set()
        self.listener.close()


class SwallowingProxy:
    """Stands before the database, and can take what is sent without passing it on."""

    def __init__(self, database):
        info = database.connection.info
        self.target = (info.host, info.port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.conninfo = make_conninfo(database.conninfo, host="127.0.0.1", port=self.port)
        self.passing = threading.Event()
        self.passing.set()
        self.closed = False
        threading.Thread(target=self.accept, daemon=True).start()

    def swallow(self):
        self.passing.clear()

    def resume(self):
        self.passing.set()

    def connect(self):
        host, port = self.target
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{host}/.s.PGSQL.{port}")
        return connection

    def accept(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = self.connect()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    def pump(self, source, target):
        """What has been swallowed is not passed on later either."""
        try:
            while data := source.recv(65536):
                if self.passing.is_set():
                    target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.closed = True
        self.listener.close()
