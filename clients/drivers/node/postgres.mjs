// postgres.js.
import postgres from 'postgres';
import installed from './node_modules/postgres/package.json' with { type: 'json' };
import { pooler, prepared, report, version } from './driver.mjs';

const sql = postgres({ database: process.env.PGDATABASE, onnotice: () => {} });

// page: transaction
const pay = (key, tenant, request) => sql.begin(async (tx) => {
  const [claim] = await tx`
    SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
      FROM idem_begin(${key}, request => ${request}::jsonb, scope => 'pay', principal => ${tenant}) AS c`;
  if (claim.outcome !== 'execute') return claim.problem ?? claim;
  const [payment] = await tx`INSERT INTO payment (amount) VALUES (${request.amount}) RETURNING id`;
  const answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${payment.id}}`) };
  await tx`SELECT idem_complete(${key}, ${answer.status}, ${answer.body}::bytea, ${answer.headers}::jsonb,
                                scope => 'pay', principal => ${tenant})`;
  return answer;
});
// page: end

await report('postgres', {
  version: version('postgres', installed),
  place: '${}',
  sqlstate: 'error.code',
  pay,
  sql: async (...statement) => [...await sql(...statement)],
  transaction: (work) => sql.begin((tx) => work(async (...statement) => [...await tx(...statement)])),
  async more(tries) {
    const behind = (options) => async () => {
      const other = postgres({ ...pooler, database: process.env.PGDATABASE, max: 1, ...options });
      const one = await other.reserve();
      return {
        run: (text) => one.unsafe(text),
        claim: async (scope) => (await (scope === 'mine' ? one`SELECT scope FROM idem_begin(${'key'}, scope => 'mine')`
          : one`SELECT scope FROM idem_begin(${'key'}, scope => 'yours')`))[0].scope,
        end: () => other.end({ timeout: 0 }),
      };
    };
    await tries.pooled('', behind({}));
    await tries.pooled('`prepare: false`', behind({ prepare: false }));
    const text = '{"amount": 5}';
    await tries.request('`{}::text::jsonb` with `JSON.stringify(object)`', text, (key) =>
      sql`SELECT outcome FROM idem_begin(${key}, request => ${text}::text::jsonb, scope => 'tried')`);
    await tries.request('`${sql.json(object)}`', text, (key) =>
      sql`SELECT outcome FROM idem_begin(${key}, request => ${sql.json({ amount: 5 })}, scope => 'tried')`);
    await tries.request('`sql.unsafe(..., [JSON.stringify(object)])` with `$1::jsonb`', text, (key) =>
      sql.unsafe("SELECT outcome FROM idem_begin($1, request => $2::jsonb, scope => 'tried')", [key, text]));
    await tries.request('`sql.unsafe(..., [sql.typed(JSON.stringify(object), 25)])` with `$1::jsonb`', text, (key) =>
      sql.unsafe("SELECT outcome FROM idem_begin($1, request => $2::jsonb, scope => 'tried')", [key, sql.typed(text, 25)]));
    await tries.add('prepared', 'the same, with the option `prepare: false`', async () => {
      const other = postgres({ database: process.env.PGDATABASE, prepare: false, max: 1 });
      try {
        for (let i = 0; i < 10; i += 1) await other`SELECT outcome FROM idem_begin(${`unnamed ${i}`}, scope => 'unnamed')`;
        const [{ n }] = await other`SELECT count(*)::int AS n FROM pg_prepared_statements WHERE statement LIKE 'SELECT outcome%''unnamed''%'`;
        return prepared(n);
      } finally {
        await other.end();
      }
    });
  },
  end: () => sql.end(),
});
