"""Database failures, independent of the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .claim import Answer


class DatabaseAway(Exception):
    """The database could not be reached, or did not answer in time."""


class DatabaseLate(DatabaseAway):
    """The database did not answer within the whole time."""


class InDoubt(DatabaseAway):
    """COMMIT has no answer, and there is no record that tells its result: a repetition might do the work twice."""


class Unprepared(Exception):
    """A prepared statement was lost, and everything rolled back. From now on the adapter prepares none."""


class LeaseLost(Exception):
    """Another request has the claim now, or may have it: later work is not recorded."""


class NothingHappened(Exception):
    """Raised by the work of a leased claim: nothing has happened, so the next request may try again."""


class HandlerLate(Exception):
    """The work has not ended within `handler_timeout`."""


class Rejection(Exception):
    """Raised by work: it is rolled back, and the answer is that of the request, stored and replayed as any other."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"status {answer.status}")
        self.answer = answer


class AnswerTooLarge(Exception):
    """An answer that cannot be kept."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """SQLAlchemy wraps drivers' exceptions (`orig`); Django has them as the cause."""
    seen: list[BaseException] = []
    todo = [error]
    while todo:
        one = todo.pop(0)
        if any(one is other for other in seen):
            continue
        seen.append(one)
        yield one
        todo += [e for e in (getattr(one, "orig", None), one.__cause__) if isinstance(e, BaseException)]


def sqlstate(error: BaseException) -> str | None:
    for one in _chain(error):
        if not _is_drivers(one):
            continue  # other services have codes of five characters, too
        for name in ("sqlstate", "pgcode"):
            state = getattr(one, name, None)
            if isinstance(state, str) and re.fullmatch("[0-9A-Z]{5}", state):
                return state
    return None


_DRIVERS = {"psycopg", "psycopg_pool", "psycopg2", "asyncpg", "sqlalchemy", "django"}


def _is_drivers(error: BaseException) -> bool:
    return any(kind.__module__.split(".")[0] in _DRIVERS for kind in type(error).__mro__)


_LOST = {"OperationalError", "InterfaceError", "PoolTimeout", "PoolClosed", "InternalClientError"}


def is_connection_lost(error: BaseException, from_handler: bool = False) -> bool:
    """The connection is lost, or none could be made."""
    state = sqlstate(error)
    if state is not None:
        # 25006: a standby, which takes no claim.
        return re.match("08|53|57P", state) is not None or (state == "25006" and not from_handler)
    for one in _chain(error):
        if isinstance(one, DatabaseAway) or getattr(one, "connection_invalidated", False):
            return True
        # A handler's own calls over the network fail with these, too.
        if not from_handler and isinstance(one, (OSError, TimeoutError)) or _is_timeout(one) and not from_handler:
            return True
        for kind in type(one).__mro__:
            if kind.__module__.split(".")[0] in _DRIVERS and kind.__name__ in _LOST and not _is_misuse(one):
                return True
    return False


def _is_timeout(error: BaseException) -> bool:
    # asyncio's was not the builtin one before Python 3.11; SQLAlchemy's comes from its pool
    return type(error).__name__ == "TimeoutError"


def _is_misuse(error: BaseException) -> bool:
    """asyncpg also raises InterfaceError for wrong calls."""
    return type(error).__module__.startswith("asyncpg") and "clos" not in str(error)


def is_transient(error: BaseException, from_handler: bool = False) -> bool:
    """Another run of the transaction may succeed."""
    return is_conflict(error) or is_connection_lost(error, from_handler)


def is_conflict(error: BaseException) -> bool:
    """A serialization failure, or a deadlock."""
    return (sqlstate(error) or "").startswith("40")


def is_mistake(error: BaseException) -> bool:
    """No call like this can succeed: a right, a function, the database or a value is wrong."""
    state = sqlstate(error)
    return re.match("0A|22|28|3D|3F|42", state) is not None if state is not None else not is_connection_lost(error)


def is_refused_by_jsonb(error: BaseException) -> bool:
    """JSON that jsonb cannot hold: an escaped NUL, a number beyond numeric."""
    return sqlstate(error) in ("22P05", "22003")


def is_lost(error: BaseException) -> bool:
    """ID404 and ID409: no claim with this token."""
    return sqlstate(error) in ("ID404", "ID409")
