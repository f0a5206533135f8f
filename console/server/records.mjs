// Finding records: by the beginning of the key, by scope, principal, status, holder and time, a page at a
// time. A page is continued from its last row, so a later page costs no more than the first.
// The beginning of a key is a range of the primary key. The other filters read the table, unless the
// status is one of those that wait or run: these have an index of their own.

export const PAGE_ROWS = 50;

const STORED = ['completed', 'failed', 'retryable'];
// The statuses that the index of unfinished records serves; `waiting`: all that need a person.
const UNFINISHED = { waiting: ['unknown', 'exhausted', 'abandoned'], unknown: ['unknown'], exhausted: ['exhausted'], abandoned: ['abandoned'], running: ['running'] };

const RECORDS = `
SELECT status, scope, principal, key, attempt, holder, claimed_at, finished_at, lease_until, status_code,
       sealed_by, node
  FROM idempotency.records`;

// As records, from the views that read the index. Their rows come from functions, whose texts have
// the database's collation.
const OF_STATUS = {
    unknown: `
SELECT 'unknown' AS status, scope, principal, key, attempt, holder, claimed_at,
       CASE WHEN NOT silent THEN since END AS finished_at, CASE WHEN silent THEN since END AS lease_until, node
  FROM idempotency.unknown`,
    exhausted: `
SELECT 'exhausted' AS status, scope, principal, key, attempt, holder, claimed_at,
       CASE WHEN NOT silent THEN since END AS finished_at, CASE WHEN silent THEN since END AS lease_until, node
  FROM idempotency.exhausted`,
    abandoned: `
SELECT 'in_progress' AS status, scope, principal, key, attempt, holder, claimed_at, NULL::timestamptz AS finished_at,
       lease_until, node
  FROM idempotency.abandoned WHERE status = 'in_progress'`,
    running: `
SELECT 'in_progress' AS status, scope, principal, key, attempt, holder, since AS claimed_at,
       NULL::timestamptz AS finished_at, lease_until, node
  FROM idempotency.in_flight WHERE kind = 'leased'`,
};

const unfinished = (statuses) => `
SELECT status, scope COLLATE "C" AS scope, principal COLLATE "C" AS principal, key COLLATE "C" AS key, attempt,
       holder, claimed_at, finished_at, lease_until, NULL::integer AS status_code, NULL::text AS sealed_by, node
  FROM (${statuses.map((name) => OF_STATUS[name]).join(' UNION ALL')}) AS unfinished`;

// The columns of each order. All are compared in the same direction, so that the last row of a page
// says where the next one begins.
const ORDERS = { key: ['key', 'scope', 'principal'], scope: ['scope', 'key', 'principal'], claimed_at: ['claimed_at', 'key', 'scope', 'principal'] };

const text = (value) => (typeof value === 'string' ? value : '');

// The conditions of a question, and the values of their parameters.
function conditions(asked) {
    const found = [];
    const values = [];
    const add = (value, condition) => {
        if (value === '') return;
        values.push(value);
        found.push(condition(`$${values.length}`));
    };
    add(text(asked.key), (at) => `pg_catalog.starts_with(key, ${at}::text)`);
    const scope = text(asked.scope);
    if (scope.endsWith('*')) add(scope.slice(0, -1), (at) => `pg_catalog.starts_with(scope, ${at}::text)`);
    else add(scope, (at) => `scope = ${at}::text`);
    add(text(asked.principal), (at) => `principal = ${at}::text`);
    add(text(asked.holder), (at) => `holder = ${at}::text`);
    if (STORED.includes(asked.status)) add(asked.status, (at) => `status = ${at}::text`);
    add(text(asked.older_than), (at) => `claimed_at < pg_catalog.now() - ${at}::interval`);
    add(text(asked.newer_than), (at) => `claimed_at >= pg_catalog.now() - ${at}::interval`);
    add(text(asked.from), (at) => `claimed_at >= ${at}::timestamptz`);
    add(text(asked.until), (at) => `claimed_at < ${at}::timestamptz`);
    return { found, values };
}

// A row's place in an order: the values of its columns.
function place(columns, row, comparison, { found, values }) {
    if (!Array.isArray(row) || row.length !== columns.length) return;
    const parameters = columns.map((name, at) => {
        values.push(text(row[at]));
        return `$${values.length}::${name === 'claimed_at' ? 'timestamptz' : 'text'}`;
    });
    found.push(`(${columns.join(', ')}) ${comparison} (${parameters.join(', ')})`);
}

export function question(asked) {
    const columns = ORDERS[Object.hasOwn(ORDERS, asked.sort) ? asked.sort : 'key'];
    const backwards = Array.isArray(asked.before);
    const descending = (asked.order === 'desc') !== backwards;
    const where = conditions(asked);
    place(columns, backwards ? asked.before : asked.after, descending ? '<' : '>', where);
    const statuses = Object.hasOwn(UNFINISHED, asked.status) ? UNFINISHED[asked.status] : null;
    return {
        columns, backwards, values: where.values,
        text: `
SELECT status, scope, principal, key, attempt, holder, claimed_at, finished_at, lease_until, status_code,
       EXTRACT(epoch FROM lease_until - pg_catalog.clock_timestamp())::float8 AS left, sealed_by, node
  FROM (${statuses ? unfinished(statuses) : RECORDS}) AS found
 ${where.found.length > 0 ? `WHERE ${where.found.join('\n   AND ')}` : ''}
 ORDER BY ${columns.map((name) => `${name} ${descending ? 'DESC' : 'ASC'}`).join(', ')}
 LIMIT ${PAGE_ROWS + 1}`,
    };
}

export async function records(database, asked) {
    const { columns, backwards, values, text: statement } = question(asked);
    const part = await database.part(statement, values);
    if (part.problem) return { records: part };
    const more = part.rows.length > PAGE_ROWS;
    const rows = part.rows.slice(0, PAGE_ROWS);
    if (backwards) rows.reverse();
    if (Object.hasOwn(UNFINISHED, asked.status)) await addSeals(database, rows);
    const at = (row) => columns.map((name) => row[name]);
    const began = backwards ? more : Array.isArray(asked.after);
    return {
        records: { rows },
        before: rows.length > 0 && began ? at(rows[0]) : null,
        after: rows.length > 0 && (backwards || more) ? at(rows.at(-1)) : null,
    };
}

// The key that sealed the values of a record. The views of claims don't have it, and a holder that is
// sealed is not one that is missing.
export async function addSeals(database, rows) {
    const unsaid = rows.filter((row) => row.key !== null && row.holder === null);
    if (unsaid.length === 0) return;
    const sealed = await database.part(
        'SELECT scope, principal, key, sealed_by FROM idempotency.records WHERE key = ANY ($1::text[]) AND sealed_by IS NOT NULL',
        [unsaid.map((row) => row.key)]);
    const nameOf = (row) => JSON.stringify([row.scope, row.principal, row.key]);
    const by = new Map((sealed.rows ?? []).map((row) => [nameOf(row), row.sealed_by]));
    for (const row of unsaid) row.sealed_by = by.get(nameOf(row)) ?? null;
}
