// The worker of clients/conformance/README.md: each request says what its handler is to do.
import { once } from 'node:events';
import { NothingHappened, worker } from 'idempotency-postgres';
import { pg } from 'idempotency-postgres/pg';
import { gate, insert, others, pool } from './handler.mjs';

const { WORKER_SCOPE, WORKER_SIZE, WORKER_LEASE_MS, WORKER_POLL_MS, WORKER_CHANNEL, WORKER_MODE, WORKER_HANDLER_TIMEOUT_MS } = process.env;

async function perform(work) {
  const { request: order, attempt, client = others } = work;
  if (order.effect !== undefined) await insert(client, work, order.effect);
  if (order.gate !== undefined) await gate(order.gate);
  if (order.lost) {
    if (!work.signal.aborted) await once(work.signal, 'abort');
    await insert(others, work, 'lost');
  }
  if (attempt < order.throw_until) throw new Error('thrown by the handler');
  if (attempt < order.nothing_until) throw new NothingHappened('nothing happened');
  return order.status === undefined ? undefined : { status: order.status, body: order.body };
}

const working = worker(pg(pool), {
  scope: WORKER_SCOPE, size: Number(WORKER_SIZE), lease: Number(WORKER_LEASE_MS), poll: Number(WORKER_POLL_MS),
  channel: WORKER_CHANNEL || undefined, mode: WORKER_MODE, handlerTimeout: Number(WORKER_HANDLER_TIMEOUT_MS), databaseTimeout: 2000, onError: (error) => console.error(error),
}, perform);
process.on('SIGTERM', () => working.stop());
const ended = working.run();
console.log('ready');
await ended;
process.exit(0);
