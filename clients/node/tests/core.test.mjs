// What needs no server.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseKey, quoteKey } from 'idempotency-postgres';
import { Heartbeat } from '../dist/esm/heartbeat.js';
import { digest, isJson, mediaType } from '../dist/esm/body.js';
import { storedHeaders } from '../dist/esm/claim.js';
import { DatabaseAway, isConnectionLost, isTransient, sqlstate } from '../dist/esm/database.js';
import { keepByDefault } from '../dist/esm/flows.js';
import { positional, textArray } from '../dist/esm/statements.js';

describe('keys', () => {
  const longest = 'x'.repeat(255);
  for (const [field, key] of Object.entries({
    '"a b"': 'a b', ' \t"a" \t': 'a', 'bare': 'bare', '"a,b"': 'a,b', '"a\\"b\\\\"': 'a"b\\', '"a";v=1; b="x;\\""': 'a',
    'pc%2D1': 'pc%2D1', '"pc%2D1"': 'pc%2D1', [longest]: longest, [`"${longest}"`]: longest,
  })) test(field, () => assert.equal(parseKey(field), key));
  for (const field of ['', ' ', '""', '"  "', '"a', 'a"', 'a,b', 'a;b', 'a b', '"a" b', '"a", "b"', '"ä"', 'ä', '"\t"', '"\\n"', '"a";', '"a";A=1',
    '"a" ;b', '"a";a= 1', '"a";a=1.2345', '"a";a=1234567890123456', `${longest}x`, 'a\\b']) {
    test(`none: ${field.slice(0, 20)}`, () => assert.equal(parseKey(field), null));
  }
  test('long fields take no longer', () => {
    for (const field of [`"${'\\"'.repeat(50000)}`, `"a"${';a=1'.repeat(30000)};`, `"a"${'; '.repeat(30000)}`, `"a";a=:${'a'.repeat(90000)}`]) parseKey(field);
  });
  test('there and back', () => assert.equal(parseKey(quoteKey('a"\\b')), 'a"\\b'));
});

describe('what is kept', () => {
  for (const status of [200, 201, 302, 400, 404, 409, 422]) test(`${status} is`, () => assert.ok(keepByDefault(status)));
  for (const status of [408, 425, 429, 500, 503, 599]) test(`${status} is not`, () => assert.ok(!keepByDefault(status)));
});

test('headers as they are stored', () => {
  const fields = [['X-A', '1'], ['set-cookie', 's'], ['x-a', '2'], ['__proto__', 'p'], ['Connection', 'close'], ['Mine', 'x'], ['B', '"']];
  assert.equal(storedHeaders(fields, ['mine']), '{"X-A":["1","2"],"__proto__":"p","B":"\\""}');
});

test('media types', () => {
  assert.deepEqual(['Application/JSON; charset=utf-8', 'application/vnd.x+json', 'text/json', 'application/jsonp', undefined].map((t) => isJson(mediaType(t))),
    [true, true, false, false, false]);
});

test('parts of a digest do not run into each other', () => {
  const digests = [['POST', '/ab', null, ''], ['POST', '/a', 'b', ''], ['POST', '/a', null, 'b'], ['POST', '/a', '', 'b']]
    .map(([m, p, t, b]) => digest(m, p, t, Buffer.from(b)).toString('hex'));
  assert.equal(new Set(digests).size, 4);
});

test('errors, wherever drivers put them', () => {
  assert.equal(sqlstate(Object.assign(new Error('x'), { code: '40001' })), '40001');
  assert.equal(sqlstate(new Error('x', { cause: { code: '40P01' } })), '40P01');
  assert.equal(sqlstate({ driverError: { code: 'ID409' } }), 'ID409');
  assert.equal(sqlstate({ code: 'P2010', meta: { driverAdapterError: { cause: { originalCode: '22P02' } } } }), '22P02');
  assert.equal(sqlstate(Object.assign(new Error('x'), { code: 'EPIPE' })), undefined);
  assert.ok(isTransient({ code: 'P2034' }));
  assert.ok(isTransient({ code: '57P01' }));
  assert.ok(isTransient({ code: 'ECONNRESET' }));
  assert.ok(!isTransient({ code: 'ECONNRESET' }, true), 'a handler\'s own');
  assert.ok(!isTransient({ code: '23505' }));
  assert.ok(!isTransient(new Error('payment declined')));
  assert.ok(isConnectionLost(new DatabaseAway('late')));
});

test('placeholders by position', () => {
  assert.deepEqual(positional('$2 $1 $2', ['a', 'b']), { text: '? ? ?', values: ['b', 'a', 'b'] });
  assert.equal(textArray(['a"b', 'c\\', 'd,e', '']), '{"a\\"b","c\\\\","d,e",""}');
});

describe('heartbeats', () => {
  const LEASE = 300;
  const heart = (extend, isLost = () => false) => new Promise((resolve) => {
    const sent = Heartbeat.now();
    const beats = [];
    const h = new Heartbeat(LEASE, sent, async (limit) => {
      beats.push(Heartbeat.now() - sent);
      await extend(beats.length, limit, h);
    }, isLost, (reason) => resolve({ h, beats, after: Heartbeat.now() - sent, reason }), (message) => new Error(message));
  });
  test('the lease ends when it may have ended, and not before', async () => {
    const { beats, after } = await heart(async () => { throw new Error('network'); });
    assert.ok(beats[0] >= LEASE / 3 - 2 && after >= LEASE, `${beats} ${after}`);
  });
  test('a failed beat is tried again', () => new Promise((resolve, reject) => {
    let beats = 0;
    const h = new Heartbeat(6000, Heartbeat.now(), async () => {
      beats += 1;
      if (beats === 1) throw new Error('network');
      h.stop();
      resolve();
    }, () => false, reject, (message) => new Error(message));
  }));
  test('a beat that succeeded counts from when it was sent', async () => {
    const { beats, after } = await heart(async (n) => { if (n > 1) throw new Error('network'); });
    assert.ok(after >= beats[0] + LEASE - 2, `${beats} ${after}`);
  });
  test('what the server says of the owner counts at once', async () => {
    const { h, beats } = await heart(async () => { throw new Error('ID409'); }, () => true);
    assert.equal(beats.length, 1);
    assert.ok(h.signal.aborted);
  });
});
