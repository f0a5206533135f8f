import express from 'express';
import { bearer, idempotency } from 'idempotency-postgres/express';
import { pg } from 'idempotency-postgres/pg';
import { bare, bench, common, kindOf, perform, pieces, pool, routes, ways } from './handler.mjs';

const keys = idempotency({ ...common, database: pg(pool), principal: bearer });

async function handler(request, response) {
  const { status, headers, body } = await perform(request.idempotency, request.body, request.rawBody, request.get('Content-Type'));
  response.status(status);
  for (const [name, value] of headers) response.append(name, value);
  if (request.path === '/streamed') for (const piece of pieces(body)) response.write(piece);
  else response.write(body);
  response.end();
}

const app = express();
app.disable('x-powered-by');
app.get('/health', (request, response) => { response.send('well'); });
app.get('/ways', (request, response) => { response.json(ways); });
for (const [path, options] of Object.entries(routes)) app.post(path, keys[kindOf(path)](options, handler));
if (bench) app.post('/bare', express.json(), (request, response, next) => { bare(request.body).then(() => response.status(201).end(), next); });
app.use((error, request, response, next) => {
  if (response.headersSent) next(error);
  else response.status(error.status ?? 500).json({ title: error.status ? error.message : 'Internal server error', status: error.status ?? 500 });
});

export const serve = (port, host) => new Promise((done) => { app.listen(port, host, () => done()); });
