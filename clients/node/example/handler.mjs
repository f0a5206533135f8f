// The handler of clients/conformance/README.md, for every framework.
import { NothingHappened } from 'idempotency-postgres';
import pg from 'pg';

const settings = { application_name: process.env.PGAPPNAME, connectionTimeoutMillis: 5000 };
export const pool = new pg.Pool({ ...settings, max: 10 });
// The handler's own connections: gates, effects of leased routes, hooks.
export const others = new pg.Pool({ ...settings, max: 40 });
others.on('error', () => {});

const hook = (name) => ({ scope, key, attempt, outcome }) => others.query(
  'INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, $4, $5)', [name, scope, key, attempt, outcome]);

// BENCH: for bench/clients, without the suite's hooks and with the route /bare.
export const bench = Boolean(process.env.BENCH);
export const common = bench ? {} : {
  databaseTimeout: 2000,
  onExecute: hook('execute'), onReplay: hook('replay'), onRefusal: hook('refusal'), onLeaseLost: hook('lease_lost'),
};

/** The routes and their options; `leased` ones have a claim instead of a transaction. */
export const routes = {
  '/transactional': {},
  '/leased': { lease: 2000 },
  '/uncertain': { lease: 2000 },
  '/generate': { missingKey: 'generate' },
  '/derive': { missingKey: 'derive', window: 2000 },
  '/pass': { missingKey: 'pass' },
  '/configured': {
    statuses: { in_progress: 425, mismatch: 400, unavailable: 500 },
    keyHeader: 'X-Request-Key', replayHeader: 'X-Replay', echoKey: true, exclude: ['ts'], keep: () => true, ttl: 1000,
  },
  '/small': { maxRequestBytes: 1000, maxAnswerBytes: 1000 },
  '/omit': { maxAnswerBytes: 1000, omitLargeAnswers: true },
  '/unprotected': { unprotectedWithoutDatabase: true },
  '/streamed': {},
  '/judged': { verdict },
  '/judged_leased': { verdict, lease: 2000 },
  '/impatient': { handlerTimeout: 1000 },
  '/patient': { wait: 4000 },
};
export const kindOf = (path) => (['/leased', '/uncertain', '/judged_leased'].includes(path) ? 'leased' : 'transactional');

function verdict({ headers }) {
  return [...headers].find(([name]) => name.toLowerCase() === 'x-verdict')?.[1];
}

const HIDDEN = {
  promise: (client) => client.query('SELECT 1/0').catch(() => {}),
  callback: (client) => new Promise((done) => { client.query('SELECT 1/0', () => done()); }),
  values: (client) => client.query('SELECT 1/$1::int', [0]).catch(() => {}),
  named: (client) => client.query({ name: 'zero', text: 'SELECT 1/$1::int', values: [0] }).catch(() => {}),
  query_object: (client) => new Promise((done) => { client.query(new pg.Query('SELECT 1/0', () => done())); }),
};
const COMMITS = {
  sql: (client) => client.query('COMMIT'),
  several: (client) => client.query('COMMIT; SELECT 1'),
  end: (client) => client.query('END'),
  prepared: (client) => client.query({ name: 'commit', text: 'COMMIT' }),
};
export const ways = {
  hide_error: Object.keys(HIDDEN), commit: Object.keys(COMMITS), waits: { execute: 3, replay: 1, leased: 3 },
};

export async function gate(number) {
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

export const insert = (db, { principal, key }, note) =>
  db.query('INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)', [principal, key ?? '', note]);

async function effect(claim, note) {
  if (claim.kind === 'transactional') await insert(claim.client, claim, note);
  else await claim.step('effect', async () => { await insert(others, claim, note); });
}

/** The work of /transactional without the client. */
export async function bare(order) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await insert(client, { principal: 'bench' }, order.effect);
    await client.query('COMMIT');
  } finally {
    client.release();
  }
}

const runs = new Map(); // of handlers that are to fail, by key

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

async function late(claim, note) {
  await new Promise((done) => { setTimeout(done, 300); });
  try {
    await insert(claim.client, claim, note);
  } catch { /* as it has to be */ }
  await insert(others, claim, 'tried');
}

/** As http-errors makes them, for Express, Fastify and Koa. */
const raised = (status) => Object.assign(new Error(`raised ${status}`), { status, statusCode: status, expose: true });

const isOrder = (body) => typeof body === 'object' && body !== null && !Array.isArray(body) && !Buffer.isBuffer(body);

/** Status, pairs, and a body of bytes. */
export async function perform(claim, order, rawBody, contentType) {
  if (!isOrder(order)) {
    await effect(claim, 'raw');
    return { status: 200, headers: [['Content-Type', contentType ?? 'application/octet-stream']], body: rawBody };
  }
  if (order.gate !== undefined) await gate(order.gate);
  if (order.effect !== undefined) await effect(claim, order.effect);
  if (order.unknown) await claim.unknown(...order.unknown);
  if (order.commit) await (COMMITS[order.commit] ?? COMMITS.sql)(claim.client); // pg knows no call of its own
  if (order.hide_error) await (HIDDEN[order.hide_error] ?? HIDDEN.promise)(claim.client);
  if (order.serialization_failures) await failToSerialize(claim, order.serialization_failures);
  if (order.hang) await hang(claim);
  if (order.never) await new Promise(() => {});
  if (order.idle) {
    await claim.client.query(`SET LOCAL idle_in_transaction_session_timeout = ${Number(order.idle)}`);
    await new Promise((done) => { setTimeout(done, order.idle + 1000); });
  }
  if (order.late) void late(claim, order.late);
  if (order.stranger === 'code') throw Object.assign(new Error('refused'), { code: '40004' });
  if (order.stranger === 'words') throw new Error('Connection closed');
  if (order.raise) throw raised(order.raise);
  if (order.nothing_happened) throw new NothingHappened('nothing happened');
  if (order.throw) throw new Error('thrown by the handler');
  if (order.exit) process.exit(3);
  const once = Buffer.from(order.body ?? '', 'base64');
  const body = Buffer.concat(Array.from({ length: order.repeat ?? 1 }, () => once));
  return { status: order.status ?? 201, headers: order.headers ?? [], body };
}

/** In pieces, for answers in chunks. */
export function* pieces(body) {
  for (let i = 0; i < body.length; i += 100) yield body.subarray(i, i + 100);
}
