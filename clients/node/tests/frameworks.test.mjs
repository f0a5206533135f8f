// Each framework's own part: bodies, answers of each kind, retries, refusals before the body.
import assert from 'node:assert/strict';
import http from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, test } from 'node:test';
import express5 from 'express';
import express4 from 'express4';
import multipart from '@fastify/multipart';
import Fastify from 'fastify';
import Koa from 'koa';
import multer from 'multer';
import Router from '@koa/router';
import { leased, transactionally } from 'idempotency-postgres';
import { bearer, idempotency as forExpress } from 'idempotency-postgres/express';
import { bearer as fastifyBearer, idempotency as forFastify } from 'idempotency-postgres/fastify';
import { idempotency as forKoa } from 'idempotency-postgres/koa';
import { idempotency as forNode } from 'idempotency-postgres/node';
import { pg } from 'idempotency-postgres/pg';
import { patient, testDatabase } from './database.mjs';

let db;
before(async () => { db = await testDatabase('idem_node_frameworks'); });
after(() => db.drop());

/** What each route does, told by the body's `do`; `answer` says it in the framework's words. */
const kinds = ['json', 'text', 'bytes', 'stream', 'empty', 'retry', 'throw', 'late', 'large', 'multi'];
const MULTI = ['<a>; rel="x"', '<b>'];
const runs = new Map();
async function work(claim, body) {
  await claim.client.query('INSERT INTO effect (note) VALUES ($1)', [claim.key]);
  if (body.do === 'retry') {
    assert.equal(body.spoilt, undefined, 'each run begins with a fresh body');
    if (!claim.fastify) body.spoilt = true;
    const run = (runs.get(claim.key) ?? 0) + 1;
    runs.set(claim.key, run);
    if (run < 3) await claim.client.query("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
  }
  if (body.do === 'throw') throw Object.assign(new Error('no'), { status: 422, statusCode: 422, expose: true });
}

async function express(request, response) {
  const { body } = request;
  if (body.do === 'retry') response.setHeader('X-Run', String((runs.get(request.idempotency.key) ?? 0) + 1));
  await work(request.idempotency, body);
  switch (body.do) {
    case 'text': response.send('text'); break;
    case 'bytes': response.status(202).send(Buffer.from([0, 255, 10])); break;
    case 'stream': await pipeline(Readable.from([Buffer.from('a'.repeat(70000)), Buffer.from('b')]), response); break;
    case 'empty': response.status(204).end(); break;
    case 'large': response.send('x'.repeat(100001)); break;
    case 'multi': response.set('Link', MULTI).append('X-A', '1').append('X-A', '2').json([]); break;
    case 'late': response.json({}); await work(request.idempotency, { do: 'throw' }); break;
    default: response.status(201).json({ id: 1, echo: body });
  }
}

async function plain(request, response) {
  const { body } = request;
  if (body.do === 'retry') response.setHeader('X-Run', String((runs.get(request.idempotency.key) ?? 0) + 1));
  await work(request.idempotency, body);
  switch (body.do) {
    case 'text': response.setHeader('Content-Type', 'text/plain; charset=utf-8'); response.end('text'); break;
    case 'bytes': response.writeHead(202, { 'Content-Type': 'application/octet-stream' }); response.end(Buffer.from([0, 255, 10])); break;
    case 'stream': new PassThrough().end('a'.repeat(70000)).pipe(response, { end: false }).on('unpipe', () => response.end('b')); break;
    case 'empty': response.writeHead(204).end(); break;
    case 'large': response.write('x'.repeat(100000)); response.end('x'); break;
    case 'multi': response.writeHead(200, ['Link', MULTI[0], 'Link', MULTI[1], 'X-A', '1', 'X-A', '2', 'Content-Type', 'application/json']); response.end('[]'); break;
    case 'late': response.end('{}'); await work(request.idempotency, { do: 'throw' }); break;
    default: response.writeHead(201, 'Made', { 'Content-Type': 'application/json; charset=utf-8' }); response.end(JSON.stringify({ id: 1, echo: body }));
  }
}

async function koa(context) {
  const { body } = context.request;
  if (body.do === 'retry') context.set('X-Run', String((runs.get(context.idempotency.key) ?? 0) + 1));
  await work(context.idempotency, body);
  switch (body.do) {
    case 'text': context.body = 'text'; break;
    case 'bytes': context.status = 202; context.body = Buffer.from([0, 255, 10]); break;
    case 'stream': context.type = 'application/octet-stream'; context.body = Readable.from([Buffer.from('a'.repeat(70000)), Buffer.from('b')]); break;
    case 'empty': context.body = null; break;
    case 'large': context.body = 'x'.repeat(100001); break;
    case 'multi': context.set('Link', MULTI); context.append('X-A', '1'); context.append('X-A', '2'); context.body = []; break;
    case 'late': context.body = {}; await work(context.idempotency, { do: 'throw' }); break;
    default: context.status = 201; context.body = { id: 1, echo: body };
  }
}

async function fastify(request, reply) {
  const { body } = request;
  if (body.do === 'retry') reply.header('X-Run', String((runs.get(request.idempotency.key) ?? 0) + 1));
  await work({ ...request.idempotency, fastify: true }, body);
  switch (body.do) {
    case 'text': return 'text';
    case 'bytes': return reply.code(202).send(Buffer.from([0, 255, 10]));
    case 'stream': return Readable.from([Buffer.from('a'.repeat(70000)), Buffer.from('b')]);
    case 'empty': reply.code(204).send(); return reply;
    case 'large': return 'x'.repeat(100001);
    case 'multi': reply.header('Link', MULTI).header('X-A', ['1', '2']); return [];
    case 'late': reply.send({}); await work(request.idempotency, { do: 'throw' }); return reply;
    default: reply.code(201); return { id: 1, echo: body };
  }
}

const options = (principal) => ({ database: pg(db.pool), principal, maxAnswerBytes: 100000, maxRequestBytes: 2000 });
const listen = (server) => new Promise((done) => { patient(server).listen(0, '127.0.0.1', () => done(server)); });
const expressApp = (library) => () => {
  const app = library();
  const router = library.Router();
  router.post('/:what', forExpress(options(bearer)).transactional(express));
  app.use('/v1', router);
  app.use((error, request, response, next) => { response.status(error.status ?? 500).json({ error: error.message }); });
  return listen(http.createServer(app));
};
const servers = {
  'express 5': { scope: 'POST /v1/:what', start: expressApp(express5) },
  'express 4': { scope: 'POST /v1/:what', start: expressApp(express4) },
  'node:http': {
    scope: 'pay',
    start: () => listen(http.createServer(forNode(options(bearer)).transactional({ scope: 'pay' }, plain))),
  },
  koa: {
    scope: 'POST /v1/:what',
    start: () => {
      const app = new Koa();
      app.silent = true;
      const router = new Router();
      router.post('/v1/:what', forKoa(options((context) => bearer(context.req))).transactional(koa));
      app.use(router.routes());
      return listen(http.createServer(app.callback()));
    },
  },
  fastify: {
    scope: 'POST /v1/:what',
    start: async () => {
      const app = Fastify();
      app.post('/v1/:what', forFastify(options(fastifyBearer)).transactional(fastify));
      await app.listen({ port: 0, host: '127.0.0.1' });
      return patient(app.server);
    },
  },
};

for (const [name, { scope, start }] of Object.entries(servers)) {
  describe(name, () => {
    let server;
    before(async () => { server = await start(); });
    after(() => new Promise((done) => { server.closeAllConnections(); server.close(done); }));
    const send = async (key, body, headers = {}, target = '/v1/pay') => {
      const response = await fetch(`http://127.0.0.1:${server.address().port}${target}`, {
        method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body),
        headers: { Authorization: 'Bearer me', 'Content-Type': 'application/json', ...(key && { 'Idempotency-Key': `"${key}"` }), ...headers },
      });
      const fields = Object.fromEntries([...response.headers].filter(([n]) => !['date', 'connection', 'keep-alive', 'idempotent-replayed', 'content-length', 'transfer-encoding'].includes(n)));
      return { status: response.status, fields, body: Buffer.from(await response.arrayBuffer()), replayed: response.headers.get('idempotent-replayed') };
    };

    for (const kind of kinds.filter((one) => !['throw', 'late', 'large'].includes(one))) {
      test(`an answer of the kind ${kind} is replayed`, async () => {
        const key = `${name} ${kind}`;
        const first = await send(key, { do: kind });
        assert.equal(first.replayed, null, first.body.toString());
        const again = await send(key, { do: kind });
        assert.deepEqual({ ...again, replayed: null }, first);
        assert.equal(again.replayed, 'true');
        assert.equal(await db.effects(key), 1);
        const expected = { json: 201, text: 200, bytes: 202, stream: 200, empty: 204, retry: 201, multi: 200 };
        assert.equal(first.status, expected[kind]);
        if (kind === 'json') assert.deepEqual(JSON.parse(first.body), { id: 1, echo: { do: 'json' } });
        if (kind === 'stream') assert.equal(first.body.length, 70001);
        if (kind === 'bytes') assert.deepEqual(first.body, Buffer.from([0, 255, 10]));
        if (kind === 'retry') assert.equal(first.fields['x-run'], '3', 'each run begins with a fresh response');
        if (kind === 'multi') assert.deepEqual([first.fields.link, first.fields['x-a']], [MULTI.join(', '), '1, 2']);
        assert.equal((await db.record(key)).scope, scope);
      });
    }

    test('an answer that is too large is rolled back', async () => {
      const key = `${name} large`;
      assert.equal((await send(key, { do: 'large' })).status, 500);
      assert.deepEqual([await db.effects(key), await db.record(key)], [0, undefined]);
    });

    for (const kind of ['throw', 'late']) {
      test(`${kind}: rolled back, and the application's answer is replayed`, async () => {
        const key = `${name} ${kind}`;
        const first = await send(key, { do: kind });
        assert.deepEqual([first.status, first.replayed], [422, null]);
        const again = await send(key, { do: kind });
        assert.deepEqual({ ...again, replayed: null }, first);
        assert.deepEqual([again.replayed, await db.effects(key)], ['true', 0]);
      });
    }

    test('refusals', async () => {
      const key = `${name} refusals`;
      assert.equal((await send(null, {})).status, 400);
      assert.equal((await send('', {})).status, 400);
      assert.equal((await send(key, {}, { Authorization: 'Basic x' })).status, 401);
      assert.equal((await send(key, '{')).status, 400);
      assert.equal((await send(key, { x: 'x'.repeat(2000) })).status, 413);
      assert.equal(await db.record(key), undefined);
      assert.equal((await send(key, { do: 'json' })).status, 201);
      assert.equal((await send(key, { do: 'text' })).status, 422);
      assert.equal((await send(key, { do: 'json' }, {}, '/v1/pay?x')).status, 422);
    });
  });
}

test('a body that a parser has read, and kept', async () => {
  const app = express5();
  app.use(express5.json({ verify: (request, response, body) => { request.rawBody = body; } }));
  app.post('/', forExpress(options(bearer)).transactional(express));
  const server = await listen(http.createServer(app));
  const response = await fetch(`http://127.0.0.1:${server.address().port}/`, {
    method: 'POST', body: '{"do":"json"}', headers: { Authorization: 'Bearer me', 'Content-Type': 'application/json', 'Idempotency-Key': 'parsed' },
  });
  assert.equal(response.status, 201);
  server.closeAllConnections();
  server.close();
});

test('a body that a parser has read, and not kept, is said', async () => {
  const app = express5();
  let message;
  app.use(express5.json());
  app.post('/', forExpress(options(bearer)).transactional(express));
  app.use((error, request, response, next) => { message = error.message; response.status(500).end(); });
  const server = await listen(http.createServer(app));
  await fetch(`http://127.0.0.1:${server.address().port}/`, {
    method: 'POST', body: '{"do":"json"}', headers: { Authorization: 'Bearer me', 'Content-Type': 'application/json', 'Idempotency-Key': 'lost' },
  });
  assert.match(message, /before body parsers/);
  server.closeAllConnections();
  server.close();
});

async function withServer(server, work) {
  try {
    return await work(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    await new Promise((done) => { server.close(done); });
  }
}
const post = (url, key, body, headers = {}) => fetch(url, { method: 'POST', body, headers: { Authorization: 'Bearer me', 'Idempotency-Key': `"${key}"`, ...headers } });

const chains = (library) => {
  const app = library();
  const keys = forExpress(options(bearer));
  const validate = (request, response, next) => {
    if (request.body.amount === 'zero') response.status(422).json({ error: 'zero' });
    else if (request.body.amount === 'odd') next(Object.assign(new Error('odd'), { status: 400 }));
    else next();
  };
  const pay = async (request, response, next) => {
    await request.idempotency.client.query('INSERT INTO effect (note) VALUES ($1)', [request.idempotency.key]);
    if (request.body.amount === 'late') return next(Object.assign(new Error('late'), { status: 409 }));
    return response.status(201).json({ ...request.body, id: request.params.id });
  };
  app.post('/given/:id', keys.transactional({ wait: 10 }, validate, pay));
  app.post('/route/:id', library.json({ verify: (request, response, body) => { request.rawBody = body; } }), keys.transactional(), validate, pay);
  const upload = multer({ storage: multer.memoryStorage() }).single('scan');
  app.post('/upload/:id', keys.transactional(), upload, (request, response) => {
    response.json({ ...request.body, scan: request.file?.buffer.toString(), name: request.file?.originalname });
  });
  app.use(keys.transactional());
  app.use((error, request, response, next) => { response.status(error.status ?? 500).json({ error: error.message }); });
  return listen(http.createServer(app));
};

for (const [name, library] of Object.entries({ 'express 5': express5, 'express 4': express4 })) {
  test(`${name}: chains of handlers`, async () => withServer(await chains(library), async (url) => {
    for (const route of ['given', 'route']) {
      const key = (word) => `${name} chain ${route} ${word}`;
      const send = async (word, amount) => {
        const answer = await post(`${url}/${route}/7`, key(word), JSON.stringify({ amount }), { 'Content-Type': 'application/json' });
        return [answer.status, await answer.json(), answer.headers.get('Idempotent-Replayed'), await db.effects(key(word))];
      };
      for (const replayed of [null, 'true']) {
        assert.deepEqual(await send('paid', 5), [201, { amount: 5, id: '7' }, replayed, 1]);
        assert.deepEqual(await send('answers itself', 'zero'), [422, { error: 'zero' }, replayed, 0]);
        assert.deepEqual(await send('an error before', 'odd'), [400, { error: 'odd' }, replayed, 0]);
        assert.deepEqual(await send('an error after', 'late'), [409, { error: 'late' }, replayed, 0]);
      }
    }
    const form = await post(`${url}/given/7`, `${name} form`, 'amount=5&to=me', { 'Content-Type': 'application/x-www-form-urlencoded' });
    assert.deepEqual(await form.json(), { amount: '5', to: 'me', id: '7' });
    const elsewhere = await post(`${url}/elsewhere`, `${name} elsewhere`, '{}', { 'Content-Type': 'application/json' });
    assert.equal(elsewhere.status, 500, 'outside of a route, it says so');
  }));

  test(`${name}: multer behind it`, async () => withServer(await chains(library), async (url) => {
    const send = (scan) => {
      const form = new FormData();
      form.set('to', 'me');
      form.set('scan', new Blob([scan]), 'scan.txt');
      return post(`${url}/upload/1`, `${name} upload`, form);
    };
    const first = await send('text');
    assert.deepEqual(await first.json(), { to: 'me', scan: 'text', name: 'scan.txt' });
    const again = await send('text');
    assert.deepEqual([again.status, again.headers.get('Idempotent-Replayed')], [200, 'true']);
    assert.equal((await send('other')).status, 422);
  }));
}

test('fastify: @fastify/multipart', async () => {
  const app = Fastify();
  await app.register(multipart);
  app.post('/', forFastify(options(fastifyBearer)).transactional(async (request) => {
    const file = await request.file();
    return { scan: (await file.toBuffer()).toString() };
  }));
  await app.listen({ port: 0, host: '127.0.0.1' });
  await withServer(app.server, async (url) => {
    for (const replayed of [null, 'true']) {
      const form = new FormData();
      form.set('scan', new Blob(['text']), 'scan.txt');
      const answer = await post(url, 'fastify upload', form);
      assert.deepEqual([await answer.json(), answer.headers.get('Idempotent-Replayed')], [{ scan: 'text' }, replayed]);
    }
  });
});

test('a verdict that is none is an error, and keeps nothing', async () => {
  const request = { scope: 's', principal: 'p', fingerprint: Buffer.from('f') };
  for (const [name, run] of Object.entries({ transactionally, leased })) {
    const key = `verdict ${name}`;
    const work = async (first) => {
      if (name === 'transactionally') await first.query('INSERT INTO effect (note) VALUES ($1)', [key]);
      return { status: 201 };
    };
    for (const word of ['kepp', '', Promise.resolve('keep')]) {
      const settings = { verdict: () => word };
      await assert.rejects(run(pg(db.pool), { ...request, key: `${key} ${word}` }, work, settings), /`verdict` has to return/);
      const record = await db.record(`${key} ${word}`);
      assert.equal(record?.status, name === 'leased' ? 'retryable' : undefined);
    }
    assert.equal(await db.effects(key), 0);
  }
});
