"""Bad input: the right status, a problem document, and nothing stored."""

import json
import unittest

from http_call import payment
from support import PaymentsTest

LONGEST_KEY = 255

MALFORMED_KEYS = {
    "empty string": '""',
    "blank string": '"   "',
    "unfinished string": '"abc',
    "quote at the end": 'abc"',
    "rest after the string": '"abc"def',
    "list of strings": '"abc", "def"',
    "bare list": "abc, def",
    "bare value with a blank": "abc def",
    "bare value with a backslash": "abc\\def",
    "unknown escape": '"ab\\c"',
    "control character": '"ab\tc"',
    "beyond ASCII": '"caf\u00e9"',
    "bare beyond ASCII": "caf\u00e9",
    "parameter without a name": '"abc";',
    "parameter in capitals": '"abc";V=1',
    "over-long string": '"' + "k" * (LONGEST_KEY + 1) + '"',
    "over-long bare value": "k" * (LONGEST_KEY + 1),
    "very long": "k" * 7000,
}

NOT_JSON = {
    "empty": b"",
    "word": b"payment",
    "unfinished": b'{"amount": {"value": "1.00"',
    "trailing comma": b'{"customer": "a",}',
    "two values": b"{} {}",
    "single quotes": b"{'customer': 'a'}",
    "not a number": b'{"customer": NaN}',
    "form": b"amount=1&customer=a",
    "not UTF-8": b'{"customer": "\xff\xfe"}',
    "bytes of UTF-16": '{"customer": "a"}'.encode("utf-16"),
}

# JSON that is no payment; jsonb can't hold the last ones.
NO_PAYMENTS = {
    "null": b"null",
    "number": b"12",
    "string": b'"payment"',
    "array": b"[]",
    "empty object": b"{}",
    "no amount": json.dumps({"customer": "a", "card": "tok_visa"}).encode(),
    "no customer": json.dumps({"amount": {"value": "1.00", "currency": "EUR"}}).encode(),
    "amount is a string": json.dumps({**payment(), "amount": "12.50 EUR"}).encode(),
    "value is a list": json.dumps(payment(value=["12.50"])).encode(),
    "value is no number": json.dumps(payment(value="twelve")).encode(),
    "value is nothing": json.dumps(payment(value="0.00")).encode(),
    "value is negative": json.dumps(payment(value="-12.50")).encode(),
    "value is NaN": json.dumps(payment(value="NaN")).encode(),
    "value is infinite": json.dumps(payment(value="Infinity")).encode(),
    "value is too large": json.dumps(payment(value="9" * 200_000)).encode(),
    "currency is a number": json.dumps(
        {**payment(), "amount": {"value": "1.00", "currency": 978}}
    ).encode(),
    "customer is an object": json.dumps({**payment(), "customer": {}}).encode(),
    "customer is empty": json.dumps({**payment(), "customer": ""}).encode(),
    "card is a boolean": json.dumps({**payment(), "card": True}).encode(),
    "NUL in a string": json.dumps({**payment(), "customer": "a\0b"}).encode(),
    "NUL in an unused field": json.dumps(payment(note="a\0b")).encode(),
    "lone surrogate": b'{"customer": "\\ud800", "card": "tok_visa"}',
    "exponent beyond all measure": b'{"customer": "a", "metadata": 1e999999999}',
}


class BadInput(PaymentsTest):
    def send(self, method="POST", path="/payments", body=b"{}", **named):
        return self.pod.send(method, path, body, **{"tenant": self.tenant, **named})

    def pay_with_field(self, *fields, path="/payments"):
        headers = [("Idempotency-Key", field.encode("latin-1")) for field in fields]
        return self.send("POST", path, payment(), headers=headers)

    def assert_survived(self):
        """A payment is still possible: no connection of the service was left in a bad state."""
        for _ in range(3):
            made = self.pod.pay(payment(), tenant=self.tenant + "_after", key=self.key)
            self.assertEqual(made.status, 201, made)

    def test_malformed_header_is_400(self):
        for name, field in MALFORMED_KEYS.items():
            for path in ("/payments", "/refunds", "/transfers", "/estimates"):
                with self.subTest(name, path=path):
                    answer = self.pay_with_field(field, path=path)
                    self.assert_problem(answer, 400, "bad-key")
        self.assert_nothing_stored()
        self.assert_survived()

    def test_empty_header_is_400(self):
        """Also where none is needed: whoever sends one wants to be protected."""
        for path in ("/payments", "/estimates"):
            self.assert_problem(self.pay_with_field("", path=path), 400, "bad-key")
        self.assert_problem(self.pay_with_field("", '"a"'), 400, "bad-key")
        self.assert_nothing_stored()

    def test_repeated_header_is_400(self):
        for fields in (("a", "b"), ("a", "a"), ('"a"', '"b"')):
            with self.subTest(fields):
                self.assert_problem(self.pay_with_field(*fields), 400, "bad-key")
        self.assert_nothing_stored()

    def test_key_may_have_255_characters_and_not_one_more(self):
        longest = "k" * LONGEST_KEY
        self.assert_problem(self.pay_with_field(f'"{longest}k"'), 400, "bad-key")
        self.assert_nothing_stored()
        self.assert_executed(self.pay_with_field(f'"{longest}"'))
        self.assertTrue(self.pay_with_field(longest).replayed)

    def test_escaped_key_is_stored_as_it_is_meant(self):
        self.assert_executed(self.pay_with_field(r'"a\"b\\c"'))
        self.assertEqual(self.database.record(self.tenant, 'a"b\\c')[0], "completed")

    def test_body_that_is_no_json_is_400(self):
        for name, body in NOT_JSON.items():
            with self.subTest(name):
                self.assert_problem(self.send(body=body, key=self.key), 400)
        self.assert_nothing_stored()
        self.assert_survived()

    def test_wrong_types_and_missing_fields_are_refused_and_nothing_is_charged(self):
        for name, body in NO_PAYMENTS.items():
            with self.subTest(name):
                answer = self.send(body=body, key=f"{self.key} {name}")
                self.assertIn(answer.status, (400, 422), answer)
                self.assert_problem(answer, answer.status)
        self.assertEqual(self.database.charges(self.tenant), 0)
        self.assert_survived()

    def test_refusal_by_the_handler_is_the_answer_of_its_key(self):
        """Unlike what never reaches a handler: it is deterministic, so it is kept."""
        first = self.send(body=payment(value="twelve"), key=self.key)
        self.assert_problem(first, 422, "invalid-request")
        self.assert_replay_of(first, self.send(body=payment(value="twelve"), key=self.key))
        self.assert_problem(self.send(body=payment(), key=self.key), 422, "mismatch")
        self.assertEqual(self.database.charges(self.tenant), 0)

    def test_deeply_nested_body_is_refused(self):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            text = opening * 100_000 + "1" + closing * 100_000
            body = b'{"customer":"a","metadata":' + text.encode() + b"}"
            with self.subTest(opening):
                answer = self.send(body=body, key=self.key)
                self.assertIn(answer.status, (400, 413, 422), answer)
                self.assert_problem(answer, answer.status)
        self.assert_nothing_stored()
        self.assert_survived()

    def test_body_of_another_type_is_415(self):
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
            with self.subTest(content_type):
                headers = [("Content-Type", content_type)]
                answer = self.send(body=payment(), key=self.key, headers=headers)
                self.assert_problem(answer, 415)
        self.assert_nothing_stored()

    def test_character_set_beside_the_type_is_welcome(self):
        headers = [("Content-Type", "application/json; charset=utf-8")]
        self.assert_executed(self.send(body=payment(), key=self.key, headers=headers))

    def test_body_over_two_megabytes_is_413(self):
        answer = self.send(body=payment(metadata="x" * (2 << 20)), key=self.key)
        self.assert_problem(answer, 413)
        self.assert_nothing_stored()
        self.assert_survived()

    def test_unknown_caller_is_401(self):
        for field in (
            None,
            "",
            "Bearer",
            "Bearer acme",
            "Bearer sk_",
            "Bearer sk_ACME",
            "Bearer sk_a' OR 1",
            "Basic c2tfYWNtZQ==",
            "Bearer pk_acme",
        ):
            with self.subTest(field):
                headers = [("Idempotency-Key", self.key), ("Content-Type", "application/json")]
                if field is not None:
                    headers.append(("Authorization", field))
                body = json.dumps(payment()).encode()
                self.assert_problem(self.pod.call("POST", "/payments", headers, body), 401)
        stored = self.database.rows("SELECT FROM idempotency.records WHERE key = %s", self.key)
        self.assertEqual(stored, [])

    def test_unknown_route_is_404(self):
        for path in (
            "/",
            "/payment",
            "/payments/",
            "/payments/x/y",
            "/%00",
            "/../payments",
            "/PAYMENTS",
        ):
            with self.subTest(path):
                self.assert_problem(self.send(path=path, body=payment(), key=self.key), 404)
        self.assert_nothing_stored()

    def test_unknown_method_is_405(self):
        for method, path in (("PUT", "/payments"), ("DELETE", "/transfers"), ("PATCH", "/refunds")):
            with self.subTest(method, path=path):
                answer = self.send(method, path, payment(), key=self.key)
                self.assertIn(answer.status, (404, 405))
                self.assert_problem(answer, answer.status)
        self.assert_nothing_stored()

    def test_unknown_payment_is_404(self):
        for name in ("none", "0", "%27%20OR%201", "x" * 500):
            with self.subTest(name):
                path = f"/payments/{name}"
                self.assert_problem(self.pod.send("GET", path, tenant=self.tenant), 404)

    def test_statements_hide_in_no_value(self):
        """What SQL or a log would trip over is a value like any other."""
        for number, text in enumerate(
            ("'; DROP TABLE payments.charge; --", "\\", "a\nb", "\u2028")
        ):
            with self.subTest(text):
                body = {**payment(), "customer": text}
                first = self.send(body=body, key=f"{self.key} {number}")
                self.assertIn(first.status, (201, 422))
                if first.status == 201:
                    self.assertEqual(first.json()["customer"], text)
        self.assert_survived()


if __name__ == "__main__":
    unittest.main()
