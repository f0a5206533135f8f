// Routes as README.md shows them; docs/recipes.md has the first one as well.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import { patient, testDatabase } from './database.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const FILE = join(ROOT, `readme-${process.pid}.mjs`); // here the package finds itself by its name
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const [, shown] = /^## A route\n+```ts\n(.*?)^```/ms.exec(README);
const [, working] = /^## Worker\n.*?```ts\n(.*?)^```/ms.exec(README);
const [, leased] = /^```ts\n(import \{ NothingHappened \}.*?)^```/ms.exec(README);

let db, server;
before(async () => {
  db = await testDatabase('idem_node_readme');
  await db.pool.query('CREATE TABLE payment (id serial, amount integer)');
  process.env.PGDATABASE = db.name;
  process.env.PGUSER ??= db.user;
  writeFileSync(FILE, `${shown}\n${leased}\nimport { gateway } from './tests/gateway.mjs';\nfunction tenantOf(token) { return token; }\nexport const end = () => pool.end();\nexport { app };\n`
    .replace('pg(new Pool())', 'pg(pool)').replace('const keys', 'const pool = new Pool();\nconst keys'));
  const service = await import(pathToFileURL(FILE));
  await new Promise((done) => { server = patient(service.app.listen(0, '127.0.0.1', done)); });
  server.end = service.end;
});
after(async () => {
  server?.close();
  server?.closeAllConnections();
  await server?.end();
  rmSync(FILE, { force: true });
  delete process.env.PGDATABASE;
  await db.drop();
});

async function post(path, key, order) {
  const answer = await fetch(`http://127.0.0.1:${server.address().port}${path}`, {
    method: 'POST', body: JSON.stringify(order),
    headers: { Authorization: 'Bearer acme', 'Content-Type': 'application/json', 'Idempotency-Key': `"${key}"` },
  });
  return [answer.status, answer.headers.get('Idempotent-Replayed'), await answer.text()];
}

test('a payment is made once', async () => {
  const pay = (amount) => post('/payments', 'k1', { amount });
  assert.deepEqual(await pay(5), [201, null, '{"id":1}']);
  assert.deepEqual(await pay(5), [201, 'true', '{"id":1}']);
  assert.equal((await pay(6))[0], 422);
  assert.equal((await db.pool.query('SELECT count(*)::int AS n FROM payment')).rows[0].n, 1);
});

test('a refund whose outcome is not known is not tried again', async () => {
  const told = async (key) => {
    const { status, error, reference } = await db.record(key);
    return [status, error, reference];
  };
  assert.deepEqual(await post('/refunds', 'r1', { id: 're_1' }), [201, null, '{"refund":"re_1"}']);
  assert.deepEqual(await post('/refunds', 'r2', { late: 're_2' }), [202, null, '{"refund":null}']);
  assert.deepEqual(await told('r2'), ['unknown', 'no answer', 're_2']);
  assert.equal((await post('/refunds', 'r2', { late: 're_2' }))[0], 409);
  assert.equal((await post('/refunds', 'r3', { down: true }))[0], 500);
  assert.deepEqual(await told('r3'), ['retryable', 'the gateway is down', null]);
});

test('each mail is queued once, until the worker is told to stop', async () => {
  const file = join(ROOT, `readme-worker-${process.pid}.mjs`);
  await db.pool.query("CREATE TABLE mail (id serial, recipient text); SELECT idem_policy_set('mails', store_request => true)");
  await db.queue('m1', 'mails', { to: 'a' });
  writeFileSync(file, working);
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'inherit', 'inherit'] });
  try {
    await db.until(async () => (await db.record('m1')).status === 'completed');
    await db.queue('m2', 'mails', { to: 'b' });
    await db.pool.query('NOTIFY mails');
    await db.until(async () => (await db.record('m2')).status === 'completed');
    child.kill('SIGTERM');
    assert.deepEqual(await once(child, 'exit'), [0, null]);
  } finally {
    child.kill('SIGKILL');
    rmSync(file, { force: true });
  }
  assert.equal(String((await db.record('m2')).body), '{"id":2}');
  assert.equal((await db.pool.query('SELECT count(*)::int AS n FROM mail')).rows[0].n, 2);
});
