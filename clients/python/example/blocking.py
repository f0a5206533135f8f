"""The same on Flask and on Django, with werkzeug's development server: SERVER=flask or SERVER=django."""

import base64
import contextlib
import json
import os
import signal
import threading
import time

from psycopg_pool import ConnectionPool
from werkzeug.serving import WSGIRequestHandler, make_server

from idempotency_postgres import Answer, NothingHappened, Rejection

INFO = f"application_name={os.environ.get('PGAPPNAME', 'example')} connect_timeout=5"
# Behind PgBouncer a prepared statement is another session's.
PREPARES = {"prepare_threshold": None} if os.environ.get("POOLED") else {}
# Of the handler's own: gates, effects of leased routes, hooks. A connection that has died is not handed out.
others = ConnectionPool(
    INFO, min_size=2, max_size=40, open=True, reconnect_timeout=1, check=ConnectionPool.check_connection,
    kwargs={"autocommit": True, **PREPARES},
)  # fmt: skip
runs = {}  # of handlers that are to fail, by key


def hook(name):
    def tell(event):
        if event.outcome == "unavailable":
            return  # there is no database to tell
        with others.connection(timeout=2) as connection:
            connection.execute(
                "INSERT INTO hook (name, scope, key, attempt, outcome) VALUES (%s, %s, %s, %s, %s)",
                (name, event.scope, event.key, event.attempt, event.outcome),
            )

    return tell


# BENCH: for bench/clients, without the suite's hooks and with the route /bare.
BENCH = "BENCH" in os.environ
COMMON = {} if BENCH else {
    "database_timeout": 2, "on_execute": hook("execute"), "on_replay": hook("replay"),
    "on_refusal": hook("refusal"), "on_lease_lost": hook("lease_lost"),
}  # fmt: skip


def insert(run, claim, note):
    run("INSERT INTO effect (principal, key, note) VALUES (%s, %s, %s)", (claim.principal, claim.key or "", note))


def insert_aside(claim, note):
    with others.connection() as connection:
        insert(connection.execute, claim, note)


def run_in(client, sql, values=()):
    if hasattr(client, "execute"):
        client.execute(sql, values)
        return
    with client.cursor() as cursor:  # Django's
        cursor.execute(sql, values)


def effect(claim, note):
    if claim.kind == "transactional":
        insert(lambda sql, values: run_in(claim.client, sql, values), claim, note)
    else:
        claim.step("effect", lambda: insert_aside(claim, note))


def gate(number):
    with others.connection() as connection:
        connection.execute("SELECT pg_advisory_lock_shared(%s)", (number,))
        connection.execute("SELECT pg_advisory_unlock_shared(%s)", (number,))


class Stranger(Exception):
    """Of a payment gateway, whose codes have five characters."""

    sqlstate = "40004"


def late(claim, note):
    time.sleep(0.3)
    with contextlib.suppress(Exception):
        insert(lambda sql, values: run_in(claim.client, sql, values), claim, note)
    insert_aside(claim, "tried")


def raised(status):
    if os.environ["SERVER"] == "flask":
        from flask import abort

        with contextlib.suppress(LookupError):  # it does not know each status
            abort(status)
    raise Rejection(Answer(status))


WAYS = {
    "hide_error": ["execute"], "commit": ["sql"],
    "waits": {"flask": {"execute": 3, "replay": 1, "leased": 3}, "django": {"execute": 5, "replay": 3, "leased": 3}}[os.environ["SERVER"]],
}  # fmt: skip


BARE = "INSERT INTO effect (principal, key, note) VALUES ('bench', '', %s)"  # the work of /transactional without the client


def work(claim, body, kind):
    """Status, fields, body."""
    order = json.loads(body) if body and kind == "application/json" else None
    if not isinstance(order, dict):
        effect(claim, "raw")
        return 200, [("Content-Type", kind)] if kind else [], body
    if "gate" in order:
        gate(order["gate"])
    if "effect" in order:
        effect(claim, order["effect"])
    if "unknown" in order:
        claim.unknown(*order["unknown"])
    if order.get("commit") == "sql":
        run_in(claim.client, "COMMIT")
    if order.get("commit") == "driver":
        claim.client.commit()
    if order.get("hide_error"):
        with contextlib.suppress(Exception):
            run_in(claim.client, "SELECT 1/0")
    if order.get("serialization_failures"):
        runs[claim.key] = runs.get(claim.key, 0) + 1
        if runs[claim.key] <= order["serialization_failures"]:
            run_in(claim.client, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
    if order.get("hang"):
        claim.lost.wait()
        insert_aside(claim, "lost")
    if "idle" in order:
        run_in(claim.client, f"SET LOCAL idle_in_transaction_session_timeout = {int(order['idle'])}")
        time.sleep(order["idle"] / 1000 + 1)
    if "late" in order:
        threading.Thread(target=late, args=(claim, order["late"]), daemon=True).start()
    if "stranger" in order:
        raise Stranger("Connection closed")
    if "raise" in order:
        raised(order["raise"])
    if order.get("nothing_happened"):
        raise NothingHappened("nothing happened")
    if order.get("throw"):
        raise RuntimeError("thrown by the handler")
    if order.get("exit"):
        os._exit(3)
    content = base64.b64decode(order.get("body", "")) * order.get("repeat", 1)
    return order.get("status", 201), [tuple(pair) for pair in order.get("headers", ())], content


def pieces(content):
    return [content[at : at + 100] for at in range(0, len(content), 100)]


ROUTES = {
    "/transactional": {},
    "/leased": {"lease": 2},
    "/uncertain": {"lease": 2},
    "/generate": {"missing_key": "generate"},
    "/derive": {"missing_key": "derive", "window": 2},
    "/pass": {"missing_key": "pass"},
    "/configured": {
        "statuses": {"in_progress": 425, "mismatch": 400, "unavailable": 500}, "key_header": "X-Request-Key",
        "replay_header": "X-Replay", "echo_key": True, "exclude": ["ts"], "keep": lambda status: True, "ttl": 1,
    },
    "/small": {"max_request_bytes": 1000, "max_answer_bytes": 1000},
    "/omit": {"max_answer_bytes": 1000, "omit_large_answers": True},
    "/unprotected": {"unprotected_without_database": True},
    "/streamed": {},
    "/judged": {"verdict": lambda answer: {name.lower(): value for name, value in answer.headers}.get("x-verdict")},
    "/judged_leased": {"verdict": lambda answer: {name.lower(): value for name, value in answer.headers}.get("x-verdict"), "lease": 2},
    "/impatient": {"handler_timeout": 1},
    "/patient": {"wait": 4},
}  # fmt: skip


def protected(keys, path):
    return (keys.leased if path in ("/leased", "/uncertain", "/judged_leased") else keys.transactional)(**ROUTES[path])


def flask_app():
    from flask import Flask, Response, request

    from idempotency_postgres.flask import Idempotency, bearer, claim
    from idempotency_postgres.psycopg import database

    app = Flask(__name__)
    pool = ConnectionPool(INFO, min_size=2, max_size=10, open=True, reconnect_timeout=1, kwargs=PREPARES)
    keys = Idempotency(database(pool), principal=bearer, **COMMON)

    def view():
        status, fields, content = work(claim(), request.get_data(), request.headers.get("Content-Type"))
        response = Response(pieces(content) if request.path == "/streamed" else content, status)
        for name, value in fields:
            (response.headers.set if name.lower() == "content-type" else response.headers.add)(name, value)
        return response

    def bare():
        with pool.connection() as connection:
            connection.execute(BARE, (request.get_json()["effect"],))
        return "", 201

    if BENCH:
        app.add_url_rule("/bare", "bare", bare, methods=["POST"])
    for path in ROUTES:
        app.add_url_rule(path, path, protected(keys, path)(view), methods=["POST"])
    app.add_url_rule("/health", "health", lambda: "well")
    app.add_url_rule("/ways", "ways", lambda: WAYS)
    return app


def django_app():
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse, StreamingHttpResponse
    from django.urls import path as route

    settings.configure(
        DEBUG=False, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="example", MIDDLEWARE=[],
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
            "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"],
            "OPTIONS": {"application_name": os.environ.get("PGAPPNAME", "example"), "connect_timeout": 2, **PREPARES, "pool": {"max_size": 10, "timeout": 2, "reconnect_timeout": 1}},
        }},
    )  # fmt: skip
    from idempotency_postgres.django import Idempotency, bearer, claim

    keys = Idempotency(principal=bearer, **COMMON)

    def view(request):
        status, fields, content = work(claim(), request.body, request.headers.get("Content-Type"))
        kind = StreamingHttpResponse if request.path == "/streamed" else HttpResponse
        response = kind(pieces(content) if request.path == "/streamed" else content, status=status)
        for name, value in fields:
            response[name] = value
        return response

    def bare(request):
        from django.db import connection, transaction

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(BARE, (json.loads(request.body)["effect"],))
        return HttpResponse(status=201)

    global urlpatterns
    urlpatterns = [route(path[1:], protected(keys, path)(view)) for path in ROUTES]
    if BENCH:
        urlpatterns.append(route("bare", bare))
    urlpatterns.append(route("health", lambda request: HttpResponse("well")))
    urlpatterns.append(route("ways", lambda request: HttpResponse(json.dumps(WAYS))))
    return get_wsgi_application()


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    app = {"flask": flask_app, "django": django_app}[os.environ["SERVER"]]()
    server = make_server("127.0.0.1", int(os.environ["PORT"]), app, threaded=True, request_handler=Handler)
    print("ready", flush=True)
    server.serve_forever()
