"""A batch over HTTP: each item has a key of its own, so items succeed and fail separately.

A repeat executes the items that have no answer yet. The answer has a part for each item, in their order.
"""

import json

from flask import Flask, abort, request

from idempotency_postgres import Answer, Rejection, Request, parse_key, transactionally
from idempotency_postgres.flask import bearer

SCHEMA = "CREATE TABLE payment (account text NOT NULL, amount integer NOT NULL CHECK (amount > 0))"


def pay(claim, item):
    if item["amount"] > 1000:
        raise Rejection(Answer(422, body=b'{"error": "too much"}'))
    claim.client.execute("INSERT INTO payment (account, amount) VALUES (%s, %s)", (claim.principal, item["amount"]))
    return Answer(201, body=json.dumps({"paid": item["amount"]}).encode())


def part(result):
    if result.answer is None:
        return {"status": 409, "error": result.outcome}
    return {"status": result.answer.status, "body": json.loads(result.answer.body), "replayed": result.outcome == "replay"}


def application(db):
    app = Flask(__name__)

    @app.post("/payments/batch")
    def pay_each():
        principal, key = bearer(request), parse_key(request.headers.get("Idempotency-Key", ""))
        if not principal or not key:
            abort(400)

        def one(item):
            own = Request(f"{key}:{item['id']}", "payments/batch", principal, json=json.dumps(item))
            return {"id": item["id"], **part(transactionally(db, own, lambda claim: pay(claim, item)))}

        return {"items": [one(item) for item in request.get_json()]}, 207

    return app
