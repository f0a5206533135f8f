"""What is replayed, and to whom."""

import json

from .support import Case, needs
from .waiting import unique, wait_until

BYTES = bytes(range(256)) * 3
HEADERS = [
    ["Content-Type", "application/vnd.example; v=1"],
    ["X-One", "1"],
    ["X-Several", "b"],
    ["X-Several", "a, c"],
    ["Link", '</next>; rel="next"'],
]


class Replays(Case):
    def check_replay(self, path):
        order = {"effect": "done", "status": 202, "headers": HEADERS, "body": self.encoded(BYTES)}
        first = self.send(path, order)
        self.assert_executed(first, 202)
        self.assertEqual(first.body, BYTES)
        self.assertEqual(first.all("X-Several"), ["b", "a, c"])
        again = self.send(path, order)
        self.assert_replay_of(first, again)
        self.assertEqual(again.all("X-Several"), ["b", "a, c"])
        self.assert_effects(1)

    def test_transactional(self):
        self.check_replay("/transactional")

    def test_leased(self):
        self.check_replay("/leased")

    def test_streamed(self):
        self.check_replay("/streamed")

    def test_empty_body(self):
        order = {"effect": "done", "status": 201, "headers": [["Location", "/x/1"]]}
        first = self.send("/transactional", order)
        self.assert_executed(first)
        self.assertEqual(first.body, b"")
        self.assert_replay_of(first, self.send("/transactional", order))
        self.assert_effects(1)

    def test_no_content(self):
        order = {"effect": "done", "status": 204}
        first = self.send("/transactional", order)
        again = self.send("/transactional", order)
        self.assert_executed(first, 204)
        self.assert_replay_of(first, again)
        self.assertEqual((first.all("Content-Length"), again.all("Content-Length")), ([], []))

    def test_cookies_of_one_client_are_not_replayed(self):
        order = {"headers": [["Set-Cookie", "session=secret"], ["X-Kept", "1"]]}
        first = self.send("/transactional", order)
        self.assertEqual(first.all("Set-Cookie"), ["session=secret"])
        again = self.send("/transactional", order)
        self.assert_replay_of(first, again)
        self.assertEqual(again.all("Set-Cookie"), [])

    def test_names_of_fields_may_be_odd(self):
        order = {"headers": [["__proto__", "1"], ["constructor", "2"], ["X-Empty", ""]]}
        first = self.send("/transactional", order)
        self.assertEqual(first.all("__proto__"), ["1"])
        self.assert_replay_of(first, self.send("/transactional", order))

    def test_two_tenants_with_one_key(self):
        other = self.principal + "-other"
        self.assert_executed(self.send("/transactional", {"effect": "done"}))
        self.assert_executed(self.send("/transactional", {"effect": "other"}, principal=other))
        self.assertEqual((self.effects(), self.effects(principal=other)), (1, 1))

    def test_two_routes_with_one_key(self):
        self.assert_executed(self.send("/transactional", {"effect": "done"}))
        self.assert_executed(self.send("/streamed", {"effect": "done"}))
        self.assert_effects(2)

    def test_scope_is_method_and_route(self):
        self.send("/transactional?x=1")
        self.assertEqual(self.record()[3], "POST /transactional")

    def test_failed_without_status(self):
        """An operator's `fail` has an answer of its own."""
        self.database.run("SELECT idem_begin(%s, scope => 'POST /leased', principal => %s)", self.key, self.principal)
        self.database.run("SELECT idem_resolve(%s, 'fail', scope => 'POST /leased', principal => %s)", self.key, self.principal)
        answer = self.send("/leased", {"effect": "done"})
        self.assert_problem(answer, "failed")
        self.assertEqual(answer.all("Idempotent-Replayed"), ["true"])
        self.assert_effects(0)

    def test_completed_without_status(self):
        self.database.run("SELECT idem_begin(%s, scope => 'POST /leased', principal => %s)", self.key, self.principal)
        self.database.run(
            "SELECT idem_resolve(%s, 'complete', scope => 'POST /leased', principal => %s, body => 'done')",
            self.key, self.principal)  # fmt: skip
        answer = self.send("/leased", {"effect": "done"})
        self.assert_status(answer, 200)
        self.assertEqual((answer.body, answer.all("Idempotent-Replayed")), (b"done", ["true"]))

    def test_body_omitted_by_the_policy(self):
        order = {"effect": "done", "body": self.encoded(bytes(3000))}
        self.assert_executed(self.send("/pass", order))
        again = self.send("/pass", order)
        self.assert_status(again, 201)
        self.assertEqual((again.all("Idempotent-Body"), again.all("Idempotent-Replayed"), again.body), (["omitted"], ["true"], b""))
        self.assert_effects(1)


class Refusals(Case):
    def craft(self, *statements):
        """Records as others may have left them, in a scope of the server's."""
        for statement in statements:
            self.database.connection.execute(statement, {"k": self.key, "p": self.principal})

    def check(self, word, path="/leased"):
        answer = self.send(path, {"effect": "done"})
        self.assert_problem(answer, word)
        self.assertEqual(answer.all("Idempotent-Replayed"), [])
        self.assert_effects(0)
        return answer

    def test_expired(self):
        self.craft(
            "SELECT idem_begin(%(k)s, scope => 'POST /omit', principal => %(p)s, ttl => '1 ms')",
            "SELECT idem_complete(%(k)s, 200, 'x'::text, scope => 'POST /omit', principal => %(p)s,"
            " token => (SELECT token FROM idempotency.record WHERE key = %(k)s))")  # fmt: skip
        wait_until("it has expired", lambda: self.database.value(
            "SELECT expires_at < clock_timestamp() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip
        self.check("expired", "/omit")

    def test_exhausted(self):
        self.craft(
            "SELECT idem_fail(key, 'x', retryable => true, scope => scope, principal => principal, token => token)"
            " FROM idem_begin(%(k)s, scope => 'POST /small', principal => %(p)s)")  # fmt: skip
        self.check("exhausted", "/small")

    def test_unknown(self):
        self.craft("SELECT idem_begin(%(k)s, scope => 'POST /unprotected', principal => %(p)s, lease => '1 ms')")
        wait_until("its lease has ended", lambda: self.database.value(
            "SELECT lease_until < clock_timestamp() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip
        self.check("unknown", "/unprotected")

    def test_retry_later(self):
        self.craft(
            "SELECT idem_fail(key, 'x', retryable => true, scope => scope, principal => principal, token => token,"
            " retry_after => '90 s') FROM idem_begin(%(k)s, scope => 'POST /leased', principal => %(p)s)")  # fmt: skip
        answer = self.check("retry_later")
        self.assertIn(int(answer.one("Retry-After")), range(1, 91))
        self.assertEqual(answer.json()["retry_after"], int(answer.one("Retry-After")))


class Identity(Case):
    """What is the same request, and what is another one."""

    def check(self, path, first, again, same, types=("application/json", "application/json"), paths=None):
        one, two = paths or (path, path)
        executed = self.send(one, body=first, content_type=types[0])
        self.assertIn(executed.status, (200, 201), executed)
        answer = self.send(two, body=again, content_type=types[1])
        if same:
            self.assert_replay_of(executed, answer)
        else:
            self.assert_problem(answer, "mismatch")
            self.assert_replay_of(executed, self.send(one, body=first, content_type=types[0]))
        self.assert_effects(1)

    def test_other_payload(self):
        self.check("/transactional", b'{"effect": "a"}', b'{"effect": "b"}', False)

    def test_other_payload_leased(self):
        self.check("/leased", b'{"effect": "a"}', b'{"effect": "b"}', False)

    def test_reordered_json(self):
        self.check(
            "/transactional",
            b'{"effect": "a", "status": 201, "x": [1.50, "\xc3\xa4"]}',
            b'\n{ "x":[15e-1,"\\u00e4"],"status":2.01e2,"effect":"a" }',
            True,
        )

    def test_json_by_another_name(self):
        self.check("/transactional", b'{"effect":"a"}', b'{ "effect": "a" }', True,
                   ("application/json", "application/vnd.api+json; charset=utf-8"))  # fmt: skip

    def test_numbers_that_doubles_confuse(self):
        self.check("/transactional", b'{"effect": "a", "n": 9007199254740993}', b'{"effect": "a", "n": 9007199254740992}', False)

    def test_query_string(self):
        self.check(None, b'{"effect": "a"}', b'{"effect": "a"}', False,
                   paths=("/transactional?dry_run=true", "/transactional?dry_run=false"))  # fmt: skip

    def test_query_string_of_the_same_request(self):
        self.check("/transactional?a=%41&b=", b'{"effect": "a"}', b'{"effect": "a"}', True)

    def test_bytes(self):
        self.check("/transactional", b"\x00\xff\x80{", b"\x00\xff\x80{", True, ("application/octet-stream",) * 2)

    def test_other_bytes(self):
        self.check("/transactional", b"\x00\xff\x80{", b"\x00\xff\x81{", False, ("application/octet-stream",) * 2)

    def test_bytes_of_another_type(self):
        self.check("/transactional", b"a=1", b"a=1", False, ("text/plain", "application/octet-stream"))

    def test_text_is_not_json(self):
        """What is not said to be JSON is compared byte by byte."""
        self.check("/transactional", b'{"a": 1}', b'{"a":1}', False, ("text/plain", "text/plain"))

    def test_arrays_and_scalars(self):
        for body in (b"[1, 2]", b'"text"', b"17", b"null", b"true"):
            with self.subTest(body):
                key = self.key + body.hex()
                first = self.send("/transactional", body=body, key=key)
                self.assert_executed(first, 200)
                self.assertEqual(first.body, body)
                self.assert_replay_of(first, self.send("/transactional", body=b" " + body, key=key))


@needs("empty_json")
class EmptyBodies(Case):
    """No body, though the type says JSON, as many libraries send it: it counts as no bytes."""

    def check(self, path, **named):
        first = self.send(path, body=b"", **named)
        self.assert_executed(first, 200)
        self.assertEqual(first.body, b"")
        self.prolong()
        self.assert_replay_of(first, self.send(path, body=b"", **named))
        if named.get("key", True):
            self.assert_problem(self.send(path, body=b"{}", **named), "mismatch")
        self.assert_effects(1)

    def test_transactional(self):
        self.check("/transactional")

    def test_leased(self):
        self.check("/leased")

    def test_derived(self):
        self.check("/derive", key=None)

    def test_without_a_type(self):
        self.check("/transactional", content_type=None)


@needs("multipart")
class Forms(Case):
    """A form counts by its parts; each library makes up another boundary."""

    PARTS = [
        (b'Content-Disposition: form-data; name="amount"', b"100"),
        (b'Content-Disposition: form-data; name="scan"; filename="a.bin"\r\nContent-Type: application/octet-stream', b"\x00\xff\r\n--"),
    ]

    def form(self, boundary, parts):
        body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, *part) for part in parts) + b"--%b--\r\n" % boundary
        return {"body": body, "content_type": f"multipart/form-data; boundary={boundary.decode()}"}

    def check(self, parts, same, path="/transactional"):
        first = self.send(path, **self.form(b"x" * 20, self.PARTS))
        self.assert_executed(first, 200)
        again = self.send(path, **self.form(b"another-boundary", parts))
        if same:
            self.assert_replay_of(first, again)
        else:
            self.assert_problem(again, "mismatch")
        self.assert_effects(1)

    def test_another_boundary(self):
        self.check(self.PARTS, True)

    def test_another_boundary_leased(self):
        self.check(self.PARTS, True, "/leased")

    def test_a_quoted_boundary(self):
        first = self.send("/transactional", **self.form(b"one", self.PARTS))
        form = self.form(b"two words", self.PARTS)
        form["content_type"] = 'Multipart/Form-Data; charset=utf-8; BOUNDARY="two words"'
        self.assert_replay_of(first, self.send("/transactional", **form))

    def test_other_spelling_of_a_part(self):
        (_, amount), scan = self.PARTS
        self.check([(b'content-disposition:form-data ;name=amount', amount), scan], True)

    def test_another_value(self):
        self.check([(self.PARTS[0][0], b"101"), self.PARTS[1]], False)

    def test_another_name(self):
        self.check([(self.PARTS[0][0].replace(b"amount", b"Amount"), b"100"), self.PARTS[1]], False)

    def test_another_file_name(self):
        self.check([self.PARTS[0], (self.PARTS[1][0].replace(b"a.bin", b"b.bin"), self.PARTS[1][1])], False)

    def test_another_type_of_a_file(self):
        self.check([self.PARTS[0], (self.PARTS[1][0].replace(b"octet-stream", b"pdf"), self.PARTS[1][1])], False)

    def test_another_order(self):
        self.check(self.PARTS[::-1], False)

    def test_one_part_less(self):
        self.check(self.PARTS[:1], False)

    def test_malformed(self):
        """It counts byte by byte, as any other body."""
        for body in (b"", b"--one\r\nx", b"--one\r\n\r\n1\r\n--one", b"--two--\r\n"):
            with self.subTest(body):
                self.principal = unique("tenant")
                kind = {"content_type": "multipart/form-data; boundary=one"}
                first = self.send("/transactional", body=body, **kind)
                self.assert_executed(first, 200)
                self.assert_replay_of(first, self.send("/transactional", body=body, **kind))
                self.assert_problem(self.send("/transactional", body=body + b"x", **kind), "mismatch")


class RefusedByJsonb(Case):
    """JSON that jsonb can't hold is compared byte by byte, like anything that is not JSON."""

    BODIES = {
        "an escaped NUL": (b'{"effect": "a", "x": "\\u0000"}', b'{"effect": "a", "x": "\\u0000 "}'),
        "a number beyond numeric": (b'{"effect": "a", "x": 1e200000}', b'{"effect": "a", "x": 1e200001}'),
    }

    def each(self, check):
        for name, bodies in self.BODIES.items():
            with self.subTest(name):
                self.principal = unique("tenant")
                check(*bodies)

    def executed(self, answer):
        self.assertIn(answer.status, (200, 201), answer)
        self.assertEqual(answer.all("Idempotent-Replayed"), [])
        return answer

    def check(self, path):
        def check(body, other):
            first = self.executed(self.send(path, body=body))
            self.assert_replay_of(first, self.send(path, body=body))
            self.assert_problem(self.send(path, body=other), "mismatch")
            self.assert_effects(1)

        self.each(check)

    def test_transactional(self):
        self.check("/transactional")

    def test_leased(self):
        self.check("/leased")

    def test_derived(self):
        def check(body, other):
            first = self.executed(self.send("/derive", body=body, key=None))
            self.assert_replay_of(first, self.send("/derive", body=body, key=None))
            self.executed(self.send("/derive", body=other, key=None))
            self.assert_effects(2)

        self.each(check)

    def test_where_the_policy_names_fields(self):
        """No field can be told from a digest."""

        def check(body, _):
            self.assertIn(self.send("/configured", body=body, header="X-Request-Key").status, (400, 500))
            self.assert_nothing()

        self.each(check)


class BadJson(Case):
    BODIES = {
        "cut off": b'{"effect": "a"',
        "a rest": b'{"effect": "a"} x',
        "a NUL after it": b'{"effect": "a"}\x00',
        "a NUL within": b'{"effect": "a\x00"}',
        "not UTF-8": b'{"effect": "\xff\xfe"}',
        "an overlong form": b'{"effect": "\xc0\xaf"}',
        "a byte order mark": b'\xef\xbb\xbf{"effect": "a"}',
        "half a surrogate pair": b'{"effect": "\\ud800"}',
        "a comma too many": b'{"effect": "a",}',
        "a comment": b'{"effect": "a"} // x',
    }

    def test_is_refused_and_claims_nothing(self):
        for name, body in self.BODIES.items():
            with self.subTest(name):
                self.assert_problem(self.send("/transactional", body=body), status=400)
                self.assert_nothing()

    def test_is_refused_on_a_leased_route(self):
        self.assert_problem(self.send("/leased", body=self.BODIES["cut off"]), status=400)
        self.assert_nothing()

    def test_then_the_key_is_free(self):
        self.assert_problem(self.send("/transactional", body=b"{"), status=400)
        self.assert_executed(self.send("/transactional", {"effect": "done"}))

    def test_too_deep(self):
        self.assert_problem(self.send("/transactional", body=b'{"x":' + b"[" * 1100 + b"]" * 1100 + b"}"), status=413)
        self.assert_problem(self.send("/transactional", body=b'{"x":' + b"[" * 100000 + b"]" * 100000 + b"}"), status=413)
        self.assert_nothing()

    def test_many_elements(self):
        """Parsing takes no more than its share: quadratic time would be minutes here."""
        body = b'{"effect": "a", "x": [' + b"{}," * 250000 + b"0]}"
        first = self.send("/transactional", body=body)
        self.assert_executed(first)
        self.assert_replay_of(first, self.send("/transactional", body=body))
        self.assertEqual(json.loads(body)["effect"], "a")
