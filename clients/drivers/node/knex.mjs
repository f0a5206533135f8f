// knex.
import knex from 'knex';
import installed from 'knex/package.json' with { type: 'json' };
import { report, version } from './driver.mjs';

const db = knex({ client: 'pg', connection: { host: process.env.PGHOST, port: process.env.PGPORT, user: process.env.PGUSER, database: process.env.PGDATABASE } });

// page: transaction
const pay = (key, tenant, request) => db.transaction(async (trx) => {
  const { rows: [claim] } = await trx.raw(
    `SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
       FROM idem_begin(?, request => ?::jsonb, scope => 'pay', principal => ?) AS c`,
    [key, JSON.stringify(request), tenant]);
  if (claim.outcome !== 'execute') return claim.problem ?? claim;
  const [payment] = await trx('payment').insert({ amount: request.amount }, ['id']);
  const answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${payment.id}}`) };
  await trx.raw("SELECT idem_complete(?, ?, ?::bytea, ?::jsonb, scope => 'pay', principal => ?)",
    [key, answer.status, answer.body, JSON.stringify(answer.headers), tenant]);
  return answer;
});
// page: end

const tag = (on) => async (texts, ...values) => (await on.raw(texts.join('?'), values)).rows;

await report('knex', {
  version: version('knex', installed),
  place: '?',
  sqlstate: 'error.code',
  pay,
  sql: tag(db),
  transaction: (work) => db.transaction((trx) => work(tag(trx))),
  async more(tries) {
    const state = (operator) => async (key) =>
      (await db.raw(`SELECT outcome, state ${operator} 'charge' AS has FROM idem_begin(?, scope => 'tried')`, [key])).rows[0].outcome
        === 'execute' ? 'works' : 'something else';
    await tries.add('operators', "`state ? 'charge'`", state('?'));
    await tries.add('operators', "`state \\\\? 'charge'` in a string", state('\\?'));
    await tries.add('token', '`db` instead of `trx` inside of the transaction, without a token', (key) => db.transaction(async (trx) => {
      await tag(trx)`SELECT outcome FROM idem_begin(${key}, scope => 'tried')`;
      return db.raw("SELECT idem_complete(?, 201, scope => 'tried')", [key]).then(() => 'works');
    }));
  },
  end: () => db.destroy(),
});
