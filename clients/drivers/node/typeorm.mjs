// TypeORM.
import 'reflect-metadata';
import { DataSource } from 'typeorm';
import installed from 'typeorm/package.json' with { type: 'json' };
import { report, version } from './driver.mjs';

const source = await new DataSource({
  type: 'postgres', host: process.env.PGHOST, port: Number(process.env.PGPORT), username: process.env.PGUSER, database: process.env.PGDATABASE,
}).initialize();

// page: transaction
const pay = (key, tenant, request) => source.transaction(async (manager) => {
  const [claim] = await manager.query(
    `SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
       FROM idem_begin($1, request => $2::jsonb, scope => 'pay', principal => $3) AS c`,
    [key, JSON.stringify(request), tenant]);
  if (claim.outcome !== 'execute') return claim.problem ?? claim;
  const [{ id }] = await manager.query('INSERT INTO payment (amount) VALUES ($1) RETURNING id', [request.amount]);
  const answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${id}}`) };
  await manager.query("SELECT idem_complete($1, $2, $3::bytea, $4::jsonb, scope => 'pay', principal => $5)",
    [key, answer.status, answer.body, JSON.stringify(answer.headers), tenant]);
  return answer;
});
// page: end

const tag = (on) => (texts, ...values) => on.query(texts.reduce((text, next, i) => `${text}$${i}${next}`), values);

await report('typeorm', {
  version: version('typeorm', installed),
  place: '$1',
  sqlstate: 'error.code',
  pay,
  sql: tag(source),
  transaction: (work) => source.transaction((manager) => work(tag(manager))),
  async more(tries) {
    await tries.add('token', '`source` instead of `manager` inside of the transaction, without a token', (key) => source.transaction(async (manager) => {
      await manager.query("SELECT outcome FROM idem_begin($1, scope => 'tried')", [key]);
      return source.query("SELECT idem_complete($1, 201, scope => 'tried')", [key]).then(() => 'works');
    }));
  },
  end: () => source.destroy(),
});
