"""The functions of the extension as the catalog has them, so that a new one is called by itself."""

import dataclasses

QUERY = """
SELECT n.nspname || '.' || p.proname, p.proargnames, p.proargtypes::oid[]::int[],
       (SELECT coalesce(array_agg(t::regtype::text ORDER BY i), '{}')
          FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, i)),
       p.pronargdefaults, p.provariadic <> 0, p.prorettype = 'trigger'::regtype
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
 WHERE e.extname = 'idempotency'
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

    def __str__(self):
        return f"{self.name}({', '.join(a.type for a in self.arguments)})"

    def takes(self, *names):
        return set(names) <= {argument.name for argument in self.arguments}

    def statement(self, chosen):
        """The call with these arguments, named, each a parameter."""
        given = []
        for number, argument in enumerate(chosen, 1):
            variadic = "VARIADIC " if self.variadic and argument is self.arguments[-1] else ""
            given.append(f'{variadic}"{argument.name}" => ${number}::{argument.type}')
        source = "" if self.trigger else "* FROM "
        return f"SELECT {source}{self.name}({', '.join(given)})"


def functions(connection):
    return [function(*row) for row in connection.execute(QUERY)]


def function(name, names, oids, types, defaults, variadic, trigger):
    required = len(oids) - defaults
    arguments = tuple(
        Argument(names[i], oids[i], types[i], i >= required) for i in range(len(oids))
    )
    return Function(name, arguments, variadic, trigger)
