"""Statements in one message, for psycopg: by its libpq, for its cursors wait once for each.

They are prepared as psycopg prepares those of its cursors: by its manager, and not where `prepare_threshold` is None.
Where sessions lose them, or a pooler hands out other sessions, the adapter prepares none any more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from psycopg import OperationalError, Pipeline, generators
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName, error_from_result
from psycopg.pq import Escaping, ExecStatus, Format, PipelineStatus

from .database import Rows, Statement
from .errors import Unprepared

BOOLEAN, BYTEA = 16, 17  # the types' oids
FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED, ExecStatus.BAD_RESPONSE)


class _Query(NamedTuple):
    """What psycopg's manager knows a statement by."""

    query: bytes
    types: tuple[int, ...]


class Preparing:
    """Of one adapter."""

    on = True


class Results(NamedTuple):
    rows: Rows
    """Of the last statement that has some."""
    tag: str
    """Of the last statement."""


def together(connection: Any, preparing: Preparing, *statements: Statement) -> Generator[Any, Any, Results]:
    """For `connection.wait`. None of them is run after one that has failed."""
    pgconn = connection.pgconn
    if pgconn.pipeline_status != PipelineStatus.OFF:
        pgconn.finish()  # which rolls back
        raise RuntimeError("idempotency: a pipeline of the handler is still open")
    answers: list[Any] = []
    if Pipeline.is_supported():
        answers = yield from _pipelined(connection, preparing, statements)
    else:
        for statement in statements:
            _send(connection, statement, False)
            answers += yield from generators.execute(pgconn)
            _check(connection, answers[-1:])
    rows = next((_rows(connection, one) for one in reversed(answers) if one.status == ExecStatus.TUPLES_OK), ())
    return Results(rows, (answers[-1].command_status or b"").decode())


def _pipelined(connection: Any, preparing: Preparing, statements: Sequence[Statement]) -> Generator[Any, Any, list[Any]]:
    pgconn, prepared = connection.pgconn, connection._prepared
    yield from prepared.maintain_gen(connection)  # what psycopg would do before its next statement
    prepares = preparing.on
    pgconn.enter_pipeline_mode()
    try:
        new = [query for statement in statements if (query := _send(connection, statement, prepares))]
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        answers = yield from _answers(pgconn)
        pgconn.exit_pipeline_mode()
    finally:
        if pgconn.pipeline_status != PipelineStatus.OFF:
            pgconn.finish()  # nothing else could be sent
    try:
        _check(connection, answers)
    except Exception as error:
        for query in new:
            prepared._names.pop(query, None)
        if prepares and isinstance(error, (InvalidSqlStatementName, DuplicatePreparedStatement)):
            preparing.on = False
            raise Unprepared("a prepared statement is lost") from error
        raise
    return answers


def _send(connection: Any, statement: Statement, prepares: bool) -> _Query | None:
    """The statement, if this prepares it."""
    pgconn, prepared = connection.pgconn, connection._prepared
    encoding = connection.info.encoding
    query = _Query(statement[0].encode(), (0,) * len(statement[1]))
    values = [one.encode(encoding) if isinstance(one, str) else one for one in statement[1]]
    formats = [Format.BINARY if isinstance(one, bytes) else Format.TEXT for one in statement[1]]
    how, name = prepared.get(query) if prepares else (None, b"")
    new = bool(name) and query not in prepared._names
    if new:
        pgconn.send_prepare(name, query.query)
    if name:
        pgconn.send_query_prepared(name, values, formats)
    else:
        pgconn.send_query_params(query.query, values, None, formats)
    if prepares:
        prepared.maybe_add_to_cache(query, how, name)
    return query if new else None


def _answers(pgconn: Any) -> Generator[Any, Any, list[Any]]:
    """Each statement's result is followed by None, all of them by that of the Sync."""
    answers: list[Any] = []
    ended = False
    while True:
        one = yield from generators.fetch(pgconn)
        if one is None:
            if ended:
                raise OperationalError("the connection is lost")
        elif one.status == ExecStatus.PIPELINE_SYNC:
            return answers
        else:
            answers.append(one)
        ended = one is None


def _check(connection: Any, answers: Sequence[Any]) -> None:
    for one in answers:
        if one.status in FAILED:
            raise error_from_result(one, connection.info.encoding)


# ---- rows ----

def _rows(connection: Any, answer: Any) -> Rows:
    """All but booleans and bytes as text, whatever types the application has loaders for."""
    encoding = connection.info.encoding

    def text(value: bytes) -> str:
        return value.decode(encoding)

    readers: dict[int, Callable[[bytes], Any]] = {BOOLEAN: b"t".__eq__, BYTEA: Escaping().unescape_bytea}
    columns = [(answer.fname(at).decode(), readers.get(answer.ftype(at), text)) for at in range(answer.nfields)]
    return [
        {name: None if (value := answer.get_value(row, at)) is None else read(value) for at, (name, read) in enumerate(columns)}
        for row in range(answer.ntuples)
    ]
