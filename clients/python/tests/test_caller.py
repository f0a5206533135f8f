"""The calling side, against a service that is harmed between."""

import email.utils
import re
import time

import httpx
import psycopg_pool
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from idempotency_postgres.caller import NotFinal, Pauses, acall, call, is_final, new_key
from idempotency_postgres.psycopg import database
from idempotency_postgres.starlette import Idempotency, bearer, claim

QUICK = Pauses(base=0.005, cap=0.02)


class Between(httpx.AsyncBaseTransport):
    """Faults, one for each sending, between the caller and the service."""

    def __init__(self, app, faults):
        self.service, self.faults, self.sent = httpx.ASGITransport(app), list(faults), 0

    async def handle_async_request(self, request):
        self.sent += 1
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, httpx.Response):
            return fault
        if fault == "lost":
            raise httpx.ConnectError("lost")
        response = await self.service.handle_async_request(request)
        if fault == "unanswered":
            raise httpx.ReadError("no answer")
        return response


@pytest.fixture
async def service(dsn):
    async def pay(request):
        await claim().client.execute("INSERT INTO effect VALUES (%s)", (claim().key,))
        return Response(claim().key, (await request.json()).get("status", 201))

    async with psycopg_pool.AsyncConnectionPool(f"dbname={dsn}", open=False, min_size=1) as pool:
        keys = Idempotency(database(pool), principal=bearer)
        yield Starlette(routes=[Route("/", pay, methods=["POST"], middleware=[keys.transactional()])])


def sender(between, **body):
    async def send(headers):
        async with httpx.AsyncClient(transport=between, base_url="http://service") as http:
            return await http.post("/", json=body, headers={**headers, "Authorization": "Bearer me"})

    return send


def effects(sql, key):
    return sql("SELECT count(*) FROM effect WHERE note = %s", key)[0][0]


def test_keys_are_uuids_of_version_7_in_the_order_of_time():
    keys = [new_key(1), new_key(2**30), new_key()]
    assert all(re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", key) for key in keys)
    assert sorted(keys) == keys
    assert len({new_key() for _ in range(1000)}) == 1000


@pytest.mark.parametrize("faults", [(), ("lost",), ("unanswered",), ("lost", httpx.Response(502), "unanswered", httpx.Response(429))])
async def test_faults_between(service, sql, faults):
    stored = []
    between = Between(service, faults)
    response = await acall(sender(between), store=lambda key: stored.append((key, effects(sql, key))), pauses=QUICK)
    assert (response.status_code, stored, between.sent) == (201, [(response.text, 0)], len(faults) + 1)
    assert effects(sql, response.text) == 1


async def test_retry_after_is_obeyed(service):
    start = time.monotonic()
    date = email.utils.formatdate(time.time() + 2, usegmt=True)
    faults = [httpx.Response(503, headers={"Retry-After": "1"}), httpx.Response(503, headers={"Retry-After": date})]
    assert (await acall(sender(Between(service, faults)), pauses=QUICK)).status_code == 201
    assert time.monotonic() - start >= 1


async def test_it_gives_up_and_goes_on_later_with_the_same_key(service, sql):
    between = Between(service, ["unanswered", "lost"])
    with pytest.raises(NotFinal) as failure:
        await acall(sender(between), pauses=Pauses(attempts=2, base=0.005))
    response = await acall(sender(between), key=failure.value.key, pauses=QUICK)
    assert (response.headers["Idempotent-Replayed"], effects(sql, failure.value.key)) == ("true", 1)


@pytest.mark.parametrize("status, sent", [(422, 1), (500, 3)])
async def test_what_is_final_ends_it(service, status, sent):
    between = Between(service, [])
    if status == 422:
        assert (await acall(sender(between, status=422), pauses=QUICK)).status_code == 422
    else:
        with pytest.raises(NotFinal):
            await acall(sender(between, status=status), pauses=Pauses(attempts=3, base=0.005))
    assert between.sent == sent


def test_blocking():
    answers = [httpx.Response(503), httpx.ReadError("lost"), httpx.Response(201)]

    def send(headers):
        assert headers == {"Idempotency-Key": '"k"'}
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert call(send, key="k", pauses=QUICK).status_code == 201
    with pytest.raises(NotFinal):
        call(lambda headers: httpx.Response(503, headers={"Retry-After": "3600"}), pauses=QUICK)
    with pytest.raises(KeyError):
        call(lambda headers: {}["x"], errors=(httpx.TransportError,))


def test_which_answers_are_final():
    def problem(word, status):
        content = b'{"type": "https://x/problems/idempotency/%s"}' % word.encode()
        return httpx.Response(status, headers={"Content-Type": "application/problem+json"}, content=content)

    for word, status, final in [
        ("in-progress", 409, False), ("in-progress", 425, False), ("unknown", 409, False), ("retry-later", 503, False),
        ("mismatch", 422, True), ("expired", 412, True), ("exhausted", 500, True), ("failed", 500, True),
    ]:  # fmt: skip
        assert is_final(problem(word, status)) == final, word
    for status, final in [(200, True), (404, True), (409, True), (408, False), (429, False), (500, False), (503, False)]:
        assert is_final(httpx.Response(status)) == final
    assert is_final(httpx.Response(503, headers={"Idempotent-Replayed": "true"}))
