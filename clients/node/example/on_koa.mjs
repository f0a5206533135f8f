import { Readable } from 'node:stream';
import { json } from 'node:stream/consumers';
import Router from '@koa/router';
import Koa from 'koa';
import { bearer, idempotency } from 'idempotency-postgres/koa';
import { pg } from 'idempotency-postgres/pg';
import { bare, bench, common, kindOf, perform, pieces, pool, routes, ways } from './handler.mjs';

const keys = idempotency({ ...common, database: pg(pool), principal: (context) => bearer(context.req) });

async function handler(context) {
  const { body: order, rawBody } = context.request;
  const { status, headers, body } = await perform(context.idempotency, order, rawBody, context.get('Content-Type'));
  context.status = status;
  context.body = context.path === '/streamed' ? Readable.from(pieces(body)) : body;
  context.remove('Content-Type');
  for (const [name, value] of headers) context.append(name, value);
}

const app = new Koa();
app.silent = true;
const router = new Router();
router.get('/health', (context) => { context.body = 'well'; });
router.get('/ways', (context) => { context.body = ways; });
for (const [path, options] of Object.entries(routes)) router.post(path, keys[kindOf(path)](options, handler));
if (bench) {
  router.post('/bare', async (context) => {
    await bare(await json(context.req));
    context.status = 201;
    context.body = '';
  });
}
app.use(router.routes());

export const serve = (port, host) => new Promise((done) => { app.listen(port, host, done); });
