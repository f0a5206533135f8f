// node-postgres.
import type { Pool, PoolClient } from 'pg';
import { ConnectionLost, type Database, type Ending, type Row, type Statement, Unprepared, quotedName } from './database.js';
import { guarded } from './guarded.js';
import { COMPLETE } from './statements.js';
import { Prepared, Together } from './together.js';
import { tolerant } from './tolerant.js';

export { tolerant };

const BEGIN: Statement = { text: 'BEGIN', values: [] };
const COMMIT: Statement = { text: 'COMMIT', values: [] };
// Prepared with the first message, so that the last one cannot fail for lack of them.
const AHEAD: Statement[] = [{ text: COMPLETE, values: [] }, COMMIT];
const ROLLBACK_LIMIT = 10_000;
const KEEP_ALIVE = 60_000; // a connection that only listens would not notice its end

export function pg(pool: Pool): Database<PoolClient> {
  tolerant(pool);
  const prepared = new Prepared();
  return {
    async transaction(first, work, signal) {
      const lent = await Lent.from(pool, signal);
      const { proxy, end } = guarded(lent.client);
      let ending: Ending<any>;
      try {
        ending = await lent.watch(async () => {
          const rows = await together(lent.client, first ? [BEGIN, first] : [BEGIN], prepared, AHEAD);
          const done = await work(proxy, rows).finally(end);
          if (done.last) await together(lent.client, [done.last, COMMIT], prepared);
          return done;
        });
      } catch (error) {
        await lent.rollBack();
        throw error;
      }
      if (ending.last) lent.release();
      else void lent.rollBack(); // the answer does not wait for it
      return ending.result;
    },
    async statement(text, values, signal) {
      const lent = await Lent.from(pool, signal);
      try {
        return await lent.watch(async () => {
          const run = () => together(lent.client, [{ text, values }], prepared);
          return run().catch((error: unknown) => {
            if (error instanceof Unprepared) return run();
            throw error;
          });
        });
      } finally {
        lent.release();
      }
    },
    listen: (channel, onNotice, signal) => listen(pool, channel, onNotice, signal),
  };
}

/** The connection does not return to the pool: it would go on listening. */
async function listen(pool: Pool, channel: string, onNotice: () => void, signal: AbortSignal): Promise<void> {
  const connecting = pool.connect();
  let stop!: () => void;
  try {
    await new Promise<void>((resolve, reject) => {
      stop = resolve;
      signal.addEventListener('abort', stop);
      if (signal.aborted) stop();
      connecting.then((client) => {
        client.on('error', reject);
        client.on('end', () => reject(new ConnectionLost('Connection terminated')));
        client.on('notification', onNotice);
        (client as any).connection?.stream?.setKeepAlive?.(true, KEEP_ALIVE);
        return client.query(`LISTEN ${quotedName(channel)}`).then(onNotice);
      }).catch(reject);
    });
  } finally {
    signal.removeEventListener('abort', stop);
    connecting.then((client) => client.release(true), () => {});
  }
}

/** Statements in one message; the rows of the last that has any. None of them is run after one that has failed. */
async function together(client: PoolClient, statements: Statement[], prepared: Prepared, ahead: Statement[] = []): Promise<Row[]> {
  const { connection, pipeline } = client as any;
  if (connection?.stream && !pipeline) return Together.run(client as any, statements, prepared, ahead);
  const results = [];
  // pg's pipeline sends them together; libpq's binding, one after the other.
  const sent = statements.map(({ text, values }) => client.query<Row>(text, values));
  for (const one of await Promise.allSettled(sent)) {
    if (one.status === 'rejected') throw one.reason;
    results.push(one.value);
  }
  if (statements.at(-1) === COMMIT && results.at(-1)!.command !== 'COMMIT') throw new Error('idempotency: COMMIT has rolled back');
  return results.findLast(({ rows }) => rows.length > 0)?.rows ?? [];
}

/** A client that has lost its connection, or is late, is closed, which rolls back. */
class Lent {
  #broken: Error | undefined;
  #lose!: (error: Error) => void;
  readonly #lost = new Promise<never>((_, reject) => { this.#lose = reject; });
  readonly #onError = (error: Error): void => {
    this.#broken ??= error; // the first says why
    this.#lose(new ConnectionLost('Connection terminated', { cause: this.#broken }));
  };
  readonly #onLate = (): void => {
    this.#broken ??= this.signal.reason as Error;
    (this.client as any).connection?.stream?.destroy(this.#broken);
  };

  private constructor(readonly client: PoolClient, readonly signal: AbortSignal) {
    this.#lost.catch(() => {});
    client.on('error', this.#onError);
    signal.addEventListener('abort', this.#onLate);
  }

  static async from(pool: Pool, signal: AbortSignal): Promise<Lent> {
    const lent = new Lent(await pool.connect(), signal);
    if (signal.aborted) lent.release();
    signal.throwIfAborted();
    return lent;
  }

  /** Work that does not outlive the connection: a handler may wait for something else. */
  async watch<T>(work: () => Promise<T>): Promise<T> {
    const working = work();
    try {
      return await Promise.race([working, this.#lost]);
    } catch (error) {
      working.catch(() => {});
      if (this.#broken && !(error instanceof ConnectionLost)) throw new ConnectionLost('Connection terminated', { cause: this.#broken });
      throw error;
    }
  }

  async rollBack(): Promise<void> {
    const late = setTimeout(() => (this.client as any).connection?.stream?.destroy(), ROLLBACK_LIMIT);
    try {
      if (!this.#broken) await this.client.query('ROLLBACK');
    } catch (error) {
      this.#broken ??= error as Error;
    } finally {
      clearTimeout(late);
      this.release();
    }
  }

  release(): void {
    this.client.off('error', this.#onError);
    this.signal.removeEventListener('abort', this.#onLate);
    if (this.#broken) this.client.on('error', () => {}); // more of the same may come
    this.client.release(this.#broken);
  }
}
