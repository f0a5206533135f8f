"""A saga: calls to several services for one order, each once, resumed where a crash has cut it off.

Each call has a key of its own, made from the order's key. `step` notes its answer on the order's record, so a later
attempt does not call again. A refusal undoes what was done, in reverse.
"""

import json

from idempotency_postgres import Answer, Request, leased, worker

SCHEMA = "SELECT idem_policy_set('orders', store_request => true, retry_base => '5 seconds', retry_cap => '10 minutes')"
STEPS = [("reserve", "unreserve"), ("charge", "refund"), ("ship", None)]


def run(claim, order, call):
    """`call(name, order, key)` returns a service's answer, {"accepted": true or false}; it raises if there is none."""

    def once(name):
        return claim.step(name, lambda: call(name, order, f"{claim.key}:{name}"))

    to_undo = []
    for name, undo in STEPS:
        if not once(name)["accepted"]:
            for one in reversed(to_undo):
                once(one)
            return Answer(422, body=json.dumps({"refused": name}).encode())
        to_undo.append(undo)
    return Answer(201, body=b'{"shipped": true}')


def begin(db, order, call):
    """The request: its answer, or an exception. Then `resumer` continues."""
    request = Request(order["id"], "orders", order["customer"], json=json.dumps(order))
    return leased(db, request, lambda claim: run(claim, order, call))


def resumer(db, call, poll=5.0):
    """Of processes that died, and of services that did not answer."""
    return worker(db, "orders", lambda work: run(work, work.request, call), mode="leased", size=4, poll=poll)
