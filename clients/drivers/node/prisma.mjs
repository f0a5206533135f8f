// Prisma, with its adapter for node-postgres.
import { createRequire } from 'node:module';
import { PrismaPg } from '@prisma/adapter-pg';
import { report, version } from './driver.mjs';

const require = createRequire(import.meta.url);
const { PrismaClient } = require('./node_modules/.prisma-driver/index.js');
const prisma = new PrismaClient({ adapter: new PrismaPg({ database: process.env.PGDATABASE }) });

// page: transaction
const pay = (key, tenant, request) => prisma.$transaction(async (tx) => {
  const [claim] = await tx.$queryRaw`
    SELECT outcome, status_code AS status, headers, body, idem_problem(c) AS problem
      FROM idem_begin(${key}, request => ${JSON.stringify(request)}::jsonb, scope => 'pay', principal => ${tenant}) AS c`;
  if (claim.outcome !== 'execute') return claim.problem ?? claim;
  const { id } = await tx.payment.create({ data: { amount: request.amount } });
  const answer = { status: 201, headers: { 'Content-Type': 'application/json' }, body: Buffer.from(`{"id": ${id}}`) };
  await tx.$queryRaw`SELECT idem_complete(${key}, ${answer.status}, ${answer.body}::bytea, ${JSON.stringify(answer.headers)}::jsonb,
                                          scope => 'pay', principal => ${tenant})`;
  return answer;
});
// page: end

await report('prisma', {
  version: version('@prisma/client', require('@prisma/client/package.json')),
  place: '${}',
  sqlstate: 'error.meta.driverAdapterError.cause.originalCode',
  pay,
  sql: (...statement) => prisma.$queryRaw(...statement),
  transaction: (work) => prisma.$transaction((tx) => work((...statement) => tx.$queryRaw(...statement))),
  async more(tries) {
    await tries.add('error', '`error.code`', async (key, sql) => {
      await sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried', lease => '1 minute')`;
      const error = await sql`SELECT idem_complete(${key}, 201, scope => 'tried', token => 1)`.then(() => undefined, (e) => e);
      return `\`${error?.code}\``;
    });
    await tries.add('token', '`JSON.stringify(claim)`', async (key, sql) => {
      const [claim] = await sql`SELECT token FROM idem_begin(${key}, scope => 'tried', lease => '1 minute')`;
      return JSON.stringify(claim);
    });
    await tries.add('timeout', '`$transaction(work, { timeout: 100 })` and 300 ms of work', (key) => prisma.$transaction(async (tx) => {
      await tx.$queryRaw`SELECT outcome FROM idem_begin(${key}, scope => 'tried')`;
      await tx.$queryRaw`SELECT true FROM pg_sleep(0.3)`;
      await tx.$queryRaw`SELECT idem_complete(${key}, 201, scope => 'tried')`;
      return 'works';
    }, { timeout: 100 }));
  },
  end: () => prisma.$disconnect(),
});
