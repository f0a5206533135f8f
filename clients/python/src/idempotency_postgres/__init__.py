"""Idempotency keys for HTTP routes, functions and messages, kept by PostgreSQL's extension idempotency.

This module needs no driver and no framework; those have modules of their names.
"""

from .claim import Answer, Record, Request
from .database import AsyncDatabase, Database
from .decorators import Refused, exactly_once, idempotent
from .errors import AnswerTooLarge, DatabaseAway, HandlerLate, LeaseLost, NothingHappened, Rejection
from .flows import AsyncLeased, Leased, Result, Settings, Transactional, Verdict, keep_by_default, leased, once, transactionally
from .key import parse_key, quote_key
from .route import Event, Options, claim
from .workers import AsyncWorker, Work, Worker, worker

__version__ = "1.0.0"

__all__ = [
    "Answer", "AnswerTooLarge", "AsyncDatabase", "AsyncLeased", "AsyncWorker", "Database", "DatabaseAway", "Event", "HandlerLate",
    "LeaseLost", "Leased", "NothingHappened", "Options", "Record", "Refused", "Rejection", "Request", "Result", "Settings", "Transactional",
    "Verdict", "Work", "Worker", "claim", "exactly_once", "idempotent", "keep_by_default", "leased", "once", "parse_key", "quote_key",
    "transactionally", "worker",
]  # fmt: skip
