"""Payment requests of two tenants, as their clients send them: some four thousand.

The same for a seed on every machine: only random.random() is used, the one sequence that Python
promises to keep between its versions.
"""

import copy
import json
import random
from datetime import datetime, timedelta, timezone

INTENTS = 2700
SHARED_KEYS = 60  # used by both tenants, for different payments
TENANTS = ("acme", "globex")
START = datetime(2025, 3, 14, 9, 0, 0, tzinfo=timezone.utc)
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

DESCRIPTIONS = (
    "Invoice 2025-03-0417", "Monthly plan", "Café crème and croissant", "Ticket Zürich–Genève",
    "発注 4711", "O'Reilly, \"SQL in anger\"", "Refill; 2 × 5 l", "Zażółć gęślą jaźń",
    "🍕 Margherita", "50% deposit\nsecond line", "C:\\orders\\new", "",
)

# A field of HTTP carries printable ASCII.
UNUSUAL_KEYS = (
    "a", "0", "-1", " leading space", "trailing space ", "two  spaces inside", "NULL", "null",
    "\"quoted\"", "'quoted'", "it's", "\"", "\"\"", "\\", "\\\\", "back\\slash", "ends with \\",
    "\\\"", "%", "_", "$1", "${key}", "{}", "[]", "()", ";", ",", "=", "a;b=c", "a, b", "?1", ":YQ==:",
    "@0", "*", "~", "!", "`", "^", "|", "#", "&", "<", ">", "/", "//", ".", "..", "...",
    "'; DROP TABLE payments.charge; --", "' OR '1'='1", "1); SELECT pg_sleep(10); --",
    "../../etc/passwd", "Idempotency-Key: x", "HTTP/1.1 200 OK",
    "<script>alert(1)</script>", "a:b", "a\\:b", "a,b;c=\"d\"", "https://example.org/?order=1&try=2#x",
    "order-9", "order-90", "order-900", "order-9000",  # one is the beginning of the next
    "Order-77", "order-77", "ORDER-77", "oRDER-77",  # only the letter case differs
    "I", "i", "l", "1", "O",
    "x" * 255, "x" * 254, "x" * 254 + "y", "\"" * 255, "\\" * 255, " " * 254 + "x",
)

# None of these fields is a valid key; None is a request without the field.
BAD_FIELDS = (
    None, "", "\"\"", "\" \"", "\"   \"", "\"" + "x" * 256 + "\"", "x" * 256, "\"" + "y" * 4000 + "\"",
    "\"open", "open\"", "\"", "\"a\"b\"", "\"a\" \"b\"", "\"a\", \"b\"", "a, b", "a b", "two words here",
    "\"bad \\escape\"", "\"ends with \\\"", "\"tab\tinside\"", "tab\tinside",
    "\"a\";", "\"a\";=1", "\"a\";UPPER=1", "\"a\" ;v=1", "a;v=1", "back\\slash",
    "\"caf\u00e9\"", "caf\u00e9", "\"ключ-42\"", "\"鍵-四二\"", "مفتاح-٤٢", "\"🔑\"", "\"\ufeffbom\"",
)

# Changes that make a payload another request, however similar the two look.
CHANGES = (
    ("another amount", lambda body: body["amount"].update(value=body["amount"]["value"] + "0")),
    ("another amount", lambda body: body["amount"].update(value="1" + body["amount"]["value"])),
    ("amount as a number",
     lambda body: body["amount"].update(value=float(body["amount"]["value"]))),
    ("another currency", lambda body: body["amount"].update(currency="GBP")),
    ("another customer", lambda body: body.update(customer=body["customer"].lower())),
    ("one more member", lambda body: body.update(tip=None)),
    ("one member less", lambda body: body.pop("description")),
)

rng = random.Random()  # seeded by requests()


def below(limit):
    return int(rng.random() * limit)


def pick(choices):
    return choices[below(len(choices))]


def digits(alphabet, count):
    return "".join(pick(alphabet) for _ in range(count))


def uuid4():
    h = digits("0123456789abcdef", 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{pick('89ab')}{h[17:20]}-{h[20:]}"


def ulid():
    return "01JP" + digits(CROCKFORD, 22)


def usual_key():
    return pick((
        uuid4,
        ulid,
        lambda: uuid4().upper(),
        lambda: f"order-{10000 + below(90000)}-{1 + below(3)}",
        lambda: f"pay:{digits('0123456789', 12)}",
    ))()


def quoted(key):
    """The key as a String of RFC 8941."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def field_otherwise(key):
    """Another way to write the same key in the field: bare, with a parameter, with padding."""
    forms = [quoted(key) + ";v=1", "  " + quoted(key) + "\t"]
    if all(c.isalnum() or c in "-:_" for c in key):
        forms += [key, key]
    return pick(forms)


def shuffled(items):
    return sorted(items, key=lambda _: rng.random())


def sent_at(moment):
    return (START + timedelta(seconds=moment)).isoformat(timespec="milliseconds")


asked = set()


def new_amount(customer):
    """No customer pays the same amount twice: by it the verdict knows what a charge was for."""
    while True:
        value, currency = f"{1 + below(400)}.{below(100):02d}", pick(("EUR", "EUR", "USD", "CHF"))
        if (customer, value, currency) not in asked:
            asked.add((customer, value, currency))
            return {"value": value, "currency": currency}


def new_card():
    """With some cards the payment takes its time, which others use to run into it."""
    if rng.random() < 0.10:
        return f"tok_slow_{5 + below(30)}"
    return "tok_" + digits(CROCKFORD.lower(), 10)


def new_body(customers, moment):
    customer = pick(customers)
    body = {
        "amount": new_amount(customer),
        "customer": customer,
        "description": pick(DESCRIPTIONS),
        "card": new_card(),
    }
    if rng.random() < 0.5:
        body["client_sent_at"] = sent_at(moment)
    return body


def as_sent(body):
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def spelled_otherwise(body):
    """The same JSON value: members in another order, other white space, other escapes."""
    members = dict(shuffled(body.items()))
    members["amount"] = dict(shuffled(body["amount"].items()))
    spacing = pick(((", ", ": "), (" , ", " :  "), (",", ":\t")))
    return json.dumps(members, ensure_ascii=True, separators=spacing)


class Line:
    """One request of one client.

    n        its number, from 1
    field    the Idempotency-Key as it is sent; None: it is not
    key      the key that is meant; None: the field holds none
    body     exactly as sent: order of members and white space are the client's
    pays     customer, amount and currency
    note     why it is there
    expect   201: belongs to a payment that is charged once; 422: a key used with another payload;
             400: no usable key
    after    is sent only when that line has been answered
    twin     is sent at the same moment as that line, which is the one before
    """

    def __init__(self, moment, tenant, key, body, note, expect=201, after=None, twin=None, field=None):
        self.moment, self.tenant, self.key, self.body = moment, tenant, key, body
        self.field = quoted(key) if field is None and key is not None else field
        self.note, self.expect, self.after, self.twin = note, expect, after, twin
        asked = json.loads(body)
        amount = asked["amount"]
        self.pays = f"{asked['customer']} {amount['value']} {amount['currency']}"


# The actions of clients with a payment that they have sent. Each takes the first line and its body
# as a value, and returns the lines that follow.

def nothing_more(first, body):
    return []


def double_click(first, body):
    return [Line(first.moment, first.tenant, first.key, first.body, "double click",
                 twin=first)]


def impatient_retries(first, body):
    return [Line(first.moment + 0.5 + 2 * i, first.tenant, first.key, first.body,
                 "retry, not waiting for an answer")
            for i in range(1 + below(3))]


def late_retry(first, body):
    return [Line(first.moment + 20 + below(200), first.tenant, first.key, first.body,
                 "retry, much later", after=first)]


def reworded_retry(first, body):
    return [Line(first.moment + 3 + below(30), first.tenant, first.key, spelled_otherwise(body),
                 "retry, other member order and white space, the key written otherwise",
                 field=field_otherwise(first.key))]


def retry_with_new_clock(first, body):
    moment = first.moment + 2 + below(60)
    later = as_sent(dict(body, client_sent_at=sent_at(moment)))
    return [Line(moment, first.tenant, first.key, later, "retry, another client_sent_at")]


def reused_key(first, body):
    what, change = pick(CHANGES)
    other = copy.deepcopy(body)
    change(other)
    moment = first.moment + 5 + below(100)
    lines = [Line(moment, first.tenant, first.key, as_sent(other), f"key used again: {what}", 422,
                  after=first)]
    if rng.random() < 0.5:
        lines.append(Line(moment + 1 + below(20), first.tenant, first.key, first.body,
                          "retry, after the key was misused", after=first))
    return lines


HABITS = ((0.56, nothing_more), (0.15, double_click), (0.08, impatient_retries), (0.06, late_retry),
          (0.06, reworded_retry), (0.04, retry_with_new_clock), (0.05, reused_key))


def habit():
    at = rng.random()
    for share, follow in HABITS:
        at -= share
        if at < 0:
            return follow
    return nothing_more


def keys():
    """(tenant, key, note) of every payment, each pair of tenant and key once."""
    shared = [f"{pick(('order', 'invoice'))}-{1000 + i}" for i in range(SHARED_KEYS)]
    named = [(tenant, key, "key that both tenants use") for key in shared for tenant in TENANTS]
    named += [(tenant, key, "unusual key") for key in UNUSUAL_KEYS for tenant in TENANTS]
    used = {(tenant, key) for tenant, key, _ in named}
    while len(named) < INTENTS:
        tenant, key = pick(TENANTS), usual_key()
        if (tenant, key) not in used:
            used.add((tenant, key))
            named.append((tenant, key, "payment"))
    return shuffled(named)


def payments(customers):
    for moment, (tenant, key, note) in enumerate(keys()):
        body = new_body(customers[tenant], moment)
        first = Line(moment, tenant, key, as_sent(body), note)
        yield first
        yield from habit()(first, body)


def bad_requests(customers):
    for field in BAD_FIELDS:
        for _ in range(2):
            tenant, moment = pick(TENANTS), below(INTENTS)
            note = "no key" if field is None else "not a key"
            body = as_sent(new_body(customers[tenant], moment))
            yield Line(moment, tenant, None, body, note, 400, field=field)


def requests(seed):
    rng.seed(seed)
    asked.clear()
    customers = {tenant: ["CUS_" + digits(CROCKFORD, 8) for _ in range(150)]
                 for tenant in TENANTS}
    lines = list(payments(customers)) + list(bad_requests(customers))
    lines.sort(key=lambda line: line.moment)  # stable: a double click stays beside its first click
    for n, line in enumerate(lines, start=1):
        line.n = n
    return lines
