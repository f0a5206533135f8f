"""Did it hold? What the clients were told and what the database says, read with plain SQL, is made a
history of test/chaos, and its checker judges it. What only payments have is looked at here."""

import collections
import hashlib
import json
import os
import re
import subprocess

from clients import now

SCOPE = "POST /payments"
SHOWN = 3  # cases against a check
UNDECIDED = 0  # no invariant: keys for which the search for an order was cut off
DAY = 86400 * 10**6  # nothing ends in the demo
RULES = {"ttl": DAY, "retention": DAY, "lease": DAY, "max_attempts": 0, "unknown_on_expiry": False,
         "closed": False}

# The meaning for payments of the checker's invariants, by their numbers in docs/reliability.md.
CLAIMS = (
    ("every intent was charged exactly once, customer, amount and currency, and nothing else was",
     {1, 4, 5, 11, 14, 15, 16}),
    ("every repeat got the byte-identical first answer, headers and body, marked as a repeat",
     {2, 3, 10}),
    ("each record is completed and holds the very answer that was given", {8}),
    ("nobody was told that a request is in progress while there was none", {17}),
    ("all answers to a key fit one order of events", set(range(1, 25))),
)


def query(sql):
    """The rows as dictionaries."""
    text = subprocess.run(
        ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", f"SELECT to_json(q) FROM ({sql}) AS q"],
        check=True, stdout=subprocess.PIPE, env={**os.environ, "PGCLIENTENCODING": "UTF8"}).stdout
    return [json.loads(line) for line in text.decode().splitlines()]


def digest(sending):
    said = sending.headers + sending.body
    return f"{sending.body[:24]}#{hashlib.sha256(said.encode()).hexdigest()}"


def effect_of(sending, line):
    """The name of an effect says all of it: the charge's id, whose it is, and what was paid."""
    try:
        return f"{json.loads(sending.body)['id']} {line.tenant} {line.pays}"
    except (ValueError, KeyError, TypeError):
        return f"answer without an id: {sending.body}"


class Story:
    """A history of calls that claim, execute and complete at once, each alone in a transaction."""

    def __init__(self, lines, sendings):
        self.lines, self.sendings = lines, sendings
        self.told = {}  # by tenant and key: the one answer
        for line in lines:
            if line.key is not None:
                self.told[line.tenant, line.key] = None
        for sending in sendings:
            self.remember(sending)

    def name_of(self, sending):
        line = self.lines[sending.line - 1]
        return line.tenant, line.key

    def remember(self, sending):
        """Rather the first that was no replay. Where an answer did not arrive nobody knows it, but
        this is the only one that it can have been."""
        name = self.name_of(sending)
        if name not in self.told or sending.ending != "answered" or sending.status != 201:
            return
        known = self.told[name]
        if known is None or (known.replayed and not sending.replayed):
            self.told[name] = sending

    def write(self, file, charges, records):
        entries = [{"scopes": {SCOPE: RULES}, "effects_known": True,
                    "early_rows": False}]
        for charge in charges:
            key = self.key(charge["tenant"], charge["key"] or "")
            entries.append({"effect": {"id": charge["name"], "transaction": 0, "key": key}})
        calls = [*map(self.call, self.sendings), *map(self.first_try, self.sendings),
                 *self.looks(records)]
        for number, call in enumerate(filter(None, calls), start=1):
            entries.append({"call": {"transaction": number, "alone": True, **call}})
        with open(file, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(entry) + "\n" for entry in entries)

    @staticmethod
    def key(tenant, key):
        return {"scope": SCOPE, "principal": tenant, "key": key}

    def call(self, sending):
        line, name = self.lines[sending.line - 1], self.name_of(sending)
        if name not in self.told or sending.ending == "unreached":
            return None
        mine = sending.status == 201 and sending.ending == "answered"
        answer = sending if mine else self.told[name]
        asked = {"fingerprint": line.n + 1 if line.expect == 422 else 1, "status_code": 201}
        if answer:
            answered_line = self.lines[answer.line - 1]
            asked["body"] = digest(answer)
            # If no client was told of the execution, it may be any of those without an answer.
            if mine or answer.replayed:
                asked["effect"] = effect_of(answer, answered_line)
        call = {"session": line.n, "function": "execute", "key": self.key(*name), "asked": asked,
                "result": "info", "invoked": sending.invoked}
        # A 5xx may stand for an unconfirmed commit.
        if 0 < sending.status < 500:
            call.update(result="ok", returned=sending.returned,
                        answer=self.answer(sending, asked.get("body", "")))
        return call

    def first_try(self, sending):
        """A service whose COMMIT got no answer asks again, as its client library has it, and finds
        what it did itself: a client is told of a replay, and nobody of the execution."""
        told = self.told.get(self.name_of(sending))
        if not (sending.ending == "answered" and sending.replayed and told and told.replayed):
            return None
        call = self.call(sending)
        call.update(result="info")  # with the end that it has: by then it is over
        del call["answer"]
        return call

    @staticmethod
    def answer(sending, body):
        outcomes = {201: "replay" if sending.replayed else "execute", 422: "mismatch",
                    409: "in_progress"}
        answer = {"outcome": outcomes.get(sending.status, str(sending.status))}
        if sending.status == 201:
            answer.update(attempt=1, status="completed", status_code=201, body=body)
        return answer

    def looks(self, records):
        """As if each key that somebody meant, or that is there, were looked up now."""
        stored = {(record["principal"], record["key"]): record for record in records}
        for name in {**self.told, **stored}:
            look = {"function": "get", "key": self.key(*name), "invoked": now(), "returned": now()}
            if name in stored:
                look["answer"] = self.found(stored[name], self.told.get(name))
            yield look

    @staticmethod
    def found(record, told):
        """A stored header appears in the answer as it is, among those that the server adds."""
        same = told and told.body == record["body"] and all(
            f"{name.lower()}: {value}\n" in told.headers
            for name, value in (record["headers"] or {}).items())
        return {"found": True, "status": record["status"], "attempt": record["attempt"],
                "status_code": record["status_code"] or 0,
                "body": digest(told) if same else f"another: {record['body']}"}


def check(claim, cases, word="FAILED "):
    """Prints a line, and the first few cases against it."""
    print(word if cases else "ok     ", claim)
    for case in cases[:SHOWN]:
        print("       ", case)
    if len(cases) > SHOWN:
        print("        and", len(cases) - SHOWN, "more")
    return not cases


def violations(options, history):
    """What the checker has found, by invariant, and by UNDECIDED what it could not decide."""
    done = subprocess.run([options.chaos, "--check", history], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1, 4):
        raise RuntimeError("the checker failed")
    found = collections.defaultdict(list)
    counts = r"^  violated: invariant (\d+), (\d+) times$"
    for number, count in re.findall(counts, done.stdout, re.M):
        found[int(number)] = [f"invariant {number}"] * int(count)
    for number, what in re.findall(r"^    (\d+): (.*)$", done.stdout, re.M):
        cases = found[int(number)]
        cases[cases.index(f"invariant {number}")] = of_line(what)
    for what in re.findall(r"^    undecided: (.*)$", done.stdout, re.M):
        found[UNDECIDED].append(of_line(what))
    if (done.returncode != 0) != bool(found):
        raise RuntimeError("the checker was not understood")
    return found


def of_line(what):
    """The whole reason, whatever its length: somebody has to find the key."""
    line = re.search(r'"session":(\d+)', what)
    return (f"line {line[1]}: " if line else "") + what


def judge(options, lines, crew, counts, harmed, history):
    """Prints a line for each check: True if all hold, None if that was not decided."""
    charges = query("SELECT concat_ws(' ', id, tenant, customer, amount, currency) AS name,"
                    "       tenant, key FROM payments.charge")
    records = query("SELECT principal, key, status, status_code, attempt, headers,"
                    "       convert_from(body, 'UTF8') AS body"
                    f" FROM idempotency.records WHERE scope = '{SCOPE}'")
    Story(lines, crew.sendings).write(history, charges, records)
    found = violations(options, history)
    undecided = found.pop(UNDECIDED, [])
    held = True
    for claim, invariants in CLAIMS:
        cases = [case for number in sorted(invariants) for case in found.pop(number, [])]
        held &= check(claim, cases)
    refused = [f"line {line.n}: answered {crew.answers[line.n].status} instead of {line.expect}"
               for line in lines if crew.answers[line.n].status != line.expect]
    held &= check("what was to be refused was refused, and everything else was not", refused)
    held &= check("each balance is the sum of its charges", wrong_balances())
    told, untold = counts["executed"], counts["lost"] + counts["impatient"] + counts["5xx"]
    held &= check("the counts add up: every charge was told of, or its answer lost",
                  [] if told <= len(charges) <= told + untold
                  else [f"{len(charges)} charges, {told} told of"])
    held &= check("faults of each kind really hit", missing_faults(counts, harmed))
    check("the search for these orders came to an end", undecided, "UNDECIDED ")
    return None if held and undecided else held


def write_tables(folder):
    """What the verdict was read from, a file for each table, a row a line."""
    os.makedirs(folder, exist_ok=True)
    for table in ("payments.charge", "payments.account", "idempotency.records"):
        with open(f"{folder}/{table}.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in query(f"TABLE {table}"))


def wrong_balances():
    rows = query("SELECT concat_ws(' ', tenant, customer, currency) AS name FROM payments.account"
                 "  FULL JOIN (SELECT tenant, customer, currency, sum(amount) AS total"
                 "               FROM payments.charge GROUP BY tenant, customer, currency) AS c"
                 " USING (tenant, customer, currency) WHERE balance IS DISTINCT FROM total")
    return [row["name"] for row in rows]


def missing_faults(counts, harmed):
    died = harmed.get
    wanted = {
        "no claim died open with its service": died("claims that died with their service"),
        "no claim died open with its connection": died("claims that died with their backend"),
        "no client lost its answer to a killed service": counts["lost"],
        "no client hung up on an answer": counts["unheard"],
        "no client was killed before it read its answer": counts["crashed"],
        "no client hung up while the service was at work": counts["impatient"],
    }
    return [complaint for complaint, count in wanted.items() if not count]
