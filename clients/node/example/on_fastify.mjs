import { Readable } from 'node:stream';
import Fastify from 'fastify';
import { bearer, idempotency } from 'idempotency-postgres/fastify';
import { pg } from 'idempotency-postgres/pg';
import { bare, bench, common, kindOf, perform, pieces, pool, routes, ways } from './handler.mjs';

const keys = idempotency({ ...common, database: pg(pool), principal: bearer });

async function handler(request, reply) {
  const { status, headers, body } = await perform(request.idempotency, request.body, request.rawBody, request.headers['content-type']);
  reply.code(status);
  const several = Object.groupBy?.(headers, ([name]) => name) ?? group(headers);
  for (const [name, pairs] of Object.entries(several)) reply.header(name, pairs.length === 1 ? pairs[0][1] : pairs.map(([, value]) => value));
  return reply.send(request.url.startsWith('/streamed') ? Readable.from(pieces(body)) : body.length ? body : undefined);
}

function group(headers) {
  const groups = Object.create(null);
  for (const pair of headers) (groups[pair[0]] ??= []).push(pair);
  return groups;
}

const app = Fastify({ exposeHeadRoutes: false });
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, body, done) => {
  if (!/^application\/([^;]*\+)?json/i.test(request.headers['content-type'])) return done(null, body);
  try {
    return done(null, JSON.parse(body));
  } catch {
    return done(null, undefined); // the middleware refuses it
  }
});
app.get('/health', async () => 'well');
app.get('/ways', async () => ways);
for (const [path, options] of Object.entries(routes)) app.post(path, keys[kindOf(path)](options, handler));
if (bench) app.post('/bare', async (request, reply) => { await bare(request.body); return reply.code(201).send(); });

export const serve = (port, host) => app.listen({ port, host });
