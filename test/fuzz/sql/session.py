"""A connection that sends values as they are, by the protocol, and tells how each call ended."""

import dataclasses

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from values import Binary

GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Crash(Exception):
    """The server has closed a connection."""


@dataclasses.dataclass(frozen=True)
class Answer:
    sqlstate: str  # "" for success
    message: str
    row: dict  # the first one, as bytes


class Session:
    def __init__(self, name, warned, limit):
        self.name = name
        self.connection = psycopg.connect(autocommit=True)
        self.connection.add_notice_handler(warned)
        self.pg = self.connection.pgconn
        self.history = []
        self.milliseconds = limit
        self.limit()

    def run(self, statement, values=(), arguments=()):
        result = self.pg.exec_params(
            statement.encode(),
            [encoded(value) for value in values],
            param_types=[argument.oid for argument in arguments],
            param_formats=[int(isinstance(value, Binary)) for value in values],
        )
        if self.pg.status != ConnStatus.OK:
            raise Crash(self.pg.error_message.decode(errors="replace"))
        if result.status in GOOD:
            return Answer("", "", first_row(result))
        return Answer(
            result.error_field(DiagnosticField.SQLSTATE).decode(),
            result.error_field(DiagnosticField.MESSAGE_PRIMARY).decode(errors="replace"),
            {},
        )

    def call(self, statement, values=(), arguments=()):
        """As run(), and remembers it for whoever asks what led to a failure."""
        self.history = [*self.history[-19:], f"{self.name}: {statement} {brief(values)}"]
        answer = self.run(statement, values, arguments)
        self.history[-1] += f" -> {answer.sqlstate or 'ok'} {answer.message}"
        return answer

    def limit(self):
        """Ends blocked calls; anew whenever something may have taken it away."""
        self.run(f"SET statement_timeout = {self.milliseconds}")

    def failed(self):
        return self.pg.transaction_status == TransactionStatus.INERROR

    def close(self):
        self.connection.close()


def encoded(value):
    return value.encode() if isinstance(value, str) else value


def first_row(result):
    if result.ntuples == 0:
        return {}
    names = (result.fname(column).decode() for column in range(result.nfields))
    return {name: result.get_value(0, column) for column, name in enumerate(names)}


def brief(values):
    """So short that it can be read, and so long that it can be typed again, if possible."""
    shown = (repr(value) for value in values)
    return [text if len(text) <= 80 else f"{text[:60]}...({len(text)})" for text in shown]
