// NestJS: an interceptor.
import 'reflect-metadata';
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Body, ConflictException, Controller, Module, Param, Post, Req, UseInterceptors } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { bearer, idempotency } from 'idempotency-postgres/nest';
import { pg } from 'idempotency-postgres/pg';
import { patient, testDatabase } from './database.mjs';

let db, app, url;
let runs = 0;
before(async () => {
  db = await testDatabase('idem_node_nest');
  const keys = idempotency({ database: pg(db.pool), principal: bearer });
  class Payments {
    async pay(request, id, body) {
      runs += 1;
      await request.idempotency.client.query('INSERT INTO effect (note) VALUES ($1)', [request.idempotency.key]);
      if (body.do === 'conflict') throw new ConflictException('no');
      if (body.do === 'break') throw new Error('broken');
      if (body.do === 'retry' && runs === 1) await request.idempotency.client.query("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
      return { id, paid: body.amount };
    }
  }
  Reflect.defineMetadata('design:paramtypes', [Object, String, Object], Payments.prototype, 'pay');
  [Req(), Param('id'), Body()].forEach((decorate, i) => decorate(Payments.prototype, 'pay', i));
  const method = Object.getOwnPropertyDescriptor(Payments.prototype, 'pay');
  for (const decorate of [Post(':id'), UseInterceptors(keys.transactional())]) decorate(Payments.prototype, 'pay', method);
  Controller('payments')(Payments);
  class App {}
  Module({ controllers: [Payments] })(App);
  app = await NestFactory.create(App, { rawBody: true, logger: false });
  patient(await app.listen(0, '127.0.0.1'));
  url = await app.getUrl();
});
after(async () => { await app.close(); await db.drop(); });

const send = async (key, body) => {
  const answer = await fetch(`${url}/payments/7`, {
    method: 'POST', body: JSON.stringify(body), headers: { Authorization: 'Bearer me', 'Content-Type': 'application/json', ...(key && { 'Idempotency-Key': `"${key}"` }) },
  });
  return { status: answer.status, type: answer.headers.get('Content-Type'), replayed: answer.headers.get('Idempotent-Replayed'), body: await answer.json() };
};

test('an answer is replayed', async () => {
  const first = await send('paid', { amount: 5 });
  assert.deepEqual(first, { status: 201, type: 'application/json; charset=utf-8', replayed: null, body: { id: '7', paid: 5 } });
  assert.deepEqual(await send('paid', { amount: 5 }), { ...first, replayed: 'true' });
  assert.equal(await db.effects('paid'), 1);
  assert.equal((await db.record('paid')).scope, 'POST /payments/:id');
});

test('refusals', async () => {
  assert.equal((await send(null, {})).status, 400);
  const refused = await send('paid', { amount: 6 });
  assert.deepEqual([refused.status, refused.type], [422, 'application/problem+json']);
});

test('an exception with a status is its answer, without its work', async () => {
  for (const replayed of [null, 'true']) {
    const answer = await send('conflict', { do: 'conflict' });
    assert.deepEqual([answer.status, answer.body.message, answer.replayed], [409, 'no', replayed]);
  }
  assert.equal(await db.effects('conflict'), 0);
});

test('any other rolls back', async () => {
  assert.equal((await send('break', { do: 'break' })).status, 500);
  assert.deepEqual([await db.effects('break'), await db.record('break')], [0, undefined]);
});

test('a serialization failure runs the method again', async () => {
  runs = 0;
  assert.equal((await send('retry', { do: 'retry', amount: 1 })).status, 201);
  assert.deepEqual([runs, await db.effects('retry')], [2, 1]);
});
