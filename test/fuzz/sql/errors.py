"""The SQLSTATEs in which a call may end."""

import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs/errors.md"

# Errors of the server about a value, before our code sees it.
OF_VALUES = {
    "08P01": "a binary parameter of the wrong size",
    "0A000": "a name that crosses databases",
    "22003": "a number out of range",
    "22007": "no date, no interval",
    "22015": "an interval out of range",
    "22021": "bytes that are not UTF-8",
    "22P02": "no number, no JSON, no array",
    "22P03": "a binary parameter that can't be read",
    "22P05": r"\u0000 in jsonb",
    "42601": "no name of a role or function",
    "42602": "no name of a role or function",
    "42704": "no such role, no such type",
    "42725": "a name of several functions",
    "42883": "no such function",
    "42P02": "no name of a function",
    "54001": "JSON so deep that reading it takes more stack than there is",
    "54000": "a value over the server's own limits",
}

# What comes of moving through transactions at random.
OF_TRANSACTIONS = {
    "25001": "BEGIN in a transaction",
    "25P01": "no transaction to set a savepoint in",
    "25P02": "the transaction has failed before",
    "3B001": "no such savepoint",
    "42710": "that prepared transaction exists",
    "55000": "can't be prepared",
    "0A000": "PREPARE of a transaction with temporary objects",
    "22023": "a setting out of range",
    "42501": "a setting for superusers",
}


def declared():
    """Those of docs/errors.md, without the faults that it asks to report."""
    states = re.findall(r"^\|[^|]+\| (\w{5}) \|", DOCUMENT.read_text(), re.MULTILINE)
    if len(states) < 40:
        raise SystemExit(f"{DOCUMENT} lists only {len(states)} errors: has its form changed?")
    return {state for state in states if not state.startswith("XX")}


def allowed():
    return declared() | set(OF_VALUES) | set(OF_TRANSACTIONS)
