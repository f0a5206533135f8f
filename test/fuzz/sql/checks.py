"""What must hold of a database after whatever callers did to it."""

from catalog import MANAGED

# NOT NULL and CHECK as the catalog has them, evaluated again over every row.
CONSTRAINTS = """
SELECT 'idempotency.' || c.relname, coalesce(pg_get_expr(k.conbin, k.conrelid), 'true')
  FROM pg_class c
  JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'c'
 WHERE c.relnamespace = 'idempotency'::regnamespace
UNION ALL
SELECT 'idempotency.' || c.relname, quote_ident(a.attname) || ' IS NOT NULL'
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped
 WHERE c.relnamespace = 'idempotency'::regnamespace AND c.relkind = 'r'
"""

# What the protocol promises of a record beyond what the table can say.
RECORDS = {
    "a final record has its time": "status NOT IN ('c', 'f') OR finished_at IS NOT NULL",
    "a record in progress has no result": "status <> 'i' OR (finished_at IS NULL AND body IS NULL)",
    "a record is remembered while it is replayed": "retained_until >= expires_at",
    "attempts count from one": "attempt >= 1",
    "tokens are positive": "token > 0",
    "a lease lasts": "lease_us > 0",
    "times are finite": "isfinite(created_at)",
    "only what waits for a decision has no end":
        "status = 'r' OR (isfinite(expires_at) AND isfinite(retained_until))",
    "status codes are those of HTTP": "status_code IS NULL OR status_code BETWEEN 200 AND 599",
    "keys have 1 to 255 characters": "length(key) BETWEEN 1 AND 255 AND key !~ '[[:cntrl:]]'",
    "an attempt begins after its record": "claimed_at >= created_at",
}  # fmt: skip

VIEWS = ("records", "in_flight", "abandoned", "sweeper", *(() if MANAGED else ("stats",)))


def broken_rules(connection):
    """Descriptions of what does not hold; none if all is well."""
    rules = [(f"{table}: {rule}", table, rule) for table, rule in connection.execute(CONSTRAINTS)]
    if len(rules) < 10:
        yield f"only {len(rules)} constraints were found"
    rules += [(name, "idempotency.record", rule) for name, rule in RECORDS.items()]
    for name, table, rule in rules:
        query = f"SELECT count(*) FROM {table} WHERE NOT coalesce(({rule}), true)"
        if bad := connection.execute(query).fetchone()[0]:
            yield f"{name}: {bad} rows"


def damaged_relations(connection):
    """Heap and indexes, compared tuple by tuple."""
    connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
    yield from connection.execute("SELECT * FROM verify_heapam('idempotency.record')")
    connection.execute(
        "SELECT bt_index_check(indexrelid, true) FROM pg_index"
        " WHERE indrelid = 'idempotency.record'::regclass"
    )
    for view in VIEWS:
        connection.execute(f"SELECT * FROM idempotency.{view}").fetchall()


def locks_left(connection):
    """Locks of keys and of live sessions, where no session is left."""
    return connection.execute(
        "SELECT objsubid, pid FROM pg_locks"
        " WHERE locktype = 'advisory' AND 18756 IN (objsubid, classid)"
    ).fetchall()
