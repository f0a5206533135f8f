// The first page: whether the parts work, how many records there are, and what needs a person.
import { latestDecisions, SWEEPER, STORES } from './questions.mjs';

const WAITING = `
SELECT status, pg_catalog.count(*) AS records, EXTRACT(epoch FROM pg_catalog.max(age))::float8 AS oldest
  FROM (SELECT 'unknown' AS status, age FROM idempotency.unknown
        UNION ALL SELECT 'exhausted', age FROM idempotency.exhausted
        UNION ALL SELECT 'abandoned', overdue FROM idempotency.abandoned WHERE status = 'in_progress') AS waiting
 GROUP BY status`;

const RUNNING = `
SELECT pg_catalog.count(*) FILTER (WHERE kind = 'leased') AS leased,
       pg_catalog.count(*) FILTER (WHERE kind <> 'leased') AS transactions,
       EXTRACT(epoch FROM pg_catalog.max(age))::float8 AS oldest
  FROM idempotency.in_flight`;

const POLICIES = `
SELECT pg_catalog.count(*) AS policies, pg_catalog.count(*) FILTER (WHERE encrypt) AS encrypting,
       pg_catalog.count(*) FILTER (WHERE role_exists = false) AS closed
  FROM idempotency.policies`;

// The planner's estimate; nothing is read.
const SIZE = `
SELECT c.reltuples::float8 AS estimate, pg_catalog.pg_table_size(c.oid) AS bytes,
       pg_catalog.pg_indexes_size(c.oid) AS index_bytes
  FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass('idempotency.record')`;

const BY_STATUS = `
SELECT CASE WHEN status = 'in_progress' AND lease_until < pg_catalog.now() THEN 'abandoned' ELSE status END AS status,
       pg_catalog.count(*) AS records
  FROM idempotency.records GROUP BY 1`;

const KEYS = 'SELECT key_id, available, current, records, why, node FROM idempotency.encryption_keys';

export async function overview(database) {
    const [waiting, running, sweeper, stores, policies, size, decisions] = await Promise.all([
        ...[WAITING, RUNNING, SWEEPER, STORES, POLICIES, SIZE].map((question) => database.part(question)),
        latestDecisions(database, 5),
    ]);
    return { waiting, running, sweeper, stores, policies, size, decisions };
}

const COUNTED_AT_MOST = 2e6; // records: more are counted on request only
const REMEMBERED_MS = 60000;

// What reads whole tables: counted once a minute at most, however many pages ask.
export class Counts {
    #said = null; // { at, answer }

    constructor(database) {
        this.database = database;
    }

    async answer(asked) {
        if (this.#said && !asked.again && Date.now() - this.#said.at < REMEMBERED_MS) return (await this.#said.answer);
        const estimate = await this.database.part(SIZE);
        if (!asked.again && (estimate.rows?.[0]?.estimate ?? 0) > COUNTED_AT_MOST) return { tooMany: true };
        const at = Date.now();
        this.#said = { at, answer: this.#count(at) };
        return this.#said.answer;
    }

    async #count(at) {
        const [counts, keys] = await Promise.all([this.database.part(BY_STATUS), this.database.part(KEYS)]);
        if (counts.problem || keys.problem) this.#said = null;
        return { counts, keys, at };
    }
}
