import http from 'node:http';
import { json } from 'node:stream/consumers';
import { bearer, idempotency } from 'idempotency-postgres/node';
import { pg } from 'idempotency-postgres/pg';
import { bare, bench, common, kindOf, perform, pieces, pool, routes, ways } from './handler.mjs';

const keys = idempotency({ ...common, database: pg(pool), principal: bearer });

async function handler(request, response) {
  const { status, headers, body } = await perform(request.idempotency, request.body, request.rawBody, request.headers['content-type']);
  response.statusCode = status;
  for (const [name, value] of headers) response.appendHeader(name, value);
  if (request.url.startsWith('/streamed')) for (const piece of pieces(body)) response.write(piece);
  else response.write(body);
  response.end();
}

const handlers = new Map(Object.entries(routes).map(
  ([path, options]) => [`POST ${path}`, keys[kindOf(path)]({ ...options, scope: `POST ${path}` }, handler)]));
handlers.set('GET /health', (request, response) => { response.end('well'); });
handlers.set('GET /ways', (request, response) => { response.end(JSON.stringify(ways)); });

if (bench) handlers.set('POST /bare', async (request, response) => { await bare(await json(request)); response.writeHead(201).end(); });

const server = http.createServer((request, response) => {
  const found = handlers.get(`${request.method} ${request.url.split('?')[0]}`);
  if (found) found(request, response);
  else response.writeHead(404).end();
});

export const serve = (port, host) => new Promise((done) => { server.listen(port, host, done); });
