"""What the programs of the drivers have in common: they try, they look, and they print what they saw.

One line of JSON: the types in which the columns of idem_begin arrive, and of each try what was written
and what came of it, word for word as docs/drivers/python.md has it.
"""

import json
import os
import pathlib
import sys
from contextlib import closing

COLUMNS = """outcome key scope principal token attempt status status_code headers body body_omitted error
    recovery_point state holder retry_after created_at finished_at lease_until expires_at""".split()
NAMES = "'columns-1', scope => 'columns', principal => 'acme'"
# JSON with a backslash in it; decoding its escape leaves invalid JSON.
PATH = '{"path":"C:\\\\dir"}'


class Driver:
    """`rows(sql)` runs a statement without parameters, in autocommit, and returns dictionaries."""

    def __init__(self, name, version, rows, failures):
        self.name, self.version, self.rows, self.failures = name, version, rows, failures
        self.seen, self.tries = {}, []

    def columns(self):
        begin = f"SELECT * FROM idem_begin({NAMES}, lease => '1 minute', holder => 'me')"

        def ended(function, arguments, token):
            self.rows(f"SELECT {function}('columns-1', {arguments}, scope => 'columns', principal => 'acme', token => {token})")

        token = self.look(begin)["token"]
        self.look(begin)
        ended("idem_checkpoint", "'charged', '{\"charge\": 1}'", token)
        ended("idem_fail", "'no', retryable => true, retry_after => '0'", token)
        token = self.look(begin)["token"]
        ended("idem_complete", "201, '{\"id\": 1}', '{\"X-A\": [\"1\", \"2\"]}'", token)
        self.look(begin)
        assert set(self.seen) == set(COLUMNS), set(COLUMNS) ^ set(self.seen)

    def look(self, sql):
        (row,) = self.rows(sql)
        for name, value in row.items():
            if value is not None:
                self.seen.setdefault(name, type_of(value))
        return row

    def check_pay(self, pay):
        """The code on the page works."""
        first = pay("pay-1", "acme", 100)
        again = pay("pay-1", "acme", 100)
        other = pay("pay-1", "acme", 200)
        assert first[0] == 201 and json.loads(bytes(first[2]))["id"] > 0, first
        assert again[0] == 201 and bytes(again[2]) == bytes(first[2]), again
        assert other[0] == 422 and b"mismatch" in bytes(other[2]), other
        assert [row["amount"] for row in self.rows("SELECT amount FROM payment")] == [100], "not one payment"

    def attempt(self, about, write, work):
        """`work` returns the result, or nothing if it works; or it raises."""
        try:
            gives = work() or "works"
        except Exception as error:
            gives = self.failures(error)
        self.tries.append({"about": about, "write": write, "gives": str(gives)})

    # ---- tries of all drivers, on the connection of `rows` or on one like it ----

    @staticmethod
    def lease(sql):
        """A statement that returns the seconds of this lease."""
        return f"SELECT round(extract(epoch FROM lease_until - created_at))::integer FROM idem_begin('k', lease => {sql})"

    def token(self, extend, write="the token as it came"):
        (claim,) = self.rows("SELECT token FROM idem_begin('token', lease => '1 minute')")
        self.attempt("token", write, lambda: self.holds(extend(claim["token"])))

    @staticmethod
    def holds(extended):
        assert extended is True or extended == "1", extended

    def autocommit(self, write):
        self.rows("SELECT outcome FROM idem_begin('autocommit')")
        try:
            self.rows("SELECT idem_complete('autocommit', 200)")
        except Exception as error:
            code = self.failures(error)
        ((status,),) = [row.values() for row in self.rows("SELECT status FROM idem_get('autocommit')")]
        self.tries.append({"about": "autocommit", "write": write, "gives": f"{code}, and the key stays `{status}`"})

    def keys(self, write, each):
        """`each` is idem_once_each, and its rows as a list."""

        def tried(keys, wanted):
            found = each(keys)
            return None if found == wanted else f"`{found}`"

        self.attempt("keys", write, lambda: tried(["b", "a", "b"], ["b", "a"]))
        self.attempt("keys", "the same, empty", lambda: tried([], []))
        self.attempt("keys", "the same, with a `None` in it", lambda: tried(["b", None], None))

    def error(self, write, call, code):
        def work():
            try:
                call()
            except Exception as error:
                return f"`{code(error)}`"

        self.attempt("error", write, work)

    def prepared(self, call, write="the same statement ten times"):
        """The number of prepared statements in the session whose text contains "ten times"."""
        for _ in range(10):
            call()
        ((count,),) = [row.values() for row in self.rows("SELECT count(*) FROM pg_prepared_statements WHERE position('ten' || ' times' IN statement) > 0")]
        self.tries.append({"about": "prepared", "write": write, "gives": prepared(count)})

    def pooled(self, write, connect):
        """Through a pooler in transaction mode; the other client takes the server connection that was used last."""

        def claim(client, scope):
            claimed = client.claim("key", scope)
            assert claimed == scope, f"{claimed} was claimed for {scope}"

        def work():
            with closing(connect()) as client, closing(connect()) as other:
                for _ in range(10):
                    for one, scope in (client, "mine"), (other, "yours"):
                        one.begin()
                        claim(one, scope)
                        one.commit()
                    other.begin()
                    claim(other, "yours")
                    client.begin()
                    claim(client, "mine")
                    client.commit()
                    other.commit()

        def told():
            try:
                return work()
            except AssertionError as error:
                return f"silently another's statement: {error}"

        self.attempt("pooler", f"behind a pooler in transaction mode{write and ', ' + write}", told)

    def asks(self, rolled_back):
        """begun, completed and lease. `rolled_back` runs statements, each a tuple with its values, answers
        with the last one's value, and rolls back."""

        def begun(sql, *values):
            rolled_back((f"SELECT outcome FROM idem_begin({sql})", *values))

        def completed(sql, *values):
            complete = (f"SELECT idem_complete('k', 200, {sql})", *values)
            return rolled_back(("SELECT idem_begin('k')",), complete, ("SELECT body FROM idem_get('k')",))

        def lease(sql, value):
            return f"{rolled_back((self.lease(sql), value))} seconds"

        return begun, completed, lease

    def print(self):
        driver = f"python/{self.name}"
        columns = {name: self.seen[name] for name in COLUMNS}
        print(json.dumps({"driver": driver, "version": self.version, "columns": columns, "tries": self.tries}))


def type_of(value):
    name = type(value).__name__
    if name == "datetime":
        return f"{'aware' if value.tzinfo else 'naive'} datetime"  # in the words of Python's documentation
    return name


def prepared(count):
    return f"{count} prepared statement{' stays' if count == 1 else 's stay'} in the session"


def failure(error):
    """The SQLSTATE, whatever its attribute; else the error's class."""
    for one in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if code:
            return code
    return f"`{type(error).__name__}`"


def shown(stored):
    """A body that came back: unchanged, or how it differs."""
    stored = bytes(stored)
    return "works" if stored == PATH.encode() else f"the body is `{stored.decode()}`"


def pooler():
    return {"host": "127.0.0.1", "port": int(os.environ["POOLER_PORT"])}


sys.dont_write_bytecode = True  # the source folder may be read-only or another user's
