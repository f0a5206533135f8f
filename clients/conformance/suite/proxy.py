"""A proxy between a server under test and PostgreSQL that reads along and can do harm at a message.

A trap names a statement by a pattern, and a moment: its `request` on its way to the database, or its
`answer` on the way back. `key` narrows it down to statements that carry it, or, where they carry
nothing, as COMMIT, to those of a transaction whose claim or effect carried it. What it does then:

cut       both sides are closed; nothing of the message goes on
hold      the connection stands still until `release`
linger    an answer waits until the client has sent more: so it has not waited for this answer. One that does gets
          it after LINGER
swallow   nothing goes on any more, for ever, and neither side is told
"""

import os
import re
import selectors
import socket
import struct
import threading

from .ports import free_port

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
LINGER = 1  # seconds
SYNC = None  # where the database will say that it is ready; some drivers ask for more before it has (pgjdbc behind its BEGIN)
CARRIER = re.compile("idem_begin|INSERT INTO effect")  # what tells whose the transaction is


class Trap:
    def __init__(self, statement, moment, action, key=None, times=1):
        self.statement = re.compile(statement, re.I)
        self.moment, self.action, self.left = moment, action, times
        self.key = key.encode() if key else None
        self.reached = threading.Event()
        self.pid = None  # of the backend that it met
        self.released = threading.Event()

    def fits(self, moment, text, link):
        if self.left <= 0 or moment != self.moment or not self.statement.search(text):
            return False
        if self.action == "linger" and any(asked is not SYNC for asked in link.expected):
            return False
        return self.key is None or self.key in link.values or (
            self.key in link.carried and not link.has_values)


class Link:
    """One connection through the proxy, and what has been said on it."""

    def __init__(self, proxy, client):
        self.proxy, self.client = proxy, client
        self.server = socket.socket(socket.AF_UNIX if proxy.host.startswith("/") else socket.AF_INET)
        path = f"{proxy.host}/.s.PGSQL.{proxy.port_of_server}"
        self.server.connect(path if proxy.host.startswith("/") else (proxy.host, int(proxy.port_of_server)))
        self.from_client, self.from_server = b"", b""
        self.started = False
        self.pid = None  # of the backend
        self.statements, self.portals = {}, {}  # names to texts; names to (text, values)
        self.values, self.carried, self.has_values = b"", b"", False
        self.expected = []  # what the database has been asked and not answered: (text, values), and SYNC
        self.waits = []  # a list of statements for each time that the client has waited for the database
        self.waiting = self.flushed = self.in_transaction = False
        self.frozen = None  # the trap that holds, or True: swallowed
        self.held = None  # what sends the message that is held
        self.open = True

    def close(self):
        if self.open:
            self.open = False
            self.proxy.ended.append(self.waits)
            for end in (self.client, self.server):
                self.proxy.forget(end)
                end.close()

    # ---- from the client ----

    def client_says(self, data):
        self.from_client += data
        if isinstance(self.frozen, Trap) and self.frozen.action == "linger":
            self._go_on()
        while self.open and not self.frozen and (message := self._take_request()):
            self._pass_request(message)

    def _take_request(self):
        if not self.started:
            return self._take_start()
        if len(self.from_client) < 5:
            return None
        size = struct.unpack("!I", self.from_client[1:5])[0] + 1
        if len(self.from_client) < size:
            return None
        message, self.from_client = self.from_client[:size], self.from_client[size:]
        return message

    def _take_start(self):
        if len(self.from_client) < 8:
            return None
        size, code = struct.unpack("!II", self.from_client[:8])
        if len(self.from_client) < size:
            return None
        message, self.from_client = self.from_client[:size], self.from_client[size:]
        if code in (SSL, GSS):
            self.client.sendall(b"N")
            return self._take_start()
        self.started = code != CANCEL
        return message

    def _pass_request(self, message):
        text = self._understand(message)
        self._count(message, text)
        if text is not None:
            if trap := self.proxy.trap_for("request", text, self):
                if not self._spring(trap, lambda: self._forward_request(message, text)):
                    return
        self._forward_request(message, text)

    def _count(self, message, text):
        """The client waits for all that it sends before the database has answered."""
        if not self.waiting and message[:1] in (b"Q", b"P", b"B", b"E"):
            self.waiting = True
            self.waits.append([])
        if text is not None:
            self.waits[-1].append(text)
        self.flushed = message[:1] == b"H"

    def _forward_request(self, message, text):
        if text is not None:
            self.expected.append((text, self.values, self.has_values))
        if self.started and message[:1] in (b"Q", b"S"):
            self.expected.append(SYNC)
        self._send(self.server, message)

    def _understand(self, message):
        """The text of the statement that this message runs, if it runs one."""
        text = self._statement_of(message)
        if text is not None and text.upper().startswith(("BEGIN", "START")):
            self.carried = b""  # a pooled connection: the claim of before says nothing about this COMMIT
        elif text is not None and CARRIER.search(text):
            self.carried += self.values
        return text

    def _statement_of(self, message):
        kind, content = message[:1], message[5:]
        if kind == b"Q":
            self.values, self.has_values = content, b"idem_" in content
            return content.rstrip(b"\0").decode(errors="replace")
        if kind == b"P":
            name, text = content.split(b"\0")[:2]
            self.statements[name] = text.decode(errors="replace")
        elif kind == b"B":
            portal, rest = content.split(b"\0", 1)
            name, values = rest.split(b"\0", 1)
            self.portals[portal] = (self.statements.get(name, ""), values)
        elif kind == b"E":
            text, self.values = self.portals.get(content.split(b"\0", 1)[0], ("", b""))
            self.has_values = "$1" in text
            return text
        return None

    # ---- from the server ----

    def server_says(self, data):
        if not self.started:
            self._send(self.client, data)
            return
        self.from_server += data
        while self.open and not self.frozen and len(self.from_server) >= 5:
            size = struct.unpack("!I", self.from_server[1:5])[0] + 1
            if len(self.from_server) < size:
                return
            message, self.from_server = self.from_server[:size], self.from_server[size:]
            self._pass_answer(message)

    def _pass_answer(self, message):
        kind = message[:1]
        if kind in (b"C", b"I", b"E") and self.expected and self.expected[0] is not SYNC:
            text, self.values, self.has_values = self.expected.pop(0)
            while kind == b"E" and self.expected and self.expected[0] is not SYNC:
                self.expected.pop(0)  # the rest up to Sync is not done
            if trap := self.proxy.trap_for("answer", text, self):
                if not self._spring(trap, lambda: self._send(self.client, message)):
                    return
        elif kind == b"K":
            self.pid = struct.unpack("!I", message[5:9])[0]
        elif kind == b"Z":
            self.in_transaction = message[5:] != b"I"
            if SYNC in self.expected:
                del self.expected[: self.expected.index(SYNC) + 1]
        self.waiting = self.waiting and not self.flushed and (kind != b"Z" or SYNC in self.expected)
        self._send(self.client, message)

    # ---- traps ----

    def _spring(self, trap, go_on):
        """False where the message must not go on now."""
        trap.left -= 1
        trap.pid = self.pid
        trap.reached.set()  # first: a connection that is cut is noticed at once
        if trap.action == "cut":
            self.close()
        elif trap.action == "swallow":
            self.frozen = True
        else:
            self.frozen = trap
            self.held = go_on
            if trap.action == "linger":
                end = threading.Timer(LINGER, self._end_of_linger, (go_on,))
                end.daemon = True
                end.start()
        return False

    def _end_of_linger(self, held):
        with self.proxy.lock:
            if self.open and self.held is held:
                self._go_on()

    def thaw(self):
        if self.open and isinstance(self.frozen, Trap) and self.frozen.released.is_set():
            self._go_on()

    def _go_on(self):
        held, self.held, self.frozen = self.held, None, None
        held()
        self.client_says(b"")
        self.server_says(b"")

    def _send(self, end, data):
        try:
            end.setblocking(True)
            end.sendall(data)
        except OSError:
            self.close()


class Proxy:
    """Listens on 127.0.0.1, at a port of its own that stays the same."""

    def __init__(self, port=None):
        """Before the server of PGHOST and PGPORT, or before a pooler that listens on this port of 127.0.0.1."""
        self.host = "127.0.0.1" if port else os.environ["PGHOST"]
        self.port_of_server = port or os.environ.get("PGPORT", "5432")
        self.lock = threading.RLock()
        self.links, self.traps = {}, []
        self.ended = []  # waits of links that are closed: a service may connect for each request
        self.swallowing = False
        self.selector = selectors.DefaultSelector()
        self.wake_out, self.wake_in = socket.socketpair()
        self.selector.register(self.wake_out, selectors.EVENT_READ)
        self.listener = None
        self.port = free_port()
        self.listen()
        threading.Thread(target=self._run, daemon=True).start()

    # ---- for cases ----

    def trap(self, statement, moment, action, key=None, times=1):
        trap = Trap(statement, moment, action, key, times)
        with self.lock:
            self.traps.append(trap)
        return trap

    def release(self, trap):
        """What is held goes on, and the trap does nothing any more."""
        with self.lock:
            trap.left = 0
            trap.released.set()
        self._wake()

    def clear(self):
        for trap in list(self.traps):
            self.release(trap)
        with self.lock:
            self.traps.clear()

    def refuse(self):
        """As if there were no server: connections are closed, and new ones refused."""
        with self.lock:
            if self.listener:
                self.forget(self.listener)
                self.listener.close()
                self.listener = None
            self.cut_all()

    def listen(self):
        with self.lock:
            self.swallowing = False
            if self.listener is None:
                self.listener = socket.socket()
                self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.listener.bind(("127.0.0.1", self.port))
                self.listener.listen(256)
                self.selector.register(self.listener, selectors.EVENT_READ)
        self._wake()

    def swallow(self):
        """Everything is taken, and nothing answered, by connections of before as well."""
        with self.lock:
            self.swallowing = True

    def heal(self):
        """Ends `swallow`; what was swallowed stays so, and its connections are closed."""
        with self.lock:
            self.swallowing = False
            self.cut_all()

    def is_idle(self):
        """Whether no client waits for the database, or is in a transaction."""
        with self.lock:
            return not any(link.waiting or link.in_transaction for link in self.links.values())

    def forget_waits(self):
        with self.lock:
            for link in set(self.links.values()):
                link.waits.clear()
            self.ended.clear()

    def waits(self, statement):
        """Of the connections that have run the statement: what was sent together, in lists."""
        with self.lock:
            found = [*self.ended, *(link.waits for link in set(self.links.values()))]
            return [
                list(wait) for waits in found for wait in waits
                if any(statement in text for texts in waits for text in texts)
            ]  # fmt: skip

    def cut_all(self):
        with self.lock:
            for link in set(self.links.values()):
                link.close()

    # ---- within ----

    def trap_for(self, moment, text, link):
        return next((trap for trap in self.traps if trap.fits(moment, text, link)), None)

    def forget(self, end):
        self.links.pop(end, None)
        try:
            self.selector.unregister(end)
        except (KeyError, ValueError):
            pass

    def _wake(self):
        self.wake_in.send(b"x")

    def _run(self):
        while True:
            for key, _ in self.selector.select():
                with self.lock:
                    self._serve(key.fileobj)

    def _serve(self, end):
        if end is self.wake_out:
            end.recv(4096)
            for link in set(self.links.values()):
                link.thaw()
        elif end is self.listener:
            self._accept()
        elif link := self.links.get(end):
            self._read(link, end)

    def _accept(self):
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            link = Link(self, client)
        except OSError:  # its thread serves all other connections, too
            client.close()
            return
        for end in (client, link.server):
            self.links[end] = link
            self.selector.register(end, selectors.EVENT_READ)

    def _read(self, link, end):
        try:
            data = end.recv(65536)
        except OSError:
            data = b""
        if not data:
            link.close()
        elif self.swallowing or link.frozen is True:
            link.frozen = True
        elif end is link.client:
            link.client_says(data)
        else:
            link.server_says(data)
