"""The key's field, raw."""

from .http_raw import Connection, head
from .support import Case
from .waiting import unique, wait_until


class Keys(Case):
    def raw(self, lines, path="/transactional", body=b'{"effect":"done"}'):
        """With these lines as they are in the place of the key's field."""
        fields = [*self.fields(key=None), *lines, ("Connection", "close"), ("Content-Length", len(body))]
        with Connection(self.server.port) as connection:
            connection.send(head(path, fields) + body)
            return connection.answer()

    def refused(self, lines, path="/transactional"):
        answer = self.raw(lines, path)
        self.assert_status(answer, 400)
        self.assert_nothing()
        return answer

    def field(self, value):
        return b"Idempotency-Key:" + (value if isinstance(value, bytes) else value.encode("latin-1"))

    def test_as_the_server_reads_them(self):
        name = self.key
        for value in (
            f' "{name}"', f"{name}", f' \t "{name}" \t ', f'"{name}";v=1', f'"{name}"; a; b="x;y\\"\\\\"',
            f'"{name} with spaces "', f'"{name},with;both=1"', f'"{name}\\"quoted\\"\\\\"', f"{name}~!#$%&'()*+-./:<=>?@[]^_`{{|}}",
            f'"{name}";a=1.5;b=tok*;c=:aGk=:;d=?1;e=@17;f=%"f%c3%bc"', f"%22{name}%22", f'"{name}";*x=1',
            # and those that are none
            f'"{name}', f'{name}"', f'"{name}" x', f'"{name}";', f'"{name}";A=1', f'"{name}" ;a', f'"{name}";a= 1',
            f'"{name}";a=(1)', f'"{name}";a=1.2345', f'"{name}";a=1234567890123456', f'"{name}\\n"', f"{name};a=1", f"{name}\\",
            f"{name} x", f'"{name}", "x"', f'"{name}";a=:a=k:', f'"{name}";a=%"%C3"', f'"{name}";a=?2', f'"{name}";a=@1.5',
            f'"{name}";1=a', f'"{name}";a="', '""', '"   "', '"\t"', f"'{name}', x",
        ):  # fmt: skip
            with self.subTest(value):
                principal = unique("tenant")
                key = self.database.value("SELECT idem_parse_key(%s)", value)
                fields = [*self.fields(key=None, principal=principal), self.field(value)]
                body = b'{"effect":"done"}'
                with Connection(self.server.port) as connection:
                    connection.send(head("/transactional", [*fields, ("Connection", "close"), ("Content-Length", len(body))]) + body)
                    answer = connection.answer()
                self.assert_status(answer, 400 if key is None else 201)
                record = self.database.record(principal)
                self.assertEqual(record and record[4], key)

    def test_missing(self):
        answer = self.send("/transactional", {"effect": "done"}, key=None)
        self.assert_problem(answer, "missing_key")
        self.assert_nothing()

    def test_missing_on_a_leased_route(self):
        self.assert_problem(self.send("/leased", {"effect": "done"}, key=None), "missing_key")
        self.assert_nothing()

    def test_passed(self):
        for _ in range(2):
            self.assert_executed(self.send("/pass", {"effect": "done"}, key=None))
        self.assert_effects(2)
        self.assertIsNone(self.record())

    def test_passed_but_given(self):
        first = self.send("/pass", {"effect": "done"})
        self.assert_replay_of(first, self.send("/pass", {"effect": "done"}))
        self.assert_effects(1)

    def test_generated(self):
        first = self.send("/generate", {"effect": "done"}, key=None)
        self.assert_executed(first)
        quoted = first.one("Idempotency-Key")
        self.assertRegex(quoted, '^"[^"]+"$')
        key = quoted.strip('"')
        self.assert_made_now(key)
        second = self.send("/generate", {"effect": "done"}, key=None)
        self.assert_executed(second)
        self.assertNotEqual(second.one("Idempotency-Key"), quoted)
        self.assert_replay_of(first, self.send("/generate", {"effect": "done"}, key=key), "Idempotency-Key")
        self.assert_effects(2)

    def test_derived(self):
        first = self.send("/derive", {"effect": "done", "x": 1}, key=None)
        self.assert_executed(first)
        self.assertRegex(first.one("Idempotency-Key"), '^"[0-9a-f]{64}"$')
        self.prolong()
        again = self.send("/derive", body=b'{ "x":1.0, "effect":"done"}', key=None)
        self.assert_replay_of(first, again)
        self.assertEqual(again.one("Idempotency-Key"), first.one("Idempotency-Key"))
        self.assert_executed(self.send("/derive", {"effect": "done", "x": 2}, key=None))
        self.assert_executed(self.send("/derive?x", {"effect": "done", "x": 1}, key=None))
        self.assert_effects(3)

    def test_derived_of_bytes(self):
        named = {"key": None, "content_type": "text/plain"}
        first = self.send("/derive", body=b"\xffone", **named)
        self.assert_executed(first, 200)
        self.prolong()
        self.assert_replay_of(first, self.send("/derive", body=b"\xffone", **named))
        self.assert_executed(self.send("/derive", body=b"\xfftwo", **named), 200)
        self.assert_effects(2)

    def test_derived_for_a_window(self):
        """Then it is forgotten, though the policy's retention is longer."""
        first = self.send("/derive", {"effect": "done"}, key=None)
        self.prolong()
        self.assert_replay_of(first, self.send("/derive", {"effect": "done"}, key=None))
        self.prolong(-1)
        wait_until("the window is over", lambda: self.database.value(
            "SELECT created_at + interval '2 s' < now() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip
        self.assert_executed(self.send("/derive", {"effect": "done"}, key=None))
        self.assert_effects(2)

    def test_derived_and_failed(self):
        """A run that rolls back leaves no key."""
        for _ in range(2):
            self.assert_executed(self.send("/derive", {"effect": "done", "status": 503}, key=None), 503)
        self.assert_nothing()

    def test_derived_for_each_tenant(self):
        other = self.principal + "-other"
        self.assert_executed(self.send("/derive", {"effect": "done"}, key=None))
        self.assert_executed(self.send("/derive", {"effect": "done"}, key=None, principal=other))

    def test_empty(self):
        self.refused([b"Idempotency-Key:"])
        self.refused([b"Idempotency-Key:  "])
        self.refused([b'Idempotency-Key: ""'])
        answer = self.refused([b'Idempotency-Key: "  "'])
        self.assert_problem(answer, "bad_key")

    def test_empty_where_keys_are_optional(self):
        for path in ("/pass", "/generate", "/derive"):
            with self.subTest(path):
                self.refused([b"Idempotency-Key:"], path)

    def test_255_characters(self):
        self.assert_executed(self.send("/transactional", {"effect": "done"}, key=self.key.ljust(255, "x")))
        self.assertEqual(self.record()[4], self.key.ljust(255, "x"))

    def test_256_characters(self):
        self.refused([self.field('"' + self.key.ljust(256, "x") + '"')])
        self.refused([self.field(self.key.ljust(256, "x"))])

    def test_commas(self):
        self.refused([self.field(f"{self.key},b")])
        self.assert_executed(self.send("/transactional", {"effect": "done"}, key=self.key + ",b"))
        self.assertEqual(self.record()[4], self.key + ",b")

    def test_quoted_or_bare(self):
        first = self.send("/transactional", {"effect": "done"})
        again = self.raw([self.field(self.key)], body=b'{"effect":"done"}')
        self.assert_replay_of(first, again)

    def test_twice(self):
        self.refused([self.field(f'"{self.key}"')] * 2)
        self.refused([self.field(f'"{self.key}"'), b"idempotency-key: other"])

    def test_empty_beside_a_real_one(self):
        self.refused([self.field(f'"{self.key}"'), b"Idempotency-Key:"])
        self.refused([b"Idempotency-Key:", self.field(f'"{self.key}"')])

    def test_twice_where_keys_are_optional(self):
        self.refused([self.field(f'"{self.key}"')] * 2, "/pass")

    def test_not_ascii(self):
        self.refused([self.field(f'"{self.key}ä"')])
        self.refused([self.field(f"{self.key}ä")])
        self.refused([b'Idempotency-Key: "' + self.key.encode() + "ä".encode() + b'"'])

    def test_control_characters(self):
        for byte in (b"\x00", b"\x01", b"\x7f"):
            with self.subTest(byte):
                self.refused([b'Idempotency-Key: "' + self.key.encode() + byte + b'"'])

    def test_space_before_the_colon(self):
        for path in ("/transactional", "/pass"):
            with self.subTest(path):
                self.refused([f'Idempotency-Key : "{self.key}"'.encode()], path)

    def test_folded(self):
        for path in ("/transactional", "/pass"):
            with self.subTest(path):
                answer = self.raw([f'Idempotency-Key: "{self.key}'.encode() + b'\r\n x"'], path)
                self.assertIn(answer.status, (400, 201), answer)
                if answer.status == 201:  # RFC 9112, 5.2: or replaced by spaces
                    self.assertRegex(self.record()[4], f"^{self.key} +x$")

    def test_escaped_is_another_key(self):
        names = [f'"{self.key}-1"', f'"{self.key}%2D1"', f'"{self.key}%u002D1"', f"%22{self.key}-1%22", f'"{self.key}&#45;1"', f'"{self.key}+1"']
        for name in names:
            with self.subTest(name):
                self.assert_executed(self.raw([self.field(name)]))
        self.assert_effects(len(names))


class Principals(Case):
    """Whom a request is from, before anything else is looked at."""

    def send_as(self, lines, body=b'{"effect":"done"}'):
        fields = [("Content-Type", "application/json"), ("Idempotency-Key", f'"{self.key}"'), *lines]
        with Connection(self.server.port) as connection:
            connection.send(head("/transactional", [*fields, ("Connection", "close"), ("Content-Length", len(body))]) + body)
            return connection.answer()

    def test_missing(self):
        self.assert_problem(self.send_as([]), status=401)
        self.assertEqual(self.database.value("SELECT count(*) FROM effect WHERE key = %s", self.key), 0)

    def test_scheme_in_any_case(self):
        for scheme in ("bearer", "BEARER"):
            self.assertIn(self.send_as([("Authorization", f"{scheme} {self.principal}")]).status, (201,))
        self.assert_effects(1)

    def test_twice(self):
        self.assert_status(self.send_as([("Authorization", f"Bearer {self.principal}"), ("Authorization", "Bearer other")]), 401)
        self.assert_nothing()

    def test_escaped(self):
        """An escape is not undone, here neither."""
        self.assert_status(self.send_as([("Authorization", f"Bearer%20{self.principal}")]), 401)
        escaped = self.principal.replace("-", "%2D")
        self.assertIn(self.send_as([("Authorization", f"Bearer {escaped}")]).status, (201, 401))
        self.assert_nothing()
