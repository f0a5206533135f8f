// Works off what no client sends again: claims the records that are due, runs the handler for each, and ends
// its claim.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, type Claim, type Name, claimOf } from './claim.js';
import { LEASE_MS } from './contract.js';
import { type Database, type Row, DatabaseAway, LeaseLost, sqlstate } from './database.js';
import { Held, type Leased, type LeasedSettings, NO_ANSWER, keepByDefault, runOn } from './flows.js';
import { Heartbeat } from './heartbeat.js';
import { checkWorker } from './options.js';
import { DUE, number } from './statements.js';

/** Times are milliseconds. */
export interface WorkerOptions {
  /** A scope, or the beginning of scopes and `*`. */
  readonly scope: string;
  /** Claims in work at the same time: 1 unless it is given. */
  readonly size?: number;
  /** 30,000. */
  readonly lease?: number;
  /** The pause when nothing is due: 1,000. */
  readonly poll?: number;
  /** A channel of NOTIFY: a notification ends the pause. */
  readonly channel?: string;
  /** `transactional` unless it is given. */
  readonly mode?: 'transactional' | 'leased';
  /** The name of this worker, shown to operators. */
  readonly holder?: string;
  /** The time that a handler may take: 600,000. Then it has failed. */
  readonly handlerTimeout?: number;
  readonly databaseTimeout?: number;
  /** Gets errors of the database, and those of the handler together with its work. */
  readonly onError?: (error: unknown, work?: Work) => void;
}

/** A claimed record. */
export interface Work extends Name {
  /** Each claim of a key has a larger one than those before. */
  readonly token: string;
  readonly attempt: number;
  readonly operation: string | null;
  readonly method: string | null;
  readonly path: string | null;
  /** The stored request, if the policy of the scope has `store_request`. */
  readonly request: any;
  readonly recoveryPoint: string | null;
  readonly state: unknown;
  /** Of the attempt before. */
  readonly error: string | null;
  /** Aborted when the lease is lost or may have expired, or by `abort` of the worker: the work must stop. */
  readonly signal: AbortSignal;
}

/** `client` is the transaction that commits together with the end of the claim. */
export interface TransactionalWork<Tx> extends Work { readonly client: Tx }

/** The claim, with `step` and `unknown`. */
export type LeasedWork = Omit<Work, 'state'> & Leased;

/** Nothing completes the record without a status. Throws if the work has to be repeated. */
export type Handler<W> = (work: W) => Promise<Answer | void> | Answer | void;

export interface Worker {
  /** Works until `stop`, whatever happens to the database. Throws if the first claim is refused: a missing right, say. */
  run(): Promise<void>;
  /** Claims nothing more, and waits for the running handlers. Then `run` returns. */
  stop(): Promise<void>;
  /** The same, and aborts the signals of the running handlers. */
  abort(reason?: unknown): Promise<void>;
}

export function worker<Tx>(
  db: Database<Tx>, options: WorkerOptions & { readonly mode?: 'transactional' }, handler: Handler<TransactionalWork<Tx>>,
): Worker;
export function worker<Tx>(
  db: Database<Tx>, options: WorkerOptions & { readonly mode: 'leased' }, handler: Handler<LeasedWork>,
): Worker;
export function worker<Tx>(db: Database<Tx>, options: WorkerOptions, handler: Handler<any>): Worker {
  checkWorker(options);
  if (options.channel !== undefined && !db.listen) {
    throw new TypeError('idempotency: `channel` needs a database with `listen`: pg(pool), or { ...knex(db), listen: pg(pool).listen }');
  }
  return new Loop(db, options, handler);
}

const LONGEST_PAUSE = 30_000;

class Loop<Tx> implements Worker {
  readonly #options: Required<Omit<WorkerOptions, 'channel' | 'holder' | 'databaseTimeout' | 'handlerTimeout'>> & WorkerOptions;
  readonly #settings: LeasedSettings;
  readonly #stopping = new AbortController();
  readonly #running = new Map<Held<Tx>, Promise<void>>();
  #ended: Promise<void> | undefined;
  #aborted: { reason: unknown } | undefined;
  #wake = (): void => {};
  #next = 0; // when to look again
  #eager = false; // there may be more than the last call has returned
  #failures = 0; // of calls, one after the other
  #hasClaimed = false; // a call has succeeded

  constructor(readonly db: Database<Tx>, options: WorkerOptions, readonly handler: Handler<any>) {
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as unknown as WorkerOptions;
    this.#options = { size: 1, lease: LEASE_MS, poll: 1000, mode: 'transactional', onError: warn, ...given };
    const { lease, handlerTimeout, databaseTimeout } = this.#options;
    this.#settings = { lease, keep: keepByDefault, ...(handlerTimeout && { handlerTimeout }), ...(databaseTimeout && { databaseTimeout }) };
  }

  run(): Promise<void> {
    this.#ended ??= this.#loop();
    return this.#ended;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake();
    await this.#ended?.catch(() => {}); // `run` throws it
  }

  abort(reason?: unknown): Promise<void> {
    this.#aborted ??= { reason };
    for (const held of this.#running.keys()) held.tell(reason);
    return this.stop();
  }

  async #loop(): Promise<void> {
    const listening = this.#listen();
    try {
      while (await this.#turn()) await this.#claim();
    } finally {
      this.#stopping.abort();
      await Promise.all([listening, ...this.#running.values()]);
    }
  }

  /** Waits until a slot is free and it is time to look. False if it is stopped. */
  async #turn(): Promise<boolean> {
    while (!this.#stopping.signal.aborted) {
      const full = this.#running.size >= this.#options.size;
      const wait = this.#eager && this.#failures === 0 ? 0 : this.#next - Heartbeat.now();
      if (!full && wait <= 0) return true;
      await this.#woken(full ? undefined : wait);
    }
    return false;
  }

  #woken(limit: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = limit === undefined ? undefined : setTimeout(resolve, Math.min(limit, 2 ** 31 - 1));
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** As many records as there are free slots, and not once more after a failure: it may have claimed some. */
  async #claim(): Promise<void> {
    const { scope, size, lease, holder, poll } = this.#options;
    const free = size - this.#running.size;
    const sent = Heartbeat.now();
    this.#eager = false; // a notification during the call counts
    try {
      const rows = await runOn(this.db, this.#settings)(DUE, [scope, number(free), number(lease), holder ?? null]);
      this.#hasClaimed = true;
      this.#failures = 0;
      this.#eager ||= rows.length === free;
      this.#next = Heartbeat.now() + poll * (0.5 + Math.random());
      for (const row of rows) this.#take(row, sent);
    } catch (error) {
      if (!this.#hasClaimed && isMistake(error)) throw error;
      this.#report(error);
      this.#next = Heartbeat.now() + this.#backoff(this.#failures);
      this.#failures += 1;
    }
  }

  #take(row: Row, sent: number): void {
    const claim: Claim = { ...claimOf(row), outcome: 'execute' };
    const name = { key: claim.key, scope: String(row.scope), principal: String(row.principal) };
    const held = new Held(this.db, claim, name, this.#settings, sent);
    if (this.#aborted) held.tell(this.#aborted.reason);
    this.#running.set(held, this.#settle(held, workOf(row, claim, name)).finally(() => {
      this.#running.delete(held);
      this.#wake();
    }));
  }

  async #settle(held: Held<Tx>, about: Omit<Work, 'signal'>): Promise<void> {
    let work = about as Work;
    const perform = async (more: object): Promise<Answer> => answered(await this.handler(work = { ...about, ...more } as Work));
    try {
      const { outcome } = await (this.#options.mode === 'leased'
        ? held.settle((claim) => perform(claim))
        : held.settleWithin((client, { signal }) => perform({ client, signal })));
      if (outcome === 'in_progress') this.#report(new LeaseLost('the lease was lost, so nothing is stored'), work);
    } catch (error) {
      this.#report(error, work);
    }
  }

  /** While it does not succeed, the worker polls. */
  async #listen(): Promise<void> {
    const { channel } = this.#options;
    const { signal } = this.#stopping;
    if (channel === undefined) return;
    for (let failures = 0; !signal.aborted; failures += 1) {
      const noticed = () => {
        failures = -1;
        this.#eager = true;
        this.#wake();
      };
      try {
        await this.db.listen!(channel, noticed, signal);
      } catch (error) {
        this.#report(error);
      }
      await sleep(this.#backoff(Math.max(failures, 0)), undefined, { signal }).catch(() => {});
    }
  }

  #backoff(failures: number): number {
    const { poll } = this.#options;
    return Math.min(poll * 2 ** failures, Math.max(poll, LONGEST_PAUSE)) * (0.5 + Math.random() / 2);
  }

  #report(error: unknown, work?: Work): void {
    try {
      this.#options.onError(error, work);
    } catch { /* a hook that fails does not end the worker */ }
  }
}

function workOf(row: Row, claim: Claim, name: Name): Omit<Work, 'signal'> {
  const text = (value: unknown): string | null => (value === null || value === undefined ? null : String(value));
  return {
    ...name, token: claim.token!, attempt: claim.attempt ?? 1,
    operation: text(row.operation), method: text(row.method), path: text(row.path), request: parsed(row.request),
    recoveryPoint: claim.recoveryPoint, state: claim.state, error: claim.error,
  };
}

/** Some drivers have parsed it, so a string may be one of the JSON. */
function parsed(value: unknown): unknown {
  if (typeof value !== 'string') return value ?? null;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/** A result of another kind is a mistake: an arrow that returns the result of its query, say. */
function answered(result: Answer | void): Answer {
  if (result === undefined || result === null) return NO_ANSWER;
  if (typeof result.status !== 'number') throw new TypeError('idempotency: a handler returns nothing, or an answer with a status');
  return result;
}

/** No call with these options can succeed: a right, a function, the database or a value is wrong. */
function isMistake(error: unknown): boolean {
  return !(error instanceof DatabaseAway) && /^(0A|22|28|3D|3F|42)/.test(sqlstate(error) ?? '');
}

function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error.stack ?? error.message : String(error), 'IdempotencyWorker');
}
