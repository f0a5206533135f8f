"""The functions and procedures of the extension as the catalog has them, so that a new one is called by itself."""

import dataclasses
import os

QUERY = """
SELECT n.nspname || '.' || p.proname, p.proargnames, p.proargtypes::oid[]::int[],
       (SELECT coalesce(array_agg(t::regtype::text ORDER BY i), '{}')
          FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, i)),
       p.pronargdefaults, p.provariadic <> 0, p.prorettype = 'trigger'::regtype,
       p.prokind = 'p'
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
 WHERE e.extname = 'idempotency' AND p.prokind = 'f'
       -- The edition without C has functions that its owner alone may call.
   AND (p.pronamespace = e.extnamespace OR has_function_privilege('pg_monitor', p.oid, 'EXECUTE') OR NOT %s)
       -- SQL has no value of this type.
   AND NOT 'internal'::regtype = ANY (p.proargtypes)
 ORDER BY p.oid::regprocedure::text COLLATE "C"
"""


@dataclasses.dataclass(frozen=True)
class Argument:
    name: str
    oid: int
    type: str
    optional: bool


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    arguments: tuple
    variadic: bool
    trigger: bool
    procedure: bool

    def __str__(self):
        return f"{self.name}({', '.join(a.type for a in self.arguments)})"

    def may_succeed(self):
        refused = (*REFUSED, *NEEDS_CLUSTER, *(NEEDS_MODULE if MANAGED else ()))
        return not self.trigger and str(self).split(".", 1)[1] not in refused

    def takes(self, *names):
        return set(names) <= {argument.name for argument in self.arguments}

    def statement(self, chosen):
        """The call with these arguments, named, each a parameter."""
        given = []
        for number, argument in enumerate(chosen, 1):
            variadic = "VARIADIC " if self.variadic and argument is self.arguments[-1] else ""
            given.append(f'{variadic}"{argument.name}" => ${number}::{argument.type}')
        if self.procedure:
            return f"CALL {self.name}({', '.join(given)})"
        source = "" if self.trigger else "* FROM "
        return f"SELECT {source}{self.name}({', '.join(given)})"


# What an argument of any type is called with: one function for each. Rows of views are taken.
SHAPES = ("idempotency.stats_here", "idempotency.records", "text", "integer[]")
REFUSED = ("of_nodes(text)", "of_nodes(integer[])")
NEEDS_CLUSTER = ("idem_distribute(regclass)",)
NEEDS_MODULE = ("idem_stats_reset()", "idem_reseal()", "idem_verify_sealed()", "scope_stats()",
                "of_nodes(idempotency.stats_here)")


MANAGED = os.environ.get("IDEM_EDITION") == "managed"
# The module has them in pg_settings.
SETTINGS = ("default_ttl", "default_retention", "default_lease", "default_wait", "max_body_bytes", "audit_retention",
            "log_audit", "log_keys", "sweep_beside_calls")  # fmt: skip


def settings(connection):
    """Those that a session may change."""
    if MANAGED:
        return [f"idempotency.{name}" for name in SETTINGS]
    connection.execute("LOAD 'idempotency'")
    return [name for (name,) in connection.execute(
        "SELECT name FROM pg_settings WHERE name LIKE 'idempotency.%' AND context IN ('user', 'superuser')"
    )]  # fmt: skip


def functions(connection):
    return [
        function(*row)
        for found in connection.execute(QUERY, (MANAGED,))
        for row in (of_shapes(found) if "anyelement" in found[3] else (found,))
    ]


def of_shapes(row):
    """The parameters' types are then those of their casts."""
    name, names, oids, types, *rest = row
    for shape in SHAPES:
        called = [shape if t == "anyelement" else t for t in types]
        unknown = [0 if t == "anyelement" else oid for t, oid in zip(types, oids)]
        yield name, names, unknown, called, *rest


def function(name, names, oids, types, defaults, variadic, trigger, procedure):
    required = len(oids) - defaults
    arguments = tuple(
        Argument(names[i], oids[i], types[i], i >= required) for i in range(len(oids))
    )
    return Function(name, arguments, variadic, trigger, procedure)
