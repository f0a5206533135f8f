// The route that README.md and docs/recipes.md show first, as it stands there.
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import { testDatabase } from './database.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const FILE = join(ROOT, `readme-${process.pid}.mjs`); // here the package finds itself by its name
const [, shown] = /^## A route\n+```ts\n(.*?)^```/ms.exec(readFileSync(join(ROOT, 'README.md'), 'utf8'));

let db, server;
before(async () => {
  db = await testDatabase('idem_node_readme');
  await db.pool.query('CREATE TABLE payment (id serial, amount integer)');
  process.env.PGDATABASE = db.name;
  process.env.PGUSER ??= db.user;
  writeFileSync(FILE, `${shown}\nfunction tenantOf(token) { return token; }\nexport const end = () => pool.end();\nexport { app };\n`
    .replace('pg(new Pool())', 'pg(pool)').replace('const keys', 'const pool = new Pool();\nconst keys'));
  const service = await import(pathToFileURL(FILE));
  await new Promise((done) => { server = service.app.listen(0, '127.0.0.1', done); });
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

test('a payment is made once', async () => {
  const pay = async (amount) => {
    const answer = await fetch(`http://127.0.0.1:${server.address().port}/payments`, {
      method: 'POST', body: JSON.stringify({ amount }),
      headers: { Authorization: 'Bearer acme', 'Content-Type': 'application/json', 'Idempotency-Key': '"k1"' },
    });
    return [answer.status, answer.headers.get('Idempotent-Replayed'), await answer.text()];
  };
  assert.deepEqual(await pay(5), [201, null, '{"id":1}']);
  assert.deepEqual(await pay(5), [201, 'true', '{"id":1}']);
  assert.equal((await pay(6))[0], 422);
  assert.equal((await db.pool.query('SELECT count(*)::int AS n FROM payment')).rows[0].n, 1);
});
