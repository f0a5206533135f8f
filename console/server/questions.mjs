// The queries of the pages that have no file of their own. Every answer is an object of parts, each with
// rows or with its own problem: a part that a role may not read leaves the rest of the page unchanged.
import { schemaOf } from './about.mjs';
import { addSeals } from './records.mjs';

const MOST = 200; // rows of a table

const IN_FLIGHT = `
SELECT kind, scope, principal, key, attempt, holder, pid, application_name, since,
       EXTRACT(epoch FROM age)::float8 AS age, lease_until,
       EXTRACT(epoch FROM lease_until - pg_catalog.clock_timestamp())::float8 AS left, node,
       pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.in_flight
 ORDER BY age DESC NULLS FIRST LIMIT ${MOST}`;

export const SWEEPER = `
SELECT last_run, EXTRACT(epoch FROM last_duration)::float8 AS last_duration, last_rows, total_rows,
       backlog, EXTRACT(epoch FROM behind)::float8 AS behind, failures, last_error, last_error_at,
       launcher_pid, node
  FROM idempotency.sweeper ORDER BY node`;

export const STORES = `
SELECT shard, "table", store, why, node, pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.stores ORDER BY node, shard LIMIT ${MOST}`;

// All columns, because policies get options as the extension grows; a row is an object of the
// options set.
const POLICIES = `
SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.to_jsonb(p)) AS policy, pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.policies p ORDER BY p.scope_pattern LIMIT ${MOST}`;

// A setting that has another value than the extension's own.
const CHANGED_SETTINGS = `
SELECT name, setting FROM pg_catalog.pg_settings
 WHERE pg_catalog.starts_with(name, 'idempotency.') AND setting IS DISTINCT FROM boot_val`;

const ENCRYPTION_KEYS = `
SELECT key_id, available, current, records, why, node, pg_catalog.count(*) OVER () AS of_all
  FROM idempotency.encryption_keys ORDER BY current DESC, available DESC, key_id, node LIMIT ${MOST}`;

const ENCRYPTING = 'SELECT pg_catalog.count(*) AS encrypting FROM idempotency.policies WHERE encrypt';

const DECISION = `decided_at, action, scope, principal, key, pg_catalog.encode(key_digest, 'hex') AS key_digest,
       role, before, after, reason, decided_by, acting_as, application_name, client_addr, erased, node`;

const latest = (most) => (view) => `
SELECT ${DECISION} FROM ${view} ORDER BY decided_at DESC LIMIT ${most}`;

const OF_KEY = 'WHERE scope = $2 AND principal = $3';

const decisionsOfKey = (view) => `
SELECT ${DECISION} FROM ${view}
 ${OF_KEY}
   AND (key = $1 OR key_digest = pg_catalog.sha256(pg_catalog.convert_to($1, pg_catalog.getdatabaseencoding())))
 ORDER BY decided_at DESC LIMIT ${MOST}`;

const attemptsOfKey = (columns) => `
SELECT attempt, holder, begun, ended, how, status_code, ${columns} resolved_by, retained_until, sealed_by, node
  FROM idempotency.attempts ${OF_KEY} AND key = $1 ORDER BY attempt DESC LIMIT ${MOST}`;

// For roles that may read records but not explain.
const RECORD = `
SELECT status, attempt, holder, held, status_code, body_omitted, recovery_point, created_at, claimed_at,
       finished_at, lease_until, EXTRACT(epoch FROM lease_until - pg_catalog.clock_timestamp())::float8 AS left,
       next_attempt_at, expires_at, retained_until, operation, resolved_by, sealed_by, node
  FROM idempotency.records ${OF_KEY} AND key = $1`;

const quoteName = (name) => `"${name.replace(/"/g, '""')}"`;

export async function inFlight(database) {
    const part = await database.part(IN_FLIGHT);
    if (part.rows) await addSeals(database, part.rows);
    return { in_flight: part };
}

export async function sweeper(database) {
    const [sweepers, stores] = await Promise.all([database.part(SWEEPER), database.part(STORES)]);
    return { sweeper: sweepers, stores };
}

// All policies, and of a scope the options in force.
export async function policies(database, asked) {
    const [all, changed] = await Promise.all([database.part(POLICIES), database.part(CHANGED_SETTINGS)]);
    const scope = typeof asked.scope === 'string' ? asked.scope : null;
    return { policies: all, changed, ...(scope === null ? {} : { in_force: await inForce(database, scope) }) };
}

async function inForce(database, scope) {
    const schema = await schemaOf(database);
    if (schema.problem) return schema;
    return database.part(`SELECT option, value, source, origin FROM ${quoteName(schema.name)}.idem_policy($1::text)`, [scope]);
}

export async function encryption(database) {
    const [keys, encrypting] = await Promise.all([database.part(ENCRYPTION_KEYS), database.part(ENCRYPTING)]);
    return { keys, policies: encrypting };
}

export async function decisions(database) {
    return { decisions: await latestDecisions(database, MOST) };
}

export const latestDecisions = (database, most) => decided(database, latest(most));

// The view of all nodes reads every record of each; the view of this node uses an index, and on a
// single server shows everything.
async function decided(database, question, values) {
    const node = await database.part('SELECT idempotency.this_node() AS name');
    const alone = node.rows?.[0].name === null;
    return database.part(question(alone ? 'idempotency.decisions_here' : 'idempotency.decisions'), values);
}

// An operator's function opens sealed holders and errors. The view has what it can without it; fewer
// roles may read its column `error` than the others.
async function attempts(database, schema, values) {
    if (!schema.problem) {
        const opened = await database.part(
            `SELECT *, NULL::text AS node FROM ${quoteName(schema.name)}.idem_attempts($1::text, scope => $2::text, principal => $3::text)
              ORDER BY attempt DESC LIMIT ${MOST}`, values);
        if (!opened.problem) return opened;
    }
    const all = await database.part(attemptsOfKey('error,'), values);
    if (all.problem?.kind !== 'denied') return all;
    return { ...(await database.part(attemptsOfKey(''), values)), without: 'error' };
}

async function explanation(database, schema, values, sent) {
    if (schema.problem) return schema;
    return database.part(
        `SELECT pg_catalog.to_jsonb(e) AS explanation
           FROM ${quoteName(schema.name)}.idem_explain($1::text, request => $4::jsonb, scope => $2::text, principal => $3::text,
                method => $5::text, path => $6::text) e`,
        [...values, ...sent]);
}

const text = (value) => (typeof value === 'string' ? value : '');

export async function key(database, asked) {
    const values = [text(asked.key), text(asked.scope), text(asked.principal)];
    const sent = [asked.request, asked.method, asked.path].map((value) => text(value).trim() || null);
    const schema = await schemaOf(database);
    const [explained, record, tries, decisionsOfIt, changed] = await Promise.all([
        explanation(database, schema, values, sent),
        database.part(RECORD, values),
        attempts(database, schema, values),
        decided(database, decisionsOfKey, values),
        database.part(CHANGED_SETTINGS),
    ]);
    return { explanation: explained, record, attempts: tries, decisions: decisionsOfIt, changed };
}
