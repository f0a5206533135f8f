// How a Node service uses the extension: three ways to do a thing once, with pg.
//
// A token is a bigint, which pg gives as a string. It is passed back as it is.
import { setTimeout as sleep } from 'node:timers/promises';

const ATTEMPTS = 5;
const HEARTBEAT = 1 / 3; // of the lease, so that one beat may get lost

const BEGIN = `
  SELECT c.*, idem_problem(c) AS problem
    FROM idem_begin($1, request => $2::jsonb, scope => $3, principal => $4,
                    lease => $5 * interval '1 ms') AS c`;
const COMPLETE = `SELECT idem_complete($1, $2, $3::bytea, $4::jsonb, scope => $5, principal => $6,
                                       token => $7)`;
const FAIL = `SELECT idem_fail($1, $2, retryable => true, scope => $3, principal => $4,
                               token => $5)`;
const EXTEND = 'SELECT idem_extend($1, $2, scope => $3, principal => $4)';
const CHECKPOINT = `SELECT idem_checkpoint($1, $2, $3::jsonb, scope => $4, principal => $5,
                                           token => $6)`;

// Everything happens in this database: claim, work and answer commit together or not at all.
// `work(client)` returns the response to store, { status, headers, body }, also a refusal that
// would come out the same again. What it throws rolls everything back, and the key is free.
export function transactionally(pool, request, work) {
  return again(() => inTransaction(pool, async (client) => {
    const claim = await begin(client, request);
    if (claim.outcome !== 'execute') return answerOf(claim);
    const response = await work(client);
    await complete(client, claim, response);
    return response;
  }));
}

// The work is elsewhere and may take long: the claim is committed first, then kept by its token.
// `work(claim, checkpoint)` starts where claim.recovery_point says. It may be run again after a
// crash, so what it calls has to know keys itself: derive one from ours.
export async function leased(pool, request, lease, work) {
  const claim = await withClient(pool, (client) => begin(client, request, lease)); // commits
  if (claim.outcome !== 'execute') return answerOf(claim);
  const heart = beat(pool, claim, lease);
  let response;
  try {
    response = await work(claim, (point, state) => checkpoint(pool, claim, point, state));
  } catch (error) {
    await again(() => fail(pool, claim, error.message));
    throw error;
  } finally {
    clearInterval(heart);
  }
  // The token makes a second call harmless, should the answer to the first get lost.
  await again(() => withClient(pool, (client) => complete(client, claim, response)));
  return response;
}

// A message: applied at most once, in one transaction with the note that it was. True if now.
// Acknowledge it to the broker after this has returned, whatever it returned.
export function consume(pool, eventId, scope, apply) {
  return again(() => inTransaction(pool, async (client) => {
    const { rows } = await client.query('SELECT idem_once($1, scope => $2) AS first', [eventId, scope]);
    if (rows[0].first) await apply(client);
    return rows[0].first;
  }));
}

// Repeats what a lost connection, a deadlock or a serialization failure has ended. Also when the
// answer to COMMIT got lost, and nobody knows: the same key is told `replay` if it was done, and
// `execute` if not.
async function again(call) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (attempt === ATTEMPTS || !isTransient(error)) throw error;
      await sleep(10 * 2 ** attempt);
    }
  }
}

// The connection itself, or an SQLSTATE of a class that another attempt may cure.
function isTransient(error) {
  const fromServer = error.severity !== undefined;
  return error.lostConnection || (fromServer && /^(08|40|53|55|57|58)/.test(error.code));
}

function inTransaction(pool, work) {
  return withClient(pool, async (client) => {
    await client.query('BEGIN');
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  });
}

// A client with which something went wrong is not given back to the pool but closed: nobody knows
// what state it is in, and closing it rolls back. pg tells of a lost connection by an event.
async function withClient(pool, work) {
  const client = await connect(pool);
  let lost = false;
  const onLoss = () => { lost = true; };
  client.on('error', onLoss);
  let failure;
  try {
    return await work(client);
  } catch (error) {
    failure = error;
    throw lost ? lostConnection(error) : error;
  } finally {
    client.off('error', onLoss);
    client.release(failure);
  }
}

async function connect(pool) {
  try {
    return await pool.connect();
  } catch (error) {
    throw lostConnection(error);
  }
}

function lostConnection(cause) {
  return Object.assign(new Error('lost the database', { cause }), { lostConnection: true });
}

function beat(pool, claim, lease) {
  // What fails here is tried again at the next beat; that the claim is lost, idem_complete will say.
  const extend = () => statement(pool, EXTEND, [claim.key, claim.token, claim.scope, claim.principal]);
  return setInterval(() => extend().catch(() => {}), lease * HEARTBEAT);
}

// ---- the statements ----

// One that is its own transaction.
function statement(pool, text, values) {
  return withClient(pool, (client) => client.query(text, values));
}

async function begin(client, { key, body, scope, principal }, lease = null) {
  const request = JSON.stringify(body);
  const { rows } = await client.query(BEGIN, [key, request, scope, principal, lease]);
  return rows[0];
}

function complete(client, claim, { status, headers = {}, body }) {
  return client.query(COMPLETE, [claim.key, status, Buffer.from(body), JSON.stringify(headers),
    claim.scope, claim.principal, claim.token]);
}

function fail(pool, claim, message) {
  return statement(pool, FAIL, [claim.key, message, claim.scope, claim.principal, claim.token]);
}

function checkpoint(pool, claim, point, state) {
  return statement(pool, CHECKPOINT, [claim.key, point, JSON.stringify(state), claim.scope,
    claim.principal, claim.token]);
}

// The stored answer, byte for byte, or the problem document of a refusal.
function answerOf(claim) {
  const replayed = claim.outcome === 'replay' ? { 'Idempotent-Replayed': 'true' } : {};
  if (claim.problem === null) {
    const headers = { ...claim.headers, ...replayed };
    return { status: claim.status_code, headers, body: claim.body ?? Buffer.alloc(0) };
  }
  const headers = { ...replayed, 'Content-Type': 'application/problem+json' };
  if (['in_progress', 'retry_later'].includes(claim.outcome)) {
    headers['Retry-After'] = String(Math.max(1, Math.round(claim.retry_after ?? 1)));
  }
  return { status: claim.problem.status, headers, body: JSON.stringify(claim.problem) };
}
