// The calling side, against a service that is harmed between.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import http from 'node:http';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { NotFinal, call, isFinal, newKey } from 'idempotency-postgres/caller';
import { bearer, idempotency } from 'idempotency-postgres/node';
import { pg } from 'idempotency-postgres/pg';
import { testDatabase } from './database.mjs';

let db, server, front, url;
const faults = []; // each takes one connection

before(async () => {
  db = await testDatabase('idem_node_caller');
  const keys = idempotency({ database: pg(db.pool), principal: bearer });
  server = http.createServer(keys.transactional({ scope: 'pay' }, async (request, response) => {
    await request.idempotency.client.query('INSERT INTO effect (note) VALUES ($1)', [request.idempotency.key]);
    response.writeHead(request.body.status ?? 201).end(request.idempotency.key);
  }));
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  front = net.createServer((socket) => {
    const behind = net.connect(server.address().port, '127.0.0.1');
    for (const one of [socket, behind]) one.on('error', () => {});
    (faults.shift() ?? ((a, b) => { a.pipe(b); b.pipe(a); }))(socket, behind);
  });
  await new Promise((done) => { front.listen(0, '127.0.0.1', done); });
  url = `http://127.0.0.1:${front.address().port}/`;
});
after(async () => {
  server.closeAllConnections();
  server.close();
  front.close();
  await db.drop();
});

/** The request is lost; its answer is lost; a front answers instead. */
const lost = (socket, behind) => { socket.destroy(); behind.destroy(); };
const unanswered = (socket, behind) => { socket.pipe(behind); behind.once('data', () => lost(socket, behind)); };
const instead = (head) => (socket, behind) => { behind.destroy(); socket.once('data', () => socket.end(`HTTP/1.1 ${head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`)); };

/** The head says that the answer is not final, and its document is cut. */
const cut = (socket, behind) => {
  behind.destroy();
  socket.once('data', () => socket.end('HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nContent-Length: 90\r\nConnection: close\r\n\r\n{"type"'));
};

const quick = { base: 5, cap: 20 };
const sender = (body = {}) => (headers, signal) => fetch(url, {
  method: 'POST', body: JSON.stringify(body), signal, headers: { ...headers, Authorization: 'Bearer me', 'Content-Type': 'application/json', Connection: 'close' },
});

test('keys are UUIDs of version 7, in the order of time', () => {
  const keys = [newKey(1), newKey(2 ** 40), newKey()];
  for (const key of keys) assert.match(key, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.deepEqual([...keys].sort(), keys);
  assert.equal(new Set(Array.from({ length: 1000 }, () => newKey())).size, 1000);
});

test('the limit of a sending counts in a process that has nothing else to do', () => {
  const program = `import { call } from 'idempotency-postgres/caller';
    await call((_, signal) => new Promise((_, reject) => { signal.onabort = reject; }), { attempts: 1, timeout: 50 }).catch((error) => console.log(error.name));`;
  const ran = spawnSync(process.execPath, ['--input-type=module', '-e', program], { cwd: new URL('..', import.meta.url), encoding: 'utf8' });
  assert.deepEqual([ran.status, ran.stdout], [0, 'NotFinal\n']);
});

describe('faults between', () => {
  for (const [name, some] of Object.entries({ none: [], lost: [lost], 'an answer lost': [unanswered], 'an answer cut': [cut], several: [lost, instead('502 Bad Gateway'), unanswered, instead('429 Slow down')] })) {
    test(name, async () => {
      const stored = [];
      faults.push(...some);
      const response = await call(sender(), { ...quick, store: async (key) => { stored.push([key, await db.effects(key)]); } });
      const key = await response.text();
      assert.deepEqual([response.status, stored, await db.effects(key)], [201, [[key, 0]], 1]);
      assert.equal(faults.length, 0);
    });
  }

  test('Retry-After is obeyed', async () => {
    faults.push(instead('503 Away\r\nRetry-After: 1'), instead(`503 Away\r\nRetry-After: ${new Date(Date.now() + 2000).toUTCString()}`));
    const start = performance.now();
    assert.equal((await call(sender(), quick)).status, 201);
    assert.ok(performance.now() - start >= 1000);
  });

  test('it gives up, and goes on later with the same key', async () => {
    faults.push(unanswered, lost);
    const failure = await call(sender(), { ...quick, attempts: 2 }).catch((error) => error);
    assert.ok(failure instanceof NotFinal);
    const response = await call(sender(), { ...quick, key: failure.key });
    assert.deepEqual([response.headers.get('Idempotent-Replayed'), await db.effects(failure.key)], ['true', 1]);
  });

  test('what is final ends it', async () => {
    let sent = 0;
    const response = await call((headers, signal) => { sent += 1; return sender({ status: 422 })(headers, signal); }, quick);
    assert.deepEqual([response.status, sent], [422, 1]);
  });

  test('what is not final does not', async () => {
    let sent = 0;
    const failure = await call((headers, signal) => { sent += 1; return sender({ status: 500 })(headers, signal); }, { ...quick, attempts: 3 }).catch((error) => error);
    assert.deepEqual([failure.name, failure.response.status, sent], ['NotFinal', 500, 3]);
  });
});

test('which answers are final', async () => {
  const problem = (word, status) => new Response(JSON.stringify({ type: `https://x/problems/idempotency/${word}` }), { status, headers: { 'Content-Type': 'application/problem+json' } });
  for (const [word, status, final] of [['in-progress', 409, false], ['in-progress', 425, false], ['unknown', 409, false], ['retry-later', 503, false],
    ['mismatch', 422, true], ['expired', 412, true], ['exhausted', 500, true], ['failed', 500, true]]) assert.equal(await isFinal(problem(word, status)), final, word);
  for (const [status, final] of [[200, true], [404, true], [409, true], [408, false], [429, false], [500, false], [503, false]]) assert.equal(await isFinal(new Response('', { status })), final);
  assert.ok(await isFinal(new Response('', { status: 503, headers: { 'Idempotent-Replayed': 'true' } })));
});
