"""A gateway that does not keep to the rules, on a port of its own."""

import json
import socket
import threading


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
        self.server = threading.Thread(target=self.serve, daemon=True)
        self.server.start()

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
        """Not while it is accepted from: the next listener gets the number of this one's descriptor."""
        self.closed.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.server.join()
        self.listener.close()
