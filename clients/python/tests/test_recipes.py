"""The programs of examples/recipes."""

import asyncio
import base64
import importlib.util
import json
import pathlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import psycopg_pool
import pytest

from idempotency_postgres.psycopg import database

from .conftest import drop

RECIPES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "recipes"


def program(name):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def recipe(request, dsn):
    """The module, in a database of its own."""
    name = request.param
    module = program(name)
    module.dbname = f"{dsn}_{name}"
    with psycopg.connect(dbname=dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {module.dbname} TEMPLATE template0 ENCODING 'UTF8'")
        try:
            with psycopg.connect(dbname=module.dbname, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION idempotency")
                connection.execute(module.SCHEMA)
                module.connection = connection
                yield module
        finally:
            drop(admin, module.dbname)


def rows(recipe, text, *values):
    return recipe.connection.execute(text, values).fetchall()


async def until(holds):
    for _ in range(12000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


# ---- webhooks ----


@pytest.fixture
def receiver():
    """Answers with the next of `statuses`, and the last one for ever."""
    got, statuses = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(({name.lower(): value for name, value in self.headers.items()}, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.statuses = got, statuses
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("recipe", ["webhooks"], indirect=True)
def test_the_schedule_of_webhooks(recipe):
    """Three days from the first attempt of the sender to the last one, and the record lives longer."""
    ((longest, ttl),) = rows(recipe, """
        WITH policy AS (SELECT jsonb_object_agg(option, value) AS o FROM idem_policy('webhooks'))
        SELECT sum(idem_backoff(attempt, (o ->> 'retry_base')::interval, (o ->> 'retry_cap')::interval)), min((o ->> 'ttl')::interval)
          FROM policy, generate_series(2, (o ->> 'max_attempts')::integer - 1) AS attempt""")  # fmt: skip
    assert 3 <= longest.total_seconds() / 86400 < 3.5
    assert ttl > longest


@pytest.mark.parametrize("recipe", ["webhooks"], indirect=True)
async def test_webhooks(recipe, receiver):
    """One fails twice; one is refused for good; one is given up, and sent again by hand."""
    recipe.connection.execute("SELECT idem_policy_alter('webhooks', retry_base => '0', max_attempts => 4)")
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    recipe.connection.execute("INSERT INTO receiver VALUES ('shop', %s, 'secret')", (url,))
    statuses = lambda: dict(rows(recipe, "SELECT key, status FROM idempotency.records"))  # noqa: E731
    with psycopg_pool.ConnectionPool(f"dbname={recipe.dbname}", min_size=2, max_size=10, open=True) as pool:
        own = recipe.sender(pool, poll=0.05)
        working = asyncio.ensure_future(asyncio.to_thread(own.run))
        try:
            receiver.statuses[:] = [503, 404, 204]
            for _ in range(2):
                with recipe.connection.transaction():
                    recipe.queue(recipe.connection, "evt-1", "shop", {"n": 1})
            await until(lambda: statuses() == {"evt-1:shop": "completed"})
            assert len(receiver.got) == 3
            for fields, body in receiver.got:
                assert (fields["webhook-id"], json.loads(body)) == ("evt-1", {"n": 1})
                assert fields["webhook-signature"] == recipe.signature(b"secret", "evt-1", fields["webhook-timestamp"], body)

            receiver.statuses[:] = [410]
            recipe.queue(recipe.connection, "evt-2", "shop", {"n": 2})
            await until(lambda: statuses()["evt-2:shop"] == "completed")
            assert len(receiver.got) == 4

            receiver.statuses[:] = [500]
            recipe.queue(recipe.connection, "evt-3", "shop", {"n": 3})
            await until(lambda: statuses()["evt-3:shop"] == "exhausted")
            assert len(receiver.got) == 7
            receiver.statuses[:] = [200]
            recipe.send_again(pool, "evt-3:shop", "the receiver is repaired")
            await until(lambda: statuses()["evt-3:shop"] == "completed")
            assert len(receiver.got) == 8
        finally:
            own.stop()
            await working


def test_the_signature_of_a_known_webhook():
    """Of the specification's own example."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = program("webhooks").signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


# ---- an outbox ----


@pytest.mark.parametrize("recipe", ["outbox"], indirect=True)
async def test_an_outbox(recipe):
    """An event of a transaction that rolls back never leaves; every other one is poison, and delays none of the good ones."""
    recipe.connection.execute("SELECT idem_policy_alter('outbox/*', retry_base => '0', max_attempts => 4)")
    published, tried, repaired = [], [], threading.Event()

    def publish(topic, id, body):
        tried.append(id)
        if body["poison"] and not repaired.is_set():
            raise ValueError("the broker does not take it")
        published.append((topic, id))

    with pytest.raises(ZeroDivisionError), recipe.connection.transaction():
        recipe.emit(recipe.connection, "orders", "never", {"poison": False})
        raise ZeroDivisionError
    for number in range(6):
        with recipe.connection.transaction():
            recipe.emit(recipe.connection, "orders", f"e-{number}", {"poison": number % 2 == 0})
    good, poison = [f"e-{n}" for n in (1, 3, 5)], [f"e-{n}" for n in (0, 2, 4)]
    parked = lambda: [key for _, key, _ in rows(recipe, recipe.PARKED)]  # noqa: E731
    with psycopg_pool.ConnectionPool(f"dbname={recipe.dbname}", min_size=2, max_size=10, open=True) as pool:
        own = recipe.relay(pool, publish, poll=0.05)
        working = asyncio.ensure_future(asyncio.to_thread(own.run))
        try:
            await until(lambda: parked() == poison and sorted(published) == [("orders", id) for id in good])
            assert sorted(tried) == sorted(good + 3 * poison)
            repaired.set()
            recipe.again(recipe.connection, "the broker is repaired")
            await until(lambda: sorted(published) == [("orders", id) for id in sorted(good + poison)])
        finally:
            own.stop()
            await working
    assert rows(recipe, "SELECT status, count(*) FROM idempotency.records GROUP BY status") == [("completed", 6)]


# ---- batches of messages ----


@pytest.mark.parametrize("recipe", ["batches"], indirect=True)
def test_batches(recipe):
    """Delivered again, in other batches, twice in one; a bad one among good ones, which is good later."""
    connection = recipe.connection
    connection.execute("INSERT INTO stock VALUES ('pen', 10), ('cup', 1)")
    message = lambda number, item="pen", n=1: {"id": f"m-{number}", "item": item, "n": n}  # noqa: E731
    stock = lambda: dict(rows(recipe, "SELECT item, n FROM stock"))  # noqa: E731
    assert recipe.take(connection, [message(1), message(2), message(1)]) == []
    assert recipe.take(connection, [message(2), message(3)]) == []
    assert stock() == {"pen": 7, "cup": 1}
    ((failed, error),) = recipe.take(connection, [message(4), message(5, "cup", 2), message(6)])
    assert failed == message(5, "cup", 2) and "stock_n_check" in error
    assert stock() == {"pen": 5, "cup": 1}
    connection.execute("UPDATE stock SET n = 2 WHERE item = 'cup'")
    assert recipe.take(connection, [message(4), message(5, "cup", 2)]) == []
    assert stock() == {"pen": 5, "cup": 0}
    connection.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'mishap' USING ERRCODE = NEW.item; END $$;"
        "CREATE TRIGGER fails BEFORE UPDATE ON stock FOR EACH ROW WHEN (NEW.item ~ '[0-9]') EXECUTE FUNCTION fail()")  # fmt: skip
    for number, state in enumerate(("54000", "55000", "58030"), 7):
        connection.execute("INSERT INTO stock VALUES (%s, 10)", [state])
        bad = message(f"{number}-bad", state)
        ((failed, _),) = recipe.take(connection, [message(number), bad])
        assert failed == bad
    for state in ("40001", "40P01", "53100", "57P01"):
        connection.execute("INSERT INTO stock VALUES (%s, 10)", [state])
        with pytest.raises(psycopg.Error):
            recipe.take(connection, [message(10), message(11, state)])
    assert stock()["pen"] == 2


# ---- a batch over HTTP ----


@pytest.mark.parametrize("recipe", ["batch_request"], indirect=True)
def test_a_batch_request(recipe):
    """A repeat with another item, after one was refused and one has failed."""
    with psycopg_pool.ConnectionPool(f"dbname={recipe.dbname}", min_size=2, open=True) as pool:
        http = recipe.application(database(pool)).test_client()

        def send(*items):
            answer = http.post("/payments/batch", json=list(items), headers={"Authorization": "Bearer shop", "Idempotency-Key": '"b-1"'})
            return answer.status_code, [(one["id"], one["status"], one.get("replayed"), one.get("error")) for one in answer.get_json()["items"]]

        a, b, c = ({"id": id, "amount": amount} for id, amount in (("a", 5), ("b", 5000), ("c", 7)))
        assert send(a, b) == (207, [("a", 201, False, None), ("b", 422, False, None)])
        assert send(a, b, c) == (207, [("a", 201, True, None), ("b", 422, True, None), ("c", 201, False, None)])
        assert send({**a, "amount": 6}) == (207, [("a", 409, None, "mismatch")])
        assert rows(recipe, "SELECT account, amount FROM payment ORDER BY amount") == [("shop", 5), ("shop", 7)]
        assert http.post("/payments/batch", json=[a], headers={"Authorization": "Bearer shop"}).status_code == 400


# ---- a saga ----


class Services:
    """They know a key that they have seen. `lost` calls take effect without an answer."""

    def __init__(self, refuses=()):
        self.done, self.calls, self.refuses, self.lost = [], [], refuses, set()

    def __call__(self, name, order, key):
        self.calls.append(name)
        if key not in [known for _, known in self.done]:
            self.done.append((name, key))
        if name in self.lost:
            self.lost.remove(name)
            raise ConnectionError(f"no answer from {name}")
        return {"accepted": name not in self.refuses}


@pytest.mark.parametrize("recipe", ["saga"], indirect=True)
@pytest.mark.parametrize("refuses, effects, status", [
    ((), ["reserve", "charge", "ship"], 201),
    (("ship",), ["reserve", "charge", "ship", "refund", "unreserve"], 422),
])  # fmt: skip
async def test_a_saga(recipe, refuses, effects, status):
    """Each call loses an answer once. The process of a second order has died before its first call."""
    recipe.connection.execute("SELECT idem_policy_alter('orders', retry_base => '0')")
    services, dead = Services(refuses), Services(refuses)
    services.lost = set(effects)
    order = {"id": "o-1", "customer": "mira", "item": "pen"}
    other = {**order, "id": "o-2"}
    recipe.connection.execute("SELECT idem_begin('o-2', %s, scope => 'orders', principal => 'mira', lease => '1 ms')", (json.dumps(other),))
    with psycopg_pool.ConnectionPool(f"dbname={recipe.dbname}", min_size=2, max_size=10, open=True) as pool:
        db = database(pool)
        with pytest.raises(ConnectionError):
            recipe.begin(db, order, services)
        own = recipe.resumer(db, services, poll=0.05)
        working = asyncio.ensure_future(asyncio.to_thread(own.run))
        try:
            ended = "SELECT count(*) FROM idempotency.records WHERE scope = 'orders' AND status = 'completed'"
            await until(lambda: rows(recipe, ended) == [(2,)])
        finally:
            own.stop()
            await working
        for key, one in (("o-1", order), ("o-2", other)):
            assert [name for name, made in services.done if made.startswith(f"{key}:")] == effects
            assert recipe.begin(db, one, dead).answer.status == status
    assert len(services.calls) == 3 * len(effects) and dead.calls == []  # twice for a lost answer, and once for the other order


# ---- jobs ----


@pytest.mark.parametrize("recipe", ["jobs"], indirect=True)
async def test_jobs(recipe):
    """Scheduled by two nodes, and again when done; one fails until its cause is repaired."""
    recipe.connection.execute("SELECT idem_policy_alter('jobs', retry_base => '0')")
    recipe.connection.execute("INSERT INTO charge VALUES ('2026-01-01', 5), ('2026-01-01', 6), ('2026-01-02', 7)")
    recipe.connection.execute("INSERT INTO daily_total VALUES ('2026-01-02', 0)")  # the cause: it is there already
    states = lambda: dict(rows(recipe, "SELECT key, status FROM idempotency.records"))  # noqa: E731
    for _ in range(2):
        recipe.schedule(recipe.connection, "totals", "2026-01-01")
    assert rows(recipe, "SELECT attempt FROM idempotency.records") == [(1,)]
    with psycopg_pool.ConnectionPool(f"dbname={recipe.dbname}", min_size=2, max_size=4, open=True) as pool:
        own = recipe.runner(pool, poll=0.05)
        working = asyncio.ensure_future(asyncio.to_thread(own.run))
        try:
            await until(lambda: states() == {"totals:2026-01-01": "completed"})
            recipe.schedule(recipe.connection, "totals", "2026-01-01")
            recipe.schedule(recipe.connection, "totals", "2026-01-02")
            failed = "SELECT attempt > 2 FROM idempotency.records WHERE key = 'totals:2026-01-02' AND error LIKE 'duplicate key%%'"
            await until(lambda: rows(recipe, failed) == [(True,)])
            recipe.connection.execute("DELETE FROM daily_total WHERE day = '2026-01-02'")
            await until(lambda: states()["totals:2026-01-02"] == "completed")
        finally:
            own.stop()
            await working
    assert [amount for (amount,) in rows(recipe, "SELECT amount FROM daily_total ORDER BY day")] == [11, 7]
