// kysely, on node-postgres.
import { CamelCasePlugin, Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import installed from './node_modules/kysely/package.json' with { type: 'json' };
import { report, version } from './driver.mjs';

const pool = new pg.Pool();
const db = new Kysely({ dialect: new PostgresDialect({ pool }) });

// page: transaction
const pay = (key, tenant, request) => db.transaction().execute(async (trx) => {
  const { rows: [claim] } = await sql`
    SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
      FROM idem_begin(${key}, request => ${JSON.stringify(request)}::jsonb, scope => 'pay', principal => ${tenant}) AS c`.execute(trx);
  if (claim.outcome !== 'execute') return claim.problem ?? claim;
  const payment = await trx.insertInto('payment').values({ amount: request.amount }).returning('id').executeTakeFirstOrThrow();
  const answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${payment.id}}`) };
  await sql`SELECT idem_complete(${key}, ${answer.status}, ${answer.body}::bytea, ${JSON.stringify(answer.headers)}::jsonb,
                                 scope => 'pay', principal => ${tenant})`.execute(trx);
  return answer;
});
// page: end

const tag = (on) => async (...statement) => (await sql(...statement).execute(on)).rows;

await report('kysely', {
  version: version('kysely', installed),
  place: '${}',
  sqlstate: 'error.code',
  pay,
  sql: tag(db),
  transaction: (work) => db.transaction().execute((trx) => work(tag(trx))),
  async more(tries) {
    const names = async (key, on) =>
      Object.keys((await sql`SELECT status_code, body FROM idem_begin(${key}, scope => 'tried')`.execute(on)).rows[0]).map((name) => `\`${name}\``).join(', ');
    const camel = db.withPlugin(new CamelCasePlugin());
    await tries.add('plugins', '`status_code, body` with `CamelCasePlugin`', (key) => names(key, camel));
    await tries.add('plugins', 'the same, run on `db.withoutPlugins()`', (key) => names(key, camel.withoutPlugins()));
  },
  end: () => db.destroy(),
});
