// The routes of README.md's part "ORMs": each is rolled back in the middle, and replayed. With POOLER_PORT of
// ../../drivers/pooled, the libraries reach the database through that.
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import { PrismaPg } from '@prisma/adapter-pg';
import { drizzle } from 'drizzle-orm/node-postgres';
import { integer, pgTable } from 'drizzle-orm/pg-core';
import express from 'express';
import knex from 'knex';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { DataSource, EntitySchema } from 'typeorm';
import { tolerant } from 'idempotency-postgres/kysely';
import { patient, testDatabase } from './database.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const FILE = join(ROOT, `orms-${process.pid}.mjs`); // here the package finds itself by its name
const [, shown] = /^### ORMs\n.*?^```ts\n(.*?)^```/ms.exec(readFileSync(join(ROOT, 'README.md'), 'utf8'));
const require = createRequire(import.meta.url);
const { PrismaClient } = require('../node_modules/.prisma-test/index.js');

const pooler = process.env.POOLER_PORT;

let db, at, server, source, ends;
before(async () => {
  db = await testDatabase('idem_node_orms');
  await db.pool.query('CREATE TABLE payment (id serial PRIMARY KEY, amount integer)');
  at = { host: pooler ? '127.0.0.1' : db.host, port: Number(pooler ?? db.port), user: db.user, database: db.name };
  const Payment = new EntitySchema({ name: 'payment', columns: { id: { type: Number, primary: true, generated: true }, amount: { type: Number } } });
  source = await new DataSource({ type: 'postgres', ...at, username: at.user, entities: [Payment] }).initialize();
  const pool = new pg.Pool(at);
  // By default it ends a transaction after 5 s.
  const client = new PrismaClient({ adapter: new PrismaPg(at), transactionOptions: { timeout: 60_000, maxWait: 60_000 } });
  const builder = knex({ client: 'pg', connection: at });
  const typed = new Kysely({ dialect: new PostgresDialect({ pool: tolerant(new pg.Pool(at)) }) });
  const app = express();
  globalThis.orms = { app, client, orm: drizzle(pool), builder, typed, source, Payment, payment: pgTable('payment', { amount: integer() }) };
  ends = () => Promise.all([pool.end(), client.$disconnect(), builder.destroy(), typed.destroy(), source.destroy()]);
  writeFileSync(FILE, `const { ${Object.keys(globalThis.orms)} } = globalThis.orms;\n${shown}`);
  await import(pathToFileURL(FILE));
  await new Promise((done) => { server = patient(app.listen(0, '127.0.0.1', done)); });
});
after(async () => {
  server?.close();
  server?.closeAllConnections();
  await ends?.();
  rmSync(FILE, { force: true });
  await db.drop();
});

async function pay(name, key, amount) {
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/${name}`, {
    method: 'POST', body: JSON.stringify({ amount }),
    headers: { Authorization: 'Bearer acme', 'Content-Type': 'application/json', 'Idempotency-Key': key },
  });
  const { rows } = await db.pool.query('SELECT count(*)::int AS n FROM payment');
  return [answer.status, answer.headers.get('Idempotent-Replayed'), rows[0].n];
}

const NAMES = ['prisma', 'drizzle', 'knex', 'kysely', 'typeorm'];

for (const name of NAMES) {
  test(name, async () => {
    await db.pool.query('DELETE FROM payment');
    assert.deepEqual(await pay(name, 'a', 5000), [409, null, 0]);
    assert.deepEqual(await pay(name, 'a', 5000), [409, 'true', 0]);
    assert.deepEqual(await pay(name, 'b', 5), [201, null, 1]);
    assert.deepEqual(await pay(name, 'b', 5), [201, 'true', 1]);
  });
}

// The pooler gives a transaction the session that was used last; another client holds that.
for (const name of pooler ? NAMES : []) {
  test(`${name}, each request in another session`, async () => {
    const other = new pg.Client(at);
    await other.connect();
    await db.pool.query('DELETE FROM payment');
    for (let paid = 1; paid <= 3; paid += 1) {
      assert.deepEqual(await pay(name, `first-${paid}`, 5), [201, null, 2 * paid - 1]);
      await other.query('BEGIN; SELECT 1');
      assert.deepEqual(await pay(name, `second-${paid}`, 5), [201, null, 2 * paid]);
      assert.deepEqual(await pay(name, `first-${paid}`, 5), [201, 'true', 2 * paid]);
      await other.query('COMMIT');
    }
    await other.end();
  });
}
