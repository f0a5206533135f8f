// What needs no server.
import assert from 'node:assert/strict';
import http from 'node:http';
import { describe, test } from 'node:test';
import { parseKey, quoteKey } from 'idempotency-postgres';
import { idempotency } from 'idempotency-postgres/node';
import { Held } from '../dist/esm/flows.js';
import { Heartbeat } from '../dist/esm/heartbeat.js';
import { digest, isJson, mediaType, partsOf } from '../dist/esm/body.js';
import { storedHeaders } from '../dist/esm/claim.js';
import { ConnectionLost, DatabaseAway, isConnectionLost, isTransient, sqlstate } from '../dist/esm/database.js';
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
    .map(([m, p, t, b]) => digest(m, p, t ?? undefined, Buffer.from(b)).toString('hex'));
  assert.equal(new Set(digests).size, 3, 'an empty type is none');
});

test('errors, wherever drivers put them', () => {
  const error = (code) => ({ code, severity: 'ERROR' });
  assert.equal(sqlstate(Object.assign(new Error('x'), error('40001'))), '40001');
  assert.equal(sqlstate(new Error('x', { cause: error('40P01') })), '40P01');
  assert.equal(sqlstate({ driverError: error('ID409') }), 'ID409');
  assert.equal(sqlstate({ name: 'PrismaClientKnownRequestError', code: 'P2010', meta: { driverAdapterError: { cause: { originalCode: '22P02' } } } }), '22P02');
  assert.equal(sqlstate({ name: 'PrismaClientKnownRequestError', code: 'P2010', meta: { code: '40001' } }), '40001');
  assert.ok(isTransient({ name: 'PrismaClientKnownRequestError', code: 'P2034' }));
  assert.ok(isTransient(error('57P01')));
  assert.ok(isTransient({ code: 'ECONNRESET' }));
  assert.ok(!isTransient(error('23505')));
  assert.ok(!isTransient(error('25P03')), 'each run would be too slow');
  assert.ok(!isTransient(new Error('payment declined')));
  assert.ok(isConnectionLost(new DatabaseAway('late')));
  assert.ok(isTransient(new ConnectionLost('gone')));
  assert.ok(!isTransient(new ConnectionLost('gone', { cause: error('25P03') })));
});

test('errors of strangers', () => {
  assert.equal(sqlstate(Object.assign(new Error('x'), { code: '40004' })), undefined);
  assert.equal(sqlstate(Object.assign(new Error('x'), { code: 'EPIPE' })), undefined);
  for (const code of ['40001', '57P01', 'ECONNRESET', 'P2034']) assert.ok(!isTransient({ code }, true), code);
  for (const words of ['Connection closed', 'SMTP: Connection ended', 'the provider says: Connection terminated']) {
    assert.ok(!isTransient(new Error(words), true), words);
  }
  assert.ok(isTransient(new Error('Connection terminated unexpectedly'), true), "pg's own");
});

describe('options', () => {
  const make = (options) => idempotency({ database: { transaction() {}, statement() {} }, principal: () => 'p', ...options });
  for (const [name, value] of Object.entries({
    missingkey: 'pass', missingKey: 'require', wait: '3', ttl: -1, lease: 0, attempts: 0, keep: true, echoKey: 'no', methods: 'POST', exclude: 'ts',
    statuses: { in_progres: 425 }, keyHeader: 'My Key', onReplay: 'log', principal: 'tenant', handlerTimeout: NaN, verdict: 'keep', scope: '',
  })) {
    test(`${name}: ${JSON.stringify(value)}`, () => {
      assert.throws(() => make({ [name]: value }), TypeError, 'for all routes');
      assert.throws(() => make({}).transactional({ scope: 's', [name]: value }, () => {}), TypeError, 'for one');
    });
  }
  for (const methods of [['post'], [], ['PUT', 'Patch'], ['']]) {
    test(`methods that no request has: ${JSON.stringify(methods)}`, () => assert.throws(() => make({ methods }), /`methods` has to be/));
  }
  test('what is right passes', () => {
    make({ missingKey: 'derive', wait: 0, statuses: { in_progress: 425 }, methods: ['PUT'], ttl: undefined, handlerTimeout: 1000 });
  });
});

// The text of an object may be another one in each request, or the same for all.
test('a principal is a string or a whole number', async () => {
  const seen = [];
  const database = { statement: () => assert.fail(), transaction: async () => assert.fail() };
  const answered = async (principal) => {
    const { leased } = idempotency({ database, principal: async () => principal, missingKey: 'pass' });
    const server = http.createServer(leased({ scope: 's', methods: ['PUT'] }, (request, response) => {
      seen.push(request.idempotency.principal);
      response.end();
    }));
    await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
    const { status } = await fetch(`http://127.0.0.1:${server.address().port}`, { method: 'POST' });
    server.close();
    return status;
  };
  const nothing = [null, undefined, false, ''];
  assert.deepEqual(await Promise.all(nothing.map(answered)), nothing.map(() => 401));
  const wrong = [{}, { toString: () => 'me' }, [1], true, 1.5, NaN, Symbol('me')];
  assert.deepEqual(await Promise.all(wrong.map(answered)), wrong.map(() => 500));
  assert.deepEqual(seen, []);
  for (const right of ['me', 7, 7n]) assert.equal(await answered(right), 200);
  assert.deepEqual(seen, ['me', '7', '7']);
});

test('parts of a form', () => {
  const form = (...lines) => partsOf('multipart/form-data; boundary=b', Buffer.from(lines.join('\r\n')));
  assert.deepEqual(form('--b', 'Content-Disposition: form-data; name="a\\"b"; filename=x.y', 'Content-Type: Text/Plain; charset=x', '', 'one', 'two', '--b--', ''),
    [{ name: 'a"b', fileName: 'x.y', type: 'text/plain', content: Buffer.from('one\r\ntwo') }]);
  for (const lines of [[''], ['--b--'], ['--b', 'x'], ['--b', '', 'x', '--b--'], ['--b', 'Content-Disposition: form-data', '', 'x']]) assert.equal(form(...lines), null, String(lines));
  assert.equal(partsOf('multipart/form-data', Buffer.from('--b--')), null);
});

test('placeholders by position', () => {
  assert.deepEqual(positional('$2 $1 $2', ['a', 'b']), { text: '? ? ?', values: ['b', 'a', 'b'] });
  assert.equal(textArray(['a"b', 'c\\', 'd,e', '']), '{"a\\"b","c\\\\","d,e",""}');
});

describe('work that conflicts, and whose lease is lost', () => {
  const LEASE = 60_000;
  const conflict = Object.assign(new Error('conflict'), { code: '40001', severity: 'ERROR' });
  /** The lease has ended, but that is not noticed before the next turn of the event loop. */
  async function worked(transaction, work) {
    let runs = 0;
    const held = new Held({ transaction }, { token: '1' }, { key: 'k', scope: 's', principal: '' }, { lease: LEASE }, Heartbeat.now() - LEASE);
    const result = await held.settleWithin((tx, claim) => { runs += 1; return work(claim); });
    assert.deepEqual([result, runs], [{ outcome: 'in_progress', claim: null }, 1]);
  }
  test('after its COMMIT', () => worked(async (first, run) => { await run({}, []); throw conflict; }, async () => ({ status: 200 })));
  test('during it', () => worked(async (first, run) => run({}, []), ({ signal }) => new Promise((_, reject) => {
    if (signal.aborted) reject(conflict);
    else signal.addEventListener('abort', () => reject(conflict));
  })));
});
