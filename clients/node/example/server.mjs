// What clients/conformance/README.md wants to try, on Express. Services look like examples/node.
import express from 'express';
import pg from 'pg';
import { bearer, idempotency } from 'idempotency-postgres/express';
import { pg as database } from 'idempotency-postgres/pg';

const settings = { application_name: process.env.PGAPPNAME, connectionTimeoutMillis: 5000 };
const pool = new pg.Pool({ ...settings, max: 10 });
// Of the handler's own: gates, effects of leased routes, hooks.
const others = new pg.Pool({ ...settings, max: 40 });
others.on('error', () => {});

const hook = (name) => ({ scope, key, attempt, outcome }) => others.query(
  'INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, $4, $5)', [name, scope, key, attempt, outcome]);

const keys = idempotency({
  database: database(pool),
  principal: bearer,
  databaseTimeout: 2000,
  onExecute: hook('execute'), onReplay: hook('replay'), onRefusal: hook('refusal'), onLeaseLost: hook('lease_lost'),
});

const runs = new Map(); // of handlers that are to fail, by key

async function gate(number) {
  const client = await others.connect();
  client.on('error', () => {});
  let failure = true; // closed, which unlocks
  try {
    await client.query('SELECT pg_advisory_lock_shared($1)', [number]);
    await client.query('SELECT pg_advisory_unlock_shared($1)', [number]);
    failure = undefined;
  } finally {
    client.release(failure);
  }
}

const insert = (db, { principal, key }, note) =>
  db.query('INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)', [principal, key ?? '', note]);

async function effect(claim, note) {
  if (claim.kind === 'transactional') await insert(claim.client, claim, note);
  else await claim.step('effect', async () => { await insert(others, claim, note); });
}

async function failToSerialize(claim, times) {
  const run = (runs.get(claim.key) ?? 0) + 1;
  runs.set(claim.key, run);
  if (run <= times) await claim.client.query("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
}

async function hang(claim) {
  await new Promise((stopped) => {
    if (claim.signal.aborted) stopped();
    else claim.signal.addEventListener('abort', stopped);
  });
  await insert(others, claim, 'lost');
}

const isOrder = (body) => typeof body === 'object' && body !== null && !Array.isArray(body) && !Buffer.isBuffer(body);

async function handler(request, response) {
  const claim = request.idempotency;
  const order = request.body;
  if (!isOrder(order)) {
    await effect(claim, 'raw');
    response.status(200).type(request.get('content-type') ?? 'application/octet-stream').send(request.rawBody);
    return;
  }
  if (order.gate !== undefined) await gate(order.gate);
  if (order.effect !== undefined) await effect(claim, order.effect);
  if (order.serialization_failures) await failToSerialize(claim, order.serialization_failures);
  if (order.hang) await hang(claim);
  if (order.throw) throw new Error('thrown by the handler');
  if (order.exit) process.exit(3);
  response.status(order.status ?? 201);
  for (const [name, value] of order.headers ?? []) response.append(name, value);
  const once = Buffer.from(order.body ?? '', 'base64');
  const body = Buffer.concat(Array.from({ length: order.repeat ?? 1 }, () => once));
  if (request.path === '/streamed') {
    for (let i = 0; i < body.length; i += 100) response.write(body.subarray(i, i + 100));
    response.end();
  } else {
    response.end(body);
  }
}

const app = express();
app.disable('x-powered-by');
app.get('/health', (request, response) => { response.send('well'); });
app.post('/transactional', keys.transactional(handler));
app.post('/leased', keys.leased({ lease: 2000 }, handler));
app.post('/generate', keys.transactional({ missingKey: 'generate' }, handler));
app.post('/derive', keys.transactional({ missingKey: 'derive', window: 2000 }, handler));
app.post('/pass', keys.transactional({ missingKey: 'pass' }, handler));
app.post('/configured', keys.transactional({
  statuses: { in_progress: 425, mismatch: 400, unavailable: 500 },
  keyHeader: 'X-Request-Key', replayHeader: 'X-Replay', echoKey: true, exclude: ['ts'], keep: () => true, ttl: 1000,
}, handler));
app.post('/small', keys.transactional({ maxRequestBytes: 1000, maxAnswerBytes: 1000 }, handler));
app.post('/omit', keys.transactional({ maxAnswerBytes: 1000, omitLargeAnswers: true }, handler));
app.post('/unprotected', keys.transactional({ unprotectedWithoutDatabase: true }, handler));
app.post('/streamed', keys.transactional(handler));
app.use((error, request, response, next) => {
  if (response.headersSent) next(error);
  else response.status(500).json({ title: 'Internal server error', status: 500 });
});

app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('ready'));
process.on('SIGTERM', () => process.exit(0));
