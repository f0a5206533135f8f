// node-postgres.
import pg from 'pg';
import installed from 'pg/package.json' with { type: 'json' };
import { outlives, pooler, prepared, report, version } from './driver.mjs';

const pool = new pg.Pool();

// page: transaction
async function pay(key, tenant, request) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const { rows: [claim] } = await client.query(
      `SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
         FROM idem_begin($1, request => $2::jsonb, scope => 'pay', principal => $3) AS c`,
      [key, JSON.stringify(request), tenant]);
    let answer = claim;
    if (claim.outcome === 'execute') {
      const { rows: [payment] } = await client.query('INSERT INTO payment (amount) VALUES ($1) RETURNING id', [request.amount]);
      answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${payment.id}}`) };
      await client.query("SELECT idem_complete($1, $2, $3::bytea, $4::jsonb, scope => 'pay', principal => $5)",
        [key, answer.status, answer.body, JSON.stringify(answer.headers), tenant]);
    }
    await client.query('COMMIT');
    client.release();
    return claim.problem ?? answer;
  } catch (error) {
    client.release(error); // closes it, and that rolls back
    throw error;
  }
}
// page: end

const tag = (on) => async (texts, ...values) =>
  (await on.query(texts.reduce((text, next, i) => `${text}$${i}${next}`), values)).rows;

await report('pg', {
  version: version('pg', installed),
  place: '$1',
  sqlstate: 'error.code',
  pay,
  sql: tag(pool),
  async transaction(work) {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const result = await work(tag(client));
      await client.query('COMMIT');
      return result;
    } finally {
      client.release();
    }
  },
  async more(tries) {
    const behind = (name) => async () => {
      const client = new pg.Client(pooler);
      await client.connect();
      return {
        run: (text) => client.query(text),
        claim: async (scope) => (await client.query({
          name: name && `begin ${scope}`, text: `SELECT scope FROM idem_begin($1, scope => '${scope}')`, values: ['key'],
        })).rows[0].scope,
        end: () => client.end(),
      };
    };
    await tries.pooled('', behind(false));
    await tries.pooled('with a `name` for the query', behind(true));
    await tries.add('pool', "the same, with `pool.on('error', log)`", () => outlives('pg with a listener'));
    await tries.add('prepared', 'the same, with a `name` for the query', async () => {
      const client = await pool.connect();
      try {
        for (let i = 0; i < 10; i += 1) {
          await client.query({ name: 'begin', text: "SELECT outcome FROM idem_begin($1, scope => 'named')", values: [`named ${i}`] });
        }
        const { rows: [{ n }] } = await client.query("SELECT count(*)::int AS n FROM pg_prepared_statements WHERE statement LIKE 'SELECT outcome%''named''%'");
        return prepared(n);
      } finally {
        client.release(true);
      }
    });
  },
  end: () => pool.end(),
});
