"""Services as the README has them, and what frameworks may do to a route. The rest is the conformance suite's."""

import functools
import json
import os
import socket
import threading
import unittest

import httpx
import psycopg_pool
import pytest
from django.http import Http404, HttpResponse, JsonResponse

BODY = {"amount": 5}


def headers(key):
    return {"Authorization": "Bearer tenant", "Idempotency-Key": f'"{key}"'}


@pytest.fixture
def pool(dsn):
    with psycopg_pool.ConnectionPool(f"dbname={dsn}", open=True, min_size=1) as pool:
        yield pool


@pytest.fixture
async def async_pool(dsn):
    async with psycopg_pool.AsyncConnectionPool(f"dbname={dsn}", open=False, min_size=1) as pool:
        yield pool


def client(app, **named):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://test", **named)


async def check(call, key, sql, status=201):
    """First and replay are the same, and there is one effect."""
    first, again, other = await call(BODY), await call(BODY), await call({"amount": 6})
    assert (first.status_code, again.status_code, other.status_code) == (status, status, 422), (first.text, again.text)
    assert first.content == again.content
    assert (first.headers.get("Idempotent-Replayed"), again.headers.get("Idempotent-Replayed")) == (None, "true")
    assert other.headers["Content-Type"] == "application/problem+json"
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]


def fastapi_app(keys, execute):
    from typing import Annotated

    from fastapi import APIRouter, Depends, FastAPI, HTTPException
    from pydantic import BaseModel

    from idempotency_postgres import claim as current_claim
    from idempotency_postgres.fastapi import claim

    class Payment(BaseModel):
        amount: int

    app = FastAPI()
    app.router.route_class = keys.route_class
    api = APIRouter(route_class=keys.route_class)

    @app.post("/payments/{account}", status_code=201)
    @keys.transactional()
    async def pay(account: str, payment: Payment, own: Annotated[object, Depends(claim)]):
        await execute(own.client, own.key)
        return {"paid": payment.amount, "account": account}

    @api.post("/gone")
    @keys.transactional()
    async def gone(payment: Payment):
        await execute(current_claim().client, current_claim().key)
        raise HTTPException(404, "no such account")

    @api.post("/leased", status_code=201)
    @keys.leased(lease=60)
    async def leased(payment: Payment, own: Annotated[object, Depends(claim)]):
        async def step():
            return payment.amount

        return {"paid": await own.step("charge", step)}

    app.include_router(api, prefix="/api")
    twice = APIRouter()
    twice.post("/twice")(gone)  # the first route has let FastAPI see it
    app.include_router(twice)
    return app


@pytest.mark.parametrize("kind", ["transactional", "leased"])
@pytest.mark.parametrize("decorated", [False, True])
async def test_fastapi_without_the_route_class(async_pool, key, kind, decorated):
    """Noticed where the path operation is defined, not when the first client comes."""
    from fastapi import APIRouter, FastAPI

    from idempotency_postgres.fastapi import Idempotency, bearer
    from idempotency_postgres.psycopg import database

    keys = Idempotency(database(async_pool), principal=bearer)

    async def pay(amount: int) -> int:
        return amount

    def another(function):
        @functools.wraps(function)
        async def around(*args, **kwargs):
            return await function(*args, **kwargs)

        return around if decorated else function

    operation = another(getattr(keys, kind)()(pay))
    for router in (FastAPI(), APIRouter()):
        with pytest.raises(TypeError, match="route_class=keys.route_class"):
            router.post("/pay")(operation)
    app = FastAPI()
    app.router.route_class = keys.route_class
    app.post("/pay")(operation)
    async with client(app, headers=headers(key)) as http:
        assert (await http.post("/pay?amount=5")).json() == 5
        assert (await http.post("/pay?amount=nothing")).status_code == 422


async def test_fastapi(async_pool, key, sql):
    from idempotency_postgres.fastapi import Idempotency, bearer
    from idempotency_postgres.psycopg import database

    async def execute(connection, note):
        await connection.execute("INSERT INTO effect VALUES (%s)", (note,))

    app = fastapi_app(Idempotency(database(async_pool), principal=bearer), execute)
    async with client(app, headers=headers(key)) as http:
        await check(lambda body: http.post("/payments/a", json=body), key, sql)
        assert sql("SELECT scope FROM idempotency.records WHERE key = %s", key) == [("POST /payments/{account}",)]
        assert (await http.post("/payments/b", json=BODY)).status_code == 422
        for replayed in (None, "true"):  # what it raises is its answer, without its work
            answer = await http.post("/api/gone", json=BODY)
            assert (answer.status_code, answer.json()) == (404, {"detail": "no such account"})
            assert answer.headers.get("Idempotent-Replayed") == replayed
        assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]
        assert (await http.get("/api/gone")).status_code == 405
        answers = [await http.post("/api/leased", json=BODY) for _ in range(2)]
        assert [(a.status_code, a.json(), "Idempotent-Replayed" in a.headers) for a in answers] == [
            (201, {"paid": 5}, False), (201, {"paid": 5}, True)]  # fmt: skip
        assert (await http.post("/twice", json=BODY)).status_code == 500
        scopes = [("POST /api/gone",), ("POST /api/leased",), ("POST /payments/{account}",)]
        assert sql("SELECT scope FROM idempotency.records WHERE key = %s ORDER BY 1", key) == scopes
        assert "paths" in (await http.get("/openapi.json")).json()


async def test_fastapi_with_a_blocking_session(dsn, key, sql):
    import sqlalchemy as sa
    from fastapi import FastAPI
    from sqlalchemy.orm import sessionmaker

    from idempotency_postgres.fastapi import Idempotency, bearer
    from idempotency_postgres.route import claim
    from idempotency_postgres.sqlalchemy import database

    engine = sa.create_engine("postgresql+psycopg:///" + dsn)
    keys = Idempotency(database(sessionmaker(engine)), principal=bearer)
    app = FastAPI()
    app.router.route_class = keys.route_class

    @app.post("/payments", status_code=201)
    @keys.transactional()
    def pay(payment: dict):
        claim().client.execute(sa.text("INSERT INTO effect VALUES (:note)"), {"note": claim().key})
        return payment

    async with client(app, headers=headers(key)) as http:
        await check(lambda body: http.post("/payments", json=body), key, sql)
    engine.dispose()


@pytest.fixture
def uncertain(sql):
    sql("SELECT idem_policy_set('uncertain', on_lease_expiry => 'unknown')")
    return lambda key: sql("SELECT status, error FROM idempotency.records WHERE key = %s", key)


async def test_fastapi_answers_that_nothing_happened(async_pool, key, uncertain):
    """The application's answer to the exception is sent. The claim still knows of it."""
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse

    from idempotency_postgres import NothingHappened
    from idempotency_postgres.fastapi import Idempotency, bearer
    from idempotency_postgres.psycopg import database

    keys, app = Idempotency(database(async_pool), principal=bearer), FastAPI()
    app.router.route_class = keys.route_class

    @app.exception_handler(NothingHappened)
    async def unavailable(request, error):
        return JSONResponse({"error": str(error)}, 503)

    @app.post("/payments")
    @keys.leased(scope="uncertain")
    async def pay():
        raise NothingHappened("no connection")

    async with client(app, headers=headers(key)) as http:
        answer = await http.post("/payments", json=BODY)
    assert (answer.status_code, answer.json()) == (503, {"error": "no connection"})
    assert uncertain(key) == [("retryable", "no connection")]


async def test_flask_answers_that_nothing_happened(pool, key, uncertain):
    import flask

    from idempotency_postgres import NothingHappened
    from idempotency_postgres.flask import Idempotency, bearer
    from idempotency_postgres.psycopg import database

    app, keys = flask.Flask(__name__), Idempotency(database(pool), principal=bearer)
    app.errorhandler(NothingHappened)(lambda error: ({"error": str(error)}, 503))

    @app.post("/payments")
    @keys.leased(scope="uncertain")
    def pay():
        raise NothingHappened("no connection")

    answer = app.test_client().post("/payments", json=BODY, headers=headers(key))
    assert (answer.status_code, answer.json) == (503, {"error": "no connection"})
    assert uncertain(key) == [("retryable", "no connection")]


async def test_starlette(async_pool, key, sql):
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import StreamingResponse
    from starlette.routing import Mount, Route

    from idempotency_postgres.psycopg import database
    from idempotency_postgres.starlette import Idempotency, bearer, claim

    keys = Idempotency(database(async_pool), principal=bearer)

    async def pay(request):
        amount = (await request.json())["amount"]
        await claim().client.execute("INSERT INTO effect VALUES (%s)", (claim().key,))

        async def pieces():
            for _ in range(3):
                yield str(amount)

        return StreamingResponse(pieces(), 201)

    async def dispatch(request, call_next):
        return await call_next(request)

    route = Route("/payments", pay, methods=["POST"], middleware=[keys.transactional()])
    app = Starlette(routes=[Mount("/v1/{tenant}", routes=[route])], middleware=[Middleware(BaseHTTPMiddleware, dispatch=dispatch)])
    async with client(app, headers=headers(key)) as http:
        await check(lambda body: http.post("/v1/7/payments", json=body), key, sql)
        assert sql("SELECT scope FROM idempotency.records WHERE key = %s", key) == [("POST /v1/{tenant}/payments",)]


async def test_flask(pool, key, sql):
    import flask

    from idempotency_postgres.flask import Idempotency, bearer, claim
    from idempotency_postgres.psycopg import database

    app = flask.Flask(__name__)
    keys = Idempotency(database(pool), principal=bearer)

    class Declined(Exception):
        pass

    @app.errorhandler(Declined)
    def declined(error):
        return {"declined": True}, 402

    @app.post("/payments/<account>")
    @keys.transactional()
    def pay(account):
        amount = flask.request.get_json()["amount"]
        claim().client.execute("INSERT INTO effect VALUES (%s)", (claim().key,))
        return {"paid": amount, "account": account}, 201

    @app.post("/declined")
    @keys.transactional()
    def decline():
        claim().client.execute("INSERT INTO effect VALUES (%s)", (claim().key,))
        raise Declined

    http = app.test_client()

    class Result:
        def __init__(self, answer):
            self.status_code, self.content, self.headers, self.text = answer.status_code, answer.data, answer.headers, answer.text

    async def call(body, path="/payments/a"):
        return Result(http.post(path, json=body, headers=headers(key)))

    await check(call, key, sql)
    assert sql("SELECT scope FROM idempotency.records WHERE key = %s", key) == [("POST /payments/<account>",)]
    for replayed in (None, "true"):
        answer = await call(BODY, "/declined")
        assert (answer.status_code, answer.headers.get("Idempotent-Replayed")) == (402, replayed)
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]


async def test_wsgi(pool, key, sql):
    from werkzeug.test import Client

    from idempotency_postgres.psycopg import database
    from idempotency_postgres.wsgi import Idempotency, bearer, claim

    def app(environ, start_response):
        amount = json.loads(environ["wsgi.input"].read())["amount"]
        claim().client.execute("INSERT INTO effect VALUES (%s)", (claim().key,))
        start_response("201 Created", [("Content-Type", "text/plain")])
        return [str(amount).encode()]

    http = Client(Idempotency(database(pool), principal=bearer).transactional(scope="pay")(app))

    async def call(body):
        answer = http.post("/payments", json=body, headers=headers(key))
        return httpx.Response(answer.status_code, headers=list(answer.headers), content=answer.data)

    await check(call, key, sql)


@pytest.mark.parametrize(
    "principal, status",
    [(None, 401), (False, 401), ("", 401), (object(), 500), (b"me", 500), (True, 500), (1.5, 500), ("me", 201), (7, 201)],
)
async def test_a_principal_is_a_string_or_an_integer(async_pool, key, sql, principal, status):
    """The text of any other object may be another one in each request."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    from idempotency_postgres.psycopg import database
    from idempotency_postgres.starlette import Idempotency, claim

    async def pay(request):
        return Response(claim().principal, 201)

    keys = Idempotency(database(async_pool), principal=lambda _: principal)
    app = Starlette(routes=[Route("/payments", pay, methods=["POST"], middleware=[keys.transactional()])])
    async with client(app, headers=headers(key)) as http:
        answer = await http.post("/payments", json=BODY)
    assert answer.status_code == status, answer.text
    assert sql("SELECT principal FROM idempotency.records WHERE key = %s", key) == ([(str(principal),)] if status == 201 else [])


def wsgiref_server(app):
    from wsgiref.simple_server import make_server

    return make_server("127.0.0.1", 0, app)


def flask_server(app):
    from werkzeug.serving import make_server

    return make_server("127.0.0.1", 0, app)


def django_server(app):
    """Of manage.py runserver."""
    from django.core.servers.basehttp import WSGIRequestHandler, WSGIServer

    server = WSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
    server.set_app(app)
    return server


@pytest.mark.parametrize("fields", [('"{0}"', '"{0}"'), ("{0}", "{0}"), ('"{0}"', ""), ("", '"{0}"')])
@pytest.mark.parametrize("serve", [wsgiref_server, flask_server, django_server])
def test_two_keys_are_none(serve, fields, pool, key, django_settings):
    """WSGI has one field of each name, in which these servers put both; that is no key."""
    from idempotency_postgres.psycopg import database
    from idempotency_postgres.wsgi import Idempotency, bearer

    def app(environ, start_response):
        start_response("201 Created", [("Content-Type", "text/plain")])
        return [b""]

    server = serve(Idempotency(database(pool), principal=bearer).transactional(scope="pay", missing_key="pass")(app))
    try:
        threading.Thread(target=server.handle_request, daemon=True).start()
        lines = ["POST /payments HTTP/1.0", "Host: test", "Authorization: Bearer tenant", "Content-Length: 0"]
        lines += [f"Idempotency-Key: {field.format(key)}" for field in fields]
        with socket.create_connection(server.server_address) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            assert connection.makefile("rb").readline().split()[1] == b"400"
    finally:
        server.server_close()


# ---- Django: this module is its ROOT_URLCONF ----

urlpatterns = []


async def test_django(django_settings, key, sql):
    from django.db import connection
    from django.test import Client
    from django.urls import path

    from idempotency_postgres.django import Idempotency, bearer, claim

    keys = Idempotency(principal=bearer)

    @keys.transactional()
    def pay(request, account):
        amount = json.loads(request.body)["amount"]
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO effect VALUES (%s)", [claim().key])
        response = JsonResponse({"paid": amount}, status=201)
        response.set_cookie("session", "secret")
        return response

    @keys.transactional()
    def gone(request):
        raise Http404

    @keys.leased(lease=60)
    def leased(request):
        return HttpResponse(claim().step("charge", lambda: "done"), status=201)

    urlpatterns[:] = [path("payments/<str:account>", pay), path("gone", gone), path("leased", leased)]
    http = Client(enforce_csrf_checks=True)

    async def call(body, target="/payments/a"):
        return http.post(target, body, content_type="application/json", headers=headers(key))

    await check(call, key, sql)
    assert sql("SELECT scope, headers ? 'Set-Cookie' FROM idempotency.record WHERE key = %s", key) == [("POST /payments/<str:account>", False)]
    for target, status in (("/gone", 404), ("/leased", 201)):
        answers = [await call(BODY, target) for _ in range(2)]
        assert [(a.status_code, a.headers.get("Idempotent-Replayed")) for a in answers] == [(status, None), (status, "true")]
    connection.close()


def test_a_model_of_django_is_rolled_back(django_settings, key, sql):
    from django.db import connection, models
    from django.test import Client
    from django.urls import path

    from idempotency_postgres.django import Idempotency, bearer

    class Booking(models.Model):
        amount = models.IntegerField()

        class Meta:
            app_label = "shop"

    sql("DROP TABLE IF EXISTS shop_booking")
    sql("CREATE TABLE shop_booking (id bigserial PRIMARY KEY, amount integer)")
    keys = Idempotency(principal=bearer)

    @keys.transactional()
    def book(request):
        booking = Booking.objects.create(amount=json.loads(request.body)["amount"])
        if booking.amount > 1000:
            raise Http404
        return JsonResponse({"id": booking.pk}, status=201)

    urlpatterns[:] = [path("bookings", book)]
    for name, amount, status, replayed, count in [
        ("a", 5000, 404, None, 0), ("a", 5000, 404, "true", 0), ("b", 5, 201, None, 1), ("b", 5, 201, "true", 1),
    ]:  # fmt: skip
        answer = Client().post("/bookings", {"amount": amount}, content_type="application/json", headers=headers(key + name))
        assert (answer.status_code, answer.headers.get("Idempotent-Replayed")) == (status, replayed)
        assert sql("SELECT count(*) FROM shop_booking") == [(count,)]
    connection.close()


def test_django_within_the_transaction_of_a_test(django_settings, key):
    """TestCase rolls back what a test has done: the claim is in a savepoint there."""
    from django.db import connection
    from django.test import TestCase
    from django.urls import path

    from idempotency_postgres.django import Idempotency, bearer, claim

    keys = Idempotency(principal=bearer)

    @keys.transactional()
    def pay(request):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO effect VALUES (%s)", [claim().key])
        if json.loads(request.body)["amount"] == 0:
            raise Http404
        return JsonResponse({"paid": 1}, status=201)

    urlpatterns[:] = [path("payments", pay)]

    class InATest(TestCase):
        databases = ["default"]

        def send(self, name, amount):
            fields = {"HTTP_AUTHORIZATION": "Bearer tenant", "HTTP_IDEMPOTENCY_KEY": f'"{key}{name}"'}
            answer = self.client.post("/payments", json.dumps({"amount": amount}), content_type="application/json", **fields)
            return answer.status_code, answer.headers.get("Idempotent-Replayed"), self.effects(name)

        def effects(self, name):
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM effect WHERE note = %s", [key + name])
                return cursor.fetchone()[0]

        def test(self):
            self.assertEqual([self.send("paid", 1), self.send("paid", 1)], [(201, None, 1), (201, "true", 1)])
            self.assertEqual([self.send("none", 0), self.send("none", 0)], [(404, None, 0), (404, "true", 0)])
            self.assertEqual(self.send("paid", 2)[0], 422)

    result = unittest.TestResult()
    unittest.TestSuite([InATest("test")]).run(result)
    assert not result.errors + result.failures, "\n".join(text for _, text in result.errors + result.failures)
    assert InATest("test").effects("paid") == 0
