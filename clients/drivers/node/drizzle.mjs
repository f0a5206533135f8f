// drizzle, on node-postgres.
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { bigint, integer, pgTable } from 'drizzle-orm/pg-core';
import pg from 'pg';
import installed from './node_modules/drizzle-orm/package.json' with { type: 'json' };
import { report, version } from './driver.mjs';

const pool = new pg.Pool();
const db = drizzle(pool);
const payment = pgTable('payment', {
  id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
  amount: integer('amount').notNull(),
});

// page: transaction
const pay = (key, tenant, request) => db.transaction(async (tx) => {
  const { rows: [claim] } = await tx.execute(sql`
    SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
      FROM idem_begin(${key}, request => ${JSON.stringify(request)}::jsonb, scope => 'pay', principal => ${tenant}) AS c`);
  if (claim.outcome !== 'execute') return claim.problem ?? claim;
  const [{ id }] = await tx.insert(payment).values({ amount: request.amount }).returning({ id: payment.id });
  const answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${id}}`) };
  await tx.execute(sql`SELECT idem_complete(${key}, ${answer.status}, ${answer.body}::bytea, ${JSON.stringify(answer.headers)}::jsonb,
                                            scope => 'pay', principal => ${tenant})`);
  return answer;
});
// page: end

const tag = (on) => async (...statement) => (await on.execute(sql(...statement))).rows;

await report('drizzle', {
  version: version('drizzle-orm', installed),
  place: '${}',
  sqlstate: 'error.cause.code',
  array: { write: '`${sql.param(array)}`', of: (keys) => sql.param(keys) },
  pay,
  sql: tag(db),
  transaction: (work) => db.transaction((tx) => work(tag(tx))),
  async more(tries) {
    await tries.keys('`${array}`', ['b', 'a'], async (scope) =>
      (await db.execute(sql`SELECT idem_once_each(${['b', 'a', 'b']}, scope => ${scope})`)).rows);
    await tries.request('`${sql.param(array)}::jsonb` with an array', '[1, 2]', (key) =>
      db.execute(sql`SELECT outcome FROM idem_begin(${key}, request => ${sql.param([1, 2])}::jsonb, scope => 'tried')`));
  },
  end: () => pool.end(),
});
