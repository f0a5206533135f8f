"""Executes COUNT orders by the helper for callers, and prints each key with the last answer's status."""

import sys
from concurrent.futures import ThreadPoolExecutor

import httpx

from idempotency_postgres.caller import Pauses, call, new_key

url, token, count = sys.argv[1:]
FIELDS = {"Authorization": f"Bearer {token}", "Connection": "close"}


def order(_):
    key = new_key()
    answer = call(
        lambda headers: httpx.post(url, json={"effect": "called"}, headers={**FIELDS, **headers}, timeout=5),
        key=key, errors=(httpx.TransportError,), pauses=Pauses(base=0.02, cap=0.5, attempts=30),
    )  # fmt: skip
    return f"{key} {answer.status_code}"


with ThreadPoolExecutor(4) as pool:
    for line in pool.map(order, range(int(count))):
        print(line)
