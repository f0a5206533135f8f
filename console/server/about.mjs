// Who asks, and what is there: the role and its rights, the edition and its version, and the schema of the
// functions.

// The extension, or the edition without C, whose functions belong to the owner of its schema.
export const INSTALLED = `
SELECT e.extversion AS version, e.extnamespace AS namespace, false AS managed, true AS safe
  FROM pg_catalog.pg_extension e WHERE e.extname = 'idempotency'
 UNION ALL
(SELECT pg_catalog.substring(i.prosrc, '"version": *"([^"]+)"'), b.pronamespace, true,
        n.nspowner = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
        OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.oid = n.nspowner)
   FROM pg_catalog.pg_namespace n
   JOIN pg_catalog.pg_proc i ON i.pronamespace = n.oid AND i.proname = 'installed'
   JOIN pg_catalog.pg_proc b ON b.proname = 'idem_begin' AND b.proowner = n.nspowner
  WHERE n.nspname = 'idempotency' LIMIT 1)
 LIMIT 1`;

// What the role may call, by a function of each right, and an argument that only newer versions have.
const RIGHTS = { explains: 'idem_explain', decides: 'idem_resolve', administers: 'idem_policy_set', reseals: 'idem_reseal' };

const ABOUT = `
SELECT pg_catalog.current_database() AS database, session_user::text AS session_user,
       current_user::text AS current_user, pg_catalog.current_setting('server_version') AS server,
       pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.current_setting('transaction_read_only') AS read_only,
       pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE') AS monitors,
       i.version, i.managed, n.nspname::text AS schema, r.*
  FROM (VALUES (1)) AS one
  LEFT JOIN (${INSTALLED}) AS i ON true
  LEFT JOIN pg_catalog.pg_namespace n ON n.oid = i.namespace
  LEFT JOIN LATERAL (
       SELECT ${Object.entries(RIGHTS).map(([right, name]) => `pg_catalog.bool_or(may) FILTER (WHERE proname = '${name}') AS ${right}`).join(', ')},
              pg_catalog.bool_or('even_if_running' = ANY (proargnames)) FILTER (WHERE proname = 'idem_resolve') AS asks_if_running,
              pg_catalog.bool_or('administrator' = ANY (proargnames)) FILTER (WHERE proname = 'idem_grant') AS knows_administrators
         FROM (SELECT p.proname, p.proargnames, pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
                      AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS may
                 FROM pg_catalog.pg_proc p
                WHERE p.pronamespace = n.oid AND p.proname = ANY ('{${[...Object.values(RIGHTS), 'idem_grant'].join(',')}}')) AS f
       ) AS r ON true`;

export async function about(database) {
    const part = await database.part(ABOUT);
    return { about: part, expected: database.expected ?? null, place: database.place, role: database.role ?? database.user };
}

// { name } of the schema with the functions, or { problem }.
export async function schemaOf(database) {
    const part = await database.part(`SELECT n.nspname::text AS name FROM (${INSTALLED}) AS i JOIN pg_catalog.pg_namespace n ON n.oid = i.namespace`);
    if (part.problem) return part;
    return part.rows[0] ?? { problem: { kind: 'absent', message: 'extension "idempotency" is not in this database' } };
}
