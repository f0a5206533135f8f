import datetime
import json
import os
import uuid

import django
from django.conf import settings
from django.db import connection, connections, transaction
from django.http import HttpResponse, JsonResponse
from django.test import RequestFactory
from django.urls import path

from frame import PATH, Driver, failure, pooler, shown

SERVER = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ["PGDATABASE"], "HOST": os.environ["PGHOST"], "PORT": os.environ.get("PGPORT", ""),
    "USER": os.environ.get("PGUSER", ""),
}  # fmt: skip
settings.configure(
    DATABASES={
        "default": SERVER,
        "requests": {**SERVER, "ATOMIC_REQUESTS": True},
        "pooled": {**SERVER, "HOST": pooler()["host"], "PORT": pooler()["port"]},
        "pooled2": {**SERVER, "HOST": pooler()["host"], "PORT": pooler()["port"]},
    },
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
)  # fmt: skip
django.setup()

# page: transaction
BEGIN = """
SELECT outcome, status_code, headers, body, idem_problem(c)
  FROM idem_begin(%s, %s::jsonb, scope => 'pay', principal => %s) AS c
"""
COMPLETE = "SELECT idem_complete(%s, 201, %s::bytea, %s::jsonb, scope => 'pay', principal => %s)"


def pay(key, tenant, amount):
    with transaction.atomic(), connection.cursor() as cursor:  # without atomic() each statement commits
        cursor.execute(BEGIN, [key, json.dumps({"amount": amount}), tenant])
        outcome, status, headers, body, problem = cursor.fetchone()
        if problem:
            problem = json.loads(problem)
            return JsonResponse(problem, status=problem["status"], content_type="application/problem+json")
        if outcome == "replay":
            return HttpResponse(bytes(body), status=status, headers=json.loads(headers))
        cursor.execute("INSERT INTO payment (amount) VALUES (%s) RETURNING id", [amount])
        body, headers = json.dumps({"id": cursor.fetchone()[0]}).encode(), {"Content-Type": "application/json"}
        cursor.execute(COMPLETE, [key, body, json.dumps(headers), tenant])
    return HttpResponse(body, status=201, headers=headers)
# page: end


# A view that sends a given answer; with ATOMIC_REQUESTS its transaction is the request's.
def view(request, status):
    with connections["requests"].cursor() as cursor:
        cursor.execute("SELECT outcome FROM idem_begin(%s)", [f"view-{status}"])
        cursor.execute("SELECT idem_complete(%s, %s)", [f"view-{status}", status])
    return HttpResponse(status=status)


urlpatterns = [path("view/<int:status>", view)]


def dictionaries(sql, *values, using="default"):
    with connections[using].cursor() as cursor:
        cursor.execute(sql, values or None)
        return [dict(zip([column[0] for column in cursor.description], row)) for row in cursor.fetchall()]


def scalar(sql, *values, using="default"):
    return list(dictionaries(sql, *values, using=using)[0].values())[0]


def tries(driver):
    def rolled_back(*statements):
        with transaction.atomic():
            try:
                return [scalar(sql, *values) for sql, *values in statements][-1]
            finally:
                transaction.set_rollback(True)

    begun, completed, lease = driver.asks(rolled_back)

    def each(keys):
        with transaction.atomic():
            try:
                return [row["idem_once_each"] for row in dictionaries("SELECT idem_once_each(%s, scope => 'keys')", keys)]
            finally:
                transaction.set_rollback(True)

    def asked(status):
        """The state of a view's claim after the request."""
        from django.core.handlers.wsgi import WSGIHandler

        WSGIHandler().get_response(RequestFactory().get(f"/view/{status}"))
        return f"`{scalar('SELECT status FROM idem_get(%s)', f'view-{status}')}` is committed"

    body = completed("%s::bytea", PATH.encode())
    attempt = driver.attempt
    attempt("key", "`%s` with a `str`", lambda: begun("%s", "k"))
    attempt("key", "`%s` with a `uuid.UUID`", lambda: begun("%s", uuid.uuid4()))
    driver.keys("`%s` with a `list` of `str`", each)
    attempt("request", "`%s` with a `str` of JSON", lambda: begun("'k', %s", '{"a": 1}'))
    attempt("request", "`%s` with a `dict`", lambda: begun("'k', %s", {"a": 1}))
    attempt("request", "`%s::jsonb` with `bytes`", lambda: begun("'k', %s::jsonb", b'{"a": 1}'))
    attempt("body", "`%s::bytea` with `bytes`", lambda: shown(body))
    attempt("body", "`%s` with a `str`", lambda: shown(completed("%s", PATH)))
    attempt("body", "`%s::bytea` with a `str`", lambda: shown(completed("%s::bytea", PATH)))
    attempt("headers", "`%s` with a `str` of JSON", lambda: completed("'', %s", '{"X-A": "1"}') and None)
    attempt("headers", "`%s` with `{\"X-A\": 1}`", lambda: completed("'', %s", '{"X-A": 1}'))
    attempt("lease", "`%s` with `30`", lambda: lease("%s", 30))
    attempt("lease", "`%s` with `\"30000\"`", lambda: lease("%s", "30000"))
    attempt("lease", "`%s` with a `timedelta`", lambda: lease("%s", datetime.timedelta(seconds=30)))
    attempt("principal", "`%s` with `None`", lambda: begun("'k', principal => %s", None))
    attempt("percent", "`'100%'` in the text, with parameters", lambda: begun("'100%', scope => %s", "s"))
    driver.token(lambda token: scalar("SELECT idem_extend('token', %s) > now()", token))
    driver.autocommit("begin and complete outside of `transaction.atomic()`")
    driver.error(
        "`error.__cause__.sqlstate`", lambda: scalar("SELECT idem_extend('token', %s)", 1), lambda error: error.__cause__.sqlstate
    )
    driver.attempt("ATOMIC_REQUESTS", "a view that returns a 201", lambda: asked(201))
    driver.attempt("ATOMIC_REQUESTS", "a view that returns a 503, and raises nothing", lambda: asked(503))
    driver.prepared(lambda: scalar("SELECT outcome FROM idem_begin(%s) -- ten times", "prepared"))
    names = iter(["pooled", "pooled2"])
    driver.pooled("", lambda: Pooled(next(names)))


class Pooled:
    def __init__(self, name):
        self.name, self.close = name, connections[name].close

    def begin(self):
        self.transaction = transaction.atomic(using=self.name)
        self.transaction.__enter__()

    def claim(self, key, scope):
        return scalar(f"SELECT scope FROM idem_begin(%s, scope => '{scope}')", key, using=self.name)

    def commit(self):
        self.transaction.__exit__(None, None, None)


def answered(*arguments):
    response = pay(*arguments)
    return response.status_code, dict(response.items()), response.content


def main():
    driver = Driver("django", f"Django {django.__version__}", dictionaries, failure)
    driver.columns()
    driver.check_pay(answered)
    tries(driver)
    driver.print()


main()
