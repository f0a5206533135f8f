// node-postgres.
import type { Pool, PoolClient } from 'pg';
import type { Database, Row } from './database.js';
import { tolerant } from './tolerant.js';

export { tolerant };

export function pg(pool: Pool): Database<PoolClient> {
  tolerant(pool);
  return {
    transaction: (work, signal) => withClient(pool, signal, async (client) => {
      await client.query('BEGIN');
      try {
        const result = await work(client);
        await client.query('COMMIT');
        return result;
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      }
    }),
    query: async (client, text, values) => (await client.query<Row>(text, values)).rows,
    statement: (text, values, signal) =>
      withClient(pool, signal, async (client) => (await client.query<Row>(text, values)).rows),
  };
}

// A client that has lost its connection, or is late, is closed, which rolls back.
async function withClient<T>(pool: Pool, signal: AbortSignal, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  const onError = (error: Error) => { broken = error; };
  const onLate = () => {
    broken = signal.reason as Error;
    (client as any).connection?.stream?.destroy(broken);
  };
  client.on('error', onError);
  signal.addEventListener('abort', onLate);
  try {
    signal.throwIfAborted();
    return await work(client);
  } catch (error) {
    if (broken && broken !== error) throw Object.assign(new Error('Connection terminated', { cause: error }));
    throw error;
  } finally {
    client.off('error', onError);
    signal.removeEventListener('abort', onLate);
    if (broken) client.on('error', () => {}); // more of the same may come
    client.release(broken);
  }
}
