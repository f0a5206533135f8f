"""Odd values by type, and plausible ones by the name of an argument.

A value is what is sent: the bytes of its text form, or Binary for the binary form; None is NULL.
"""

DEPTHS = (3, 500, 999, 1000, 1001, 6000, 200_000)
OPERATIONS = ("plain", "answers", "odd", "nothing", "fails", "must_retry", "nested", "many")


class Binary(bytes):
    """Sent in the binary format."""


def texts(rng):
    return rng.choice((
        "", " ", "k", "   ", "a:b\\", "*", "a*", "a*b", "$.a[*].b", "$", "a\nb", "\t", "a\x7f",
        "a\x85b", "\u00a0", "\u200b", "\U0001f511" * 255, "é" * 255, "é" * 256, "k" * 255,
        "k" * 256, "x" * rng.choice((2600, 70_000, 1 << 20)), "%s%n%p", "'; DROP TABLE x; --",
        '"quoted";v=1', '"open', "NULL", "{}", "release", "complete", "fail", "takeover", "unknown",
        "omit", "error", "execute", "missing_key", "Set-Cookie",
        b"\xff\xfe", b"a\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82",
        Binary(b"a\0b"), Binary(b"\xff"), Binary(rng.randbytes(12)),
    ))  # fmt: skip


def documents(rng):
    depth = rng.choice(DEPTHS)
    return rng.choice((
        "null", "{}", "[]", "0", '""', "", "{", "[1,]", '{"a":1,"a":2}', "1e131071", "-1e-16383",
        "1e99999999", "123456789012345678901234567890.5", r'"\u0000"', r'"\ud800"', r'"\udc00\ud800"',
        "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth,
        "[" + ",".join(map(str, range(rng.choice((10, 20_000))))) + "]",
        '"' + "é" * rng.choice((10, 300_000)) + '"', '{"A": "b", "Set-Cookie": ["c", "d"]}',
        '{"A": 1}', '{"A": [1]}', '{"": "x"}', '{"A\\r\\nB": "x"}', '{"A": null}', '{"é": "x"}',
        b'"\xff"', b'{"\xc3": 1}',
    ))  # fmt: skip


def byte_strings(rng):
    size = rng.choice((0, 1, 31, 32, 64, 65, 1000, 1 << 20))
    return rng.choice((Binary(rng.randbytes(size)), "", "\\x", "\\x0", "\\xzz", "\\000", "\\9"))


def intervals(rng):
    return rng.choice((
        "0", "1 us", "-1 us", "1 ms", "10 ms", "1 s", "-1 s", "1 hour", "1 day", "36525 days",
        "36525 days 1 us", "178000000 years", "-178000000 years", "2147483647 days",
        "-2147483648 days", "9223372036854775807 us", "1 mon -31 days", "-1 mon 30 days",
        "178956970 years 7 mons 2147483647 days", "infinity", "", "soon", "1e400 s",
    ))  # fmt: skip


def moments(rng):
    return rng.choice((
        "now", "epoch", "yesterday", "tomorrow", "infinity", "-infinity", "294276-12-31 23:59:59.999999+00",
        "4714-11-24 00:00:00+00 BC", "294277-01-01", "2026-02-30", "1e5", "", "12:00",
    ))  # fmt: skip


def single_bytes(rng):
    return rng.choice((*"icfrxu?", "", "ab", "\u00e9", "\\377", Binary(b"\0"), Binary(b"\xff"), Binary(b"")))


def booleans(rng):
    return rng.choice(("t", "f", "true", "0", "", "maybe"))


def integers(rng):
    return rng.choice((
        "0", "1", "-1", "99", "100", "200", "599", "600", "2147483647", "-2147483648", "2147483648",
        "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "", "NaN",
    ))  # fmt: skip


def lists(rng):
    many = rng.choice((3, 1000, 30_000))
    return rng.choice((
        "{}", "{NULL}", "{a,NULL}", "{a,b}", "{{a,b},{c,d}}", "[5:6]={a,b}", '{""}', '{"a:b","\\\\"}',
        "{$.a,$.a[*].b,ts}", "{$.}", "{" + ",".join(["k"] * many) + "}", "{" + "x" * 300_000 + "}",
        "{Set-Cookie,Date}", '{"a b"}', "{", "", b"{\xff}",
    ))  # fmt: skip


def roles(rng):
    return rng.choice(("fuzz_app", "fuzz_other", "0", "-", "4294967295", "nobody_there", '"', ""))


def relations(rng):
    return rng.choice(("idempotency.record", "idempotency.records", "pg_class", "0", "-", "4294967295", "nothing"))


def operations(rng):
    own = f"fuzz.{rng.choice(OPERATIONS)}(jsonb)"
    return rng.choice((own, own, own, own, "pg_backend_pid()", "jsonb_agg(anyelement)", "0", "-",
                       "4294967295", "no_such(jsonb)", "jsonb_strip_nulls(jsonb)", "("))  # fmt: skip


def claims(rng):
    fields = [rng.choice(("", "", "replay", "retry_later", "1", "{}", "1 s")) for _ in range(20)]
    outcome = rng.choice(("execute", "mismatch", "retry_later", "exhausted", "unknown", "what"))
    plain = ",".join([outcome, *[""] * 14, rng.choice(("", "1 s", "-1 s", "178000000 years")), *[""] * 4])
    return rng.choice((f"({plain})", f"({plain})", f"({','.join(fields)})", "()", "(a", ""))


def snapshots(rng):
    return rng.choice(("3:3:", "10:20:10,14", "1:9223372036854775807:", "20:10:", "0:0:", "1", ""))


BY_TYPE = {
    "text": texts,
    "json": documents,
    "jsonb": documents,
    "bytea": byte_strings,
    "interval": intervals,
    "timestamp with time zone": moments,
    "boolean": booleans,
    "integer": integers,
    "bigint": integers,
    "text[]": lists,
    "regrole": roles,
    "regclass": relations,
    "regprocedure": operations,
    "idem_claim": claims,
    "name": roles,
    '"char"': single_bytes,
    "idempotency.stats_here": claims,
    "idempotency.records": claims,
    "idempotency.audit": claims,
    "integer[]": lists,
    "pg_snapshot": snapshots,
}

# Values with which calls meet: a few keys in a few scopes, short times, sensible answers.
PLAUSIBLE = {
    "key": ("k1", "k2", "k3", "k4"),
    "scope": ("", "", "s/1"),
    "scope_pattern": ("s", "s/*", "*", "fuzz*"),
    "principal": ("", "", "p"),
    "request": ('{"a": 1}', '{"a": 1.0}', '{"a": 2}'),
    "operation": tuple(f"fuzz.{name}(jsonb)" for name in OPERATIONS),
    "fingerprint": (None, None, Binary(b"f")),
    "ttl": (None, "1 hour", "5 ms"),
    "retention": (None, "2 days", "1 hour"),
    "lease": (None, "1 hour", "5 ms", "1 ms"),
    "wait": (None, "0", "3 ms"),
    "retry_after": (None, "0", "1 hour"),
    "retry_base": (None, "0"),
    "retry_cap": (None, "1 s"),
    "max_attempts": (None, "3"),
    "status_code": ("200", "201", "422"),
    "headers": (None, '{"Content-Type": "text/plain"}'),
    "body": (None, '"done"'),
    "action": ("release", "complete", "fail"),
    "retryable": ("t", "f"),
    "hold": ("t", "f"),
    "first_sent": (None, "now", "yesterday"),
    "on_lease_expiry": (None, "takeover", "unknown"),
    "abandon_after": (None, "1 ms", "1 hour"),
    "on_abandon": (None, "fail", "release", "unknown"),
    "on_large_body": (None, "error", "omit"),
    "max_body_bytes": (None, "100", "1000000"),
    "exclude_fields": (None, "{ts}"),
    "fingerprint_fields": (None, "{a}", "{$.a,b}"),
    "fields": (None, "{a}", "{$.a,b}"),
    "exclude": (None, "{ts}"),
    "unset": (None, "{ttl}", "{lease,wait}"),
    "drop_headers": (None, "{Date}"),
    "final_errors": (None, "{P0001,22}"),
    "error_statuses": (None, '{"P0001": 402}'),
    "on_missing_key": (None, "generate", "derive", "derive"),
    "derive_window": (None, "1 hour", "5 ms"),
    "principal_required": (None, "f"),
    "transactional": (None, "f", "f", "t"),
    "transactional_only": (None, None, None, "t"),
    "reason_required": (None, None, "t"),
    "link": (None, "1:" + 64 * "0", "3:" + 64 * "f", "1:0"),
    "max_open_claims": (None, None, None, "1", "100"),
    "retry_jitter": (None, "full", "none"),
    "max_ttl": (None, "1 hour", "3 days"),
    "max_lease": (None, "1 hour", "3 days"),
    "fingerprint_required": (None, "f"),
    "allowed_role": (None, None, None, "fuzz_app"),
    "role": ("fuzz_app", "fuzz_other"),
    "max_rows": ("1", "100"),
    "outcome": ("replay", "in_progress", "mismatch"),
    "attempt": ("1", "5"),
    "base": ("1 s",),
    "cap": ("1 min",),
    "event_type": ("paid",),
    "resource_id": ("in_1",),
    "updated_at": ("now", "epoch"),
    "parts": ("{a,b}",),
    "header": ('"k1"',),
    "method": ("POST",),
    "path": ("/payments",),
    "error": (None, "declined"),
    "holder": (None, "me"),
    "recovery_point": ("charged",),
    "state": (None, '{"at": 1}'),
    "claim": ("(in_progress,,,,,,,,,,,,,,,,,,,)",),
    "operator": (None, "t"),
    "shape": (None,),
    "until": ("now",),
    "token": (None, None, "1"),
    "statement_snapshot": ("3:9223372036854775807:",),
}


class Source:
    """Values for arguments, by one random generator, and the claims that were won lately."""

    def __init__(self, rng):
        self.rng = rng
        self.claims = [{"key": "k1", "scope": "", "principal": "", "token": "1"}] * 4

    def won(self, claim):
        self.claims = [*self.claims[1:], claim]

    def values(self, arguments):
        """Each argument's value; of a call, some or all are odd."""
        oddity = self.rng.choice((0, 0, 0.1, 0.3, 1))
        claim = self.rng.choice((*self.claims, {}, {}))
        return [self.value(argument, oddity, claim) for argument in arguments]

    def value(self, argument, oddity, claim):
        odd = self.rng.random() < oddity
        known = self.rng.choice(PLAUSIBLE.get(argument.name, (None,)))
        unknown = None if self.rng.random() < 0.1 else BY_TYPE[argument.type](self.rng)
        if odd or argument.name not in PLAUSIBLE:
            return unknown
        return claim.get(argument.name, known)
