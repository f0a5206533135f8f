// The queries of each page. Every answer is an object of parts, each with rows or with its own
// problem: a part that a role may not read leaves the rest of the page unchanged.

const MOST = 200; // rows of a table

const ABOUT = `
SELECT pg_catalog.current_database() AS database, session_user::text AS session_user,
       current_user::text AS current_user, pg_catalog.current_setting('server_version') AS server,
       pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.current_setting('transaction_read_only') AS read_only,
       pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE') AS monitors,
       e.extversion AS version, n.nspname::text AS schema,
       (SELECT pg_catalog.bool_or(pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
                                  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'))
          FROM pg_catalog.pg_proc p
         WHERE p.proname = 'idem_explain' AND p.pronamespace = n.oid) AS explains
  FROM (VALUES (1)) AS one
  LEFT JOIN pg_catalog.pg_extension e ON e.extname = 'idempotency'
  LEFT JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace`;

const IN_FLIGHT = `
SELECT kind, scope, principal, key, attempt, holder, pid, application_name, since,
       EXTRACT(epoch FROM age)::float8 AS age, lease_until,
       EXTRACT(epoch FROM lease_until - pg_catalog.clock_timestamp())::float8 AS left, node,
       pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.in_flight
 ORDER BY age DESC NULLS FIRST LIMIT ${MOST}`;

const ABANDONED = `
SELECT status, scope, principal, key, attempt, holder, recovery_point, claimed_at, since,
       EXTRACT(epoch FROM age)::float8 AS overdue, node, pg_catalog.count(*) OVER () AS of_all
  FROM (SELECT 'in_progress' AS status, scope, principal, key, attempt, holder, recovery_point,
               claimed_at, lease_until AS since, overdue AS age, node
          FROM idempotency.abandoned WHERE status = 'in_progress'
        UNION ALL
        SELECT 'unknown', scope, principal, key, attempt, holder, recovery_point, claimed_at, since, age, node
          FROM idempotency.unknown
        UNION ALL
        SELECT 'exhausted', scope, principal, key, attempt, holder, recovery_point, claimed_at, since, age, node
          FROM idempotency.exhausted) AS left_behind
 ORDER BY status DESC, overdue DESC LIMIT ${MOST}`;

const SWEEPER = `
SELECT last_run, EXTRACT(epoch FROM last_duration)::float8 AS last_duration, last_rows, total_rows,
       backlog, EXTRACT(epoch FROM behind)::float8 AS behind, failures, last_error, last_error_at,
       launcher_pid, node
  FROM idempotency.sweeper ORDER BY node`;

const STORES = `
SELECT shard, "table", store, why, node, pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.stores ORDER BY node, shard LIMIT ${MOST}`;

// All columns, because policies get options as the extension grows; a row is an object of the
// options set.
const POLICIES = `
SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.to_jsonb(p)) AS policy, pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.policies p ORDER BY p.scope_pattern LIMIT ${MOST}`;

const ENCRYPTION_KEYS = `
SELECT key_id, available, current, records, why, node, pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.encryption_keys ORDER BY current DESC, available DESC, key_id, node LIMIT ${MOST}`;

const ENCRYPTING = 'SELECT pg_catalog.count(*) AS encrypting FROM idempotency.policies WHERE encrypt';

const DECISION = `decided_at, action, scope, principal, key, pg_catalog.encode(key_digest, 'hex') AS key_digest,
       role, before, after, reason, decided_by, acting_as, application_name, client_addr, erased, node`;

const latestDecisions = (view) => `
SELECT ${DECISION} FROM ${view} ORDER BY decided_at DESC LIMIT ${MOST}`;

const OF_KEY = 'WHERE scope = $2 AND principal = $3';

const decisionsOfKey = (view) => `
SELECT ${DECISION} FROM ${view}
 ${OF_KEY}
   AND (key = $1 OR key_digest = pg_catalog.sha256(pg_catalog.convert_to($1, pg_catalog.getdatabaseencoding())))
 ORDER BY decided_at DESC LIMIT ${MOST}`;

const attemptsOfKey = (columns) => `
SELECT attempt, holder, begun, ended, how, status_code, ${columns} resolved_by, retained_until, node
  FROM idempotency.attempts ${OF_KEY} AND key = $1 ORDER BY attempt DESC LIMIT ${MOST}`;

// For roles that may read records but not explain.
const RECORD = `
SELECT status, attempt, holder, held, status_code, body_omitted, recovery_point, created_at, claimed_at,
       finished_at, lease_until, next_attempt_at, expires_at, retained_until, operation, resolved_by, node
  FROM idempotency.records ${OF_KEY} AND key = $1`;

const quoteName = (name) => `"${name.replace(/"/g, '""')}"`;

export async function about(database) {
    const part = await database.part(ABOUT);
    return { about: part, expected: database.expected ?? null, place: database.place, role: database.role ?? database.user };
}

export async function inFlight(database) {
    return { in_flight: await database.part(IN_FLIGHT) };
}

export async function abandoned(database) {
    return { abandoned: await database.part(ABANDONED) };
}

export async function sweeper(database) {
    const [sweepers, stores] = await Promise.all([database.part(SWEEPER), database.part(STORES)]);
    return { sweeper: sweepers, stores };
}

export async function policies(database) {
    return { policies: await database.part(POLICIES) };
}

export async function encryption(database) {
    const [keys, encrypting] = await Promise.all([database.part(ENCRYPTION_KEYS), database.part(ENCRYPTING)]);
    return { keys, policies: encrypting };
}

export async function decisions(database) {
    return { decisions: await decided(database, latestDecisions) };
}

// The view of all nodes reads every record of each; the view of this node uses an index, and on a
// single server shows everything.
async function decided(database, question, values) {
    const node = await database.part('SELECT idempotency.this_node() AS name');
    const alone = node.rows?.[0].name === null;
    return database.part(question(alone ? 'idempotency.decisions_here' : 'idempotency.decisions'), values);
}

// Fewer roles may read the column `error` than the others.
async function attempts(database, values) {
    const all = await database.part(attemptsOfKey('error,'), values);
    if (all.problem?.kind !== 'denied') return all;
    return { ...(await database.part(attemptsOfKey(''), values)), without: 'error' };
}

async function explanation(database, values, sent) {
    const [extension] = await database.rows(
        `SELECT n.nspname::text AS schema FROM pg_catalog.pg_extension e
           JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'idempotency'`);
    if (!extension) return { problem: { kind: 'absent', message: 'extension "idempotency" is not in this database' } };
    return database.part(
        `SELECT pg_catalog.to_jsonb(e) AS explanation
           FROM ${quoteName(extension.schema)}.idem_explain($1::text, request => $4::jsonb, scope => $2::text, principal => $3::text,
                method => $5::text, path => $6::text) e`,
        [...values, ...sent]);
}

const text = (value) => (typeof value === 'string' ? value : '');

export async function key(database, asked) {
    const values = [text(asked.key), text(asked.scope), text(asked.principal)];
    const sent = [asked.request, asked.method, asked.path].map((value) => text(value).trim() || null);
    const caught = (promise) => promise.catch((error) => ({ problem: database.describe(error) }));
    const [explained, record, tries, decisionsOfIt] = await Promise.all([
        caught(explanation(database, values, sent)),
        database.part(RECORD, values),
        attempts(database, values),
        decided(database, decisionsOfKey, values),
    ]);
    return { explanation: explained, record, attempts: tries, decisions: decisionsOfIt };
}
