// Runs server.js against the database that libpq's variables name, over HTTP. Prints TAP, and ends
// with status 1 if a test failed. Needs the extension, and makes its own tables.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

import pg from 'pg';

import { createApp } from './server.js';

// Loses the answer to the next COMMIT, which is done, by losing the connection.
class DeafClient extends pg.Client {
  static deaf = false;

  async query(text, ...rest) {
    const result = await super.query(text, ...rest);
    if (text !== 'COMMIT' || !DeafClient.deaf) return result;
    DeafClient.deaf = false;
    this.connection.stream.destroy(new Error('the answer to COMMIT is lost'));
    return super.query('SELECT 1');
  }
}

const pool = new pg.Pool({ max: 20, Client: DeafClient });
pool.on('error', () => {});
let gateway;
const LEASE = 10_000; // ms; a late heartbeat has three tenths of it
const app = createApp(pool, (charge) => gateway(charge), LEASE);
const server = app.listen(0, '127.0.0.1');
let failures = 0;

async function post(path, key, body, tenant = 'acme') {
  const headers = { Authorization: `Bearer sk_${tenant}`, 'Content-Type': 'application/json' };
  if (key !== null) headers['Idempotency-Key'] = `"${key}"`;
  const url = `http://127.0.0.1:${server.address().port}${path}`;
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  return {
    status: answer.status,
    replayed: answer.headers.get('Idempotent-Replayed'),
    location: answer.headers.get('Location'),
    retryAfter: answer.headers.get('Retry-After'),
    body: await answer.text(),
  };
}

async function charges(key) {
  const { rows } = await pool.query('SELECT count(*)::int AS n FROM charge WHERE key = $1', [key]);
  return rows[0].n;
}

async function test(description, body) {
  try {
    await body();
    console.log(`ok - node: ${description}`);
  } catch (error) {
    failures += 1;
    console.log(`not ok - node: ${description}\n# ${String(error).replaceAll('\n', '\n# ')}`);
  }
}

await pool.query(`
  CREATE TABLE charge (id uuid PRIMARY KEY, tenant text, key text, amount numeric);
  CREATE TABLE event (id text, type text);
  SELECT idem_policy_set('POST /transfers', retry_base => '20 ms', retry_cap => '20 ms')`);

await test('a repeat gets the first answer and does nothing', async () => {
  const first = await post('/payments', 'repeat', { amount: 5 });
  const second = await post('/payments', 'repeat', { amount: 5 });
  assert.equal(first.status, 201);
  assert.equal(first.replayed, null);
  assert.deepEqual(second, { ...first, replayed: 'true' });
  assert.equal(await charges('repeat'), 1);
});

await test('the same key with another payload is refused with 422', async () => {
  await post('/payments', 'bound', { amount: 5 });
  const answer = await post('/payments', 'bound', { amount: 6 });
  assert.equal(answer.status, 422);
  assert.equal(JSON.parse(answer.body).status, 422);
  assert.equal(await charges('bound'), 1);
});

await test('the same key of two tenants is two payments', async () => {
  const one = await post('/payments', 'shared', { amount: 5 }, 'acme');
  const two = await post('/payments', 'shared', { amount: 5 }, 'globex');
  assert.deepEqual([one.status, two.status, two.replayed], [201, 201, null]);
  assert.equal(await charges('shared'), 2);
});

await test('no key is refused with 400', async () => {
  assert.equal((await post('/payments', null, { amount: 5 })).status, 400);
});

await test('a refusal is stored and replayed', async () => {
  const first = await post('/payments', 'declined', { amount: 0 });
  const second = await post('/payments', 'declined', { amount: 0 });
  assert.equal(first.status, 402);
  assert.deepEqual(second, { ...first, replayed: 'true' });
});

await test('a failure that was stored without a status is a problem document', async () => {
  await pool.query(`
    WITH claim AS MATERIALIZED (
      SELECT token FROM idem_begin('failed', '{"amount": 1}', 'POST /payments', 'acme'))
    SELECT idem_fail('failed', 'no', scope => 'POST /payments', principal => 'acme', token => token)
      FROM claim`);
  const answer = await post('/payments', 'failed', { amount: 1 });
  assert.deepEqual([answer.status, answer.replayed], [500, 'true']);
  assert.equal(JSON.parse(answer.body).type, '/problems/idempotency/failed');
  assert.equal(await charges('failed'), 0);
});

await test('an exception rolls the work back and frees the key', async () => {
  await pool.query('ALTER TABLE charge ADD CONSTRAINT rich CHECK (amount < 1000)');
  assert.equal((await post('/payments', 'broken', { amount: 2000 })).status, 500);
  await pool.query('ALTER TABLE charge DROP CONSTRAINT rich');
  const answer = await post('/payments', 'broken', { amount: 2000 });
  assert.deepEqual([answer.status, answer.replayed], [201, null]);
});

await test('of twenty simultaneous requests one executes', async () => {
  const sent = Array.from({ length: 20 }, () => post('/payments', 'crowd', { amount: 5 }));
  const answers = await Promise.all(sent);
  const executed = answers.filter((a) => a.status === 201 && a.replayed === null);
  assert.equal(executed.length, 1);
  for (const answer of answers) {
    assert.ok(answer.status === 409 || answer.body === executed[0].body, answer.body);
    assert.ok(answer.status !== 409 || Number(answer.retryAfter) >= 1);
  }
  assert.equal(await charges('crowd'), 1);
});

await test('after a COMMIT whose answer got lost the work is not done again', async () => {
  DeafClient.deaf = true;
  const answer = await post('/payments', 'lost', { amount: 5 });
  assert.equal(DeafClient.deaf, false);
  assert.deepEqual([answer.status, answer.replayed], [201, 'true']);
  assert.equal(await charges('lost'), 1);
});

await test('terminated backends are survived', async () => {
  await pool.query(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()`);
  assert.equal((await post('/payments', 'terminated', { amount: 5 })).status, 201);
  assert.equal(await charges('terminated'), 1);
});

await test('a running transfer outlives its lease, and a duplicate is answered 409', async () => {
  let during;
  gateway = async () => {
    await sleep(1.1 * LEASE);
    during = await post('/transfers', 'running', { amount: 5 });
    return 'ch_1';
  };
  const answer = await post('/transfers', 'running', { amount: 5 });
  assert.deepEqual([answer.status, answer.body], [201, '{"charge":"ch_1"}']);
  assert.equal(during.status, 409);
  assert.ok(Number(during.retryAfter) >= 1);
});

await test('a failed transfer is tried again with the same derived key', async () => {
  const keys = [];
  gateway = async ({ key }) => {
    keys.push(key);
    if (keys.length === 1) throw new Error('the gateway is down');
    return 'ch_2';
  };
  assert.equal((await post('/transfers', 'steps', { amount: 5 })).status, 500);
  let answer;
  do {
    await sleep(30); // the pause before the next attempt
    answer = await post('/transfers', 'steps', { amount: 5 });
  } while (answer.status === 503);
  assert.equal(answer.status, 201);
  assert.deepEqual(keys, ['transfer:acme:steps', 'transfer:acme:steps']);
});

await test('of an event that comes four times at once one is applied', async () => {
  const sent = Array.from({ length: 4 }, () => post('/events', null, { id: 'evt_1', type: 'paid' }));
  assert.deepEqual((await Promise.all(sent)).map((a) => a.status), [204, 204, 204, 204]);
  const { rows } = await pool.query("SELECT count(*)::int AS n FROM event WHERE id = 'evt_1'");
  assert.equal(rows[0].n, 1);
});

server.close();
server.closeAllConnections();
await pool.end();
process.exitCode = failures > 0 ? 1 : 0;
