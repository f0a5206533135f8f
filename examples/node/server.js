// A small payments service. `createApp` gives the express application, for any pool; started as a
// program it listens on $PORT and finds the database by libpq's variables.
import { pathToFileURL } from 'node:url';
import { randomUUID } from 'node:crypto';

import express from 'express';
import pg from 'pg';

import { consume, leased, transactionally } from './idempotency.js';

// `gateway({ key, amount })` charges outside of this database and knows keys itself.
export function createApp(pool, gateway, lease = 5000 /* ms */) {
  const app = express();
  app.use(express.json());
  app.post('/payments', route(async (req, res) => {
    const request = await requestOf(pool, req, 'POST /payments');
    send(res, request && await transactionally(pool, request, (client) => pay(client, request)));
  }));
  app.post('/transfers', route(async (req, res) => {
    const request = await requestOf(pool, req, 'POST /transfers');
    send(res, request && await leased(pool, request, lease,
      (claim, checkpoint) => transfer(gateway, request, claim, checkpoint)));
  }));
  app.post('/events', route(async (req, res) => {
    const { id, type } = req.body;
    await consume(pool, id, 'POST /events',
      (client) => client.query('INSERT INTO event (id, type) VALUES ($1, $2)', [id, type]));
    res.status(204).end(); // applied now or before: the sender need not come again
  }));
  return app;
}

// An error must not become the answer of the key: it was rolled back, and the client may try again.
function route(handler) {
  return (req, res) => handler(req, res).catch((error) => {
    console.error(error.message);
    problem(res, error.lostConnection ? 503 : 500, 'The request was not executed; try again.');
  });
}

// The principal is who is logged in, never what the request says of itself.
async function requestOf(pool, req, scope) {
  const principal = /^Bearer sk_(\w+)$/.exec(req.get('Authorization') ?? '')?.[1];
  const { rows } = await pool.query('SELECT idem_parse_key($1) AS key', [req.get('Idempotency-Key')]);
  if (!principal || rows[0].key === null) return null;
  return { key: rows[0].key, body: req.body, scope, principal };
}

async function pay(client, { key, body, principal }) {
  if (!(body.amount > 0)) return { status: 402, headers: {}, body: 'No amount.' };
  const id = randomUUID();
  await client.query('INSERT INTO charge (id, tenant, key, amount) VALUES ($1, $2, $3, $4)',
    [id, principal, key, body.amount]);
  return {
    status: 201,
    headers: { 'Content-Type': 'application/json', Location: `/payments/${id}` },
    body: JSON.stringify({ id, amount: body.amount }),
  };
}

async function transfer(gateway, { key, body, principal }, claim, checkpoint) {
  let charge = claim.state?.charge;
  if (claim.recovery_point !== 'charged') {
    charge = await gateway({ key: `transfer:${principal}:${key}`, amount: body.amount });
    await checkpoint('charged', { charge });
  }
  return {
    status: 201,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ charge }),
  };
}

function send(res, response) {
  if (!response) return problem(res, 400, 'Idempotency-Key and Authorization are needed.');
  // Buffer and setHeader: the bytes and the headers that are stored, and nothing of express's own.
  res.status(response.status);
  for (const [name, value] of Object.entries(response.headers)) res.setHeader(name, value);
  return res.end(Buffer.from(response.body));
}

function problem(res, status, detail) {
  res.status(status).type('application/problem+json').end(JSON.stringify({ status, detail }));
}

function main() {
  const pool = new pg.Pool({ max: 10 });
  pool.on('error', (error) => console.error(error.message)); // of an idle connection; it is replaced
  const accounts = new Map(); // stands for another company's service
  const gateway = async ({ key }) => {
    if (!accounts.has(key)) accounts.set(key, randomUUID());
    return accounts.get(key);
  };
  const port = Number(process.env.PORT ?? 3000);
  createApp(pool, gateway).listen(port, '127.0.0.1', () => console.log(`listening on ${port}`));
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) main();
