// pg reports a broken connection by an event of the client, and an event without a listener ends the process.
// Some libraries on top of pg do not listen while they use a client.
interface Emitter { on(event: 'error', listener: (error: Error) => void): unknown; listenerCount(event: string): number }
interface PgPool extends Emitter { on(event: 'error' | 'connect', listener: (value: any) => void): unknown; totalCount: number }

const KNOWN = new WeakSet<object>();

/** Keeps lost connections of a pool of pg from ending the process: the query that meets one fails. */
export function tolerant<Pool extends PgPool>(pool: Pool): Pool {
  if (KNOWN.has(pool)) return pool;
  KNOWN.add(pool);
  if (pool.listenerCount('error') === 0) pool.on('error', () => {});
  pool.on('connect', (client: Emitter) => { client.on('error', () => {}); });
  return pool;
}

export const isPgPool = (value: unknown): value is PgPool =>
  typeof value === 'object' && value !== null && 'totalCount' in value && 'listenerCount' in value;
