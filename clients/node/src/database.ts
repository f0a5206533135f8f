// The interface of a driver's adapter, and the recognition of database failures.
import { guarded } from './guarded.js';
import type { Value } from './statements.js';

export type Row = Record<string, unknown>;

/** A statement and its values, $1 first. */
export interface Statement { readonly text: string; readonly values: Value[] }

/** How a transaction ends: with COMMIT after a last statement, or, without one, with ROLLBACK. */
export interface Ending<T> { readonly result: T; readonly last: Statement | null }

/** An adapter. `Tx` is the driver's transaction; handlers get it. */
export interface Database<Tx> {
  /**
   * BEGIN and the first statement, in one message where the driver can; then `work` with its rows; then the last
   * statement and COMMIT, likewise. Rolls back if anything has thrown, or if the last statement fails. The result
   * of a transaction without a last statement need not wait for its ROLLBACK. If `signal` is aborted, the
   * connection does not return to its pool, where the driver allows that.
   */
  transaction<T>(first: Statement | null, work: (tx: Tx, rows: Row[]) => Promise<Ending<T>>, signal: AbortSignal): Promise<T>;
  /** One statement that is its own transaction. */
  statement(text: string, values: Value[], signal: AbortSignal): Promise<Row[]>;
  /**
   * Listens on a connection of its own until `signal` is aborted. Calls `onNotice` as soon as it listens, and for
   * each notification. Throws when the connection is lost.
   */
  listen?(channel: string, onNotice: () => void, signal: AbortSignal): Promise<void>;
}

export const quotedName = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** For libraries that own BEGIN and COMMIT. `pipelined`: the last statement is sent without waiting, COMMIT after it. */
export function throughCallbacks<Tx extends object>(
  transaction: (work: (tx: Tx) => Promise<unknown>) => Promise<unknown>,
  query: (tx: Tx, text: string, values: Value[]) => Promise<Row[]>, pipelined = false,
): Database<Tx>['transaction'] {
  return <T>(first: Statement | null, work: (tx: Tx, rows: Row[]) => Promise<Ending<T>>): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      let over = (): void => {};
      let last: Promise<unknown> | undefined;
      transaction(async (tx) => {
        const { proxy, end } = guarded(tx);
        over = end;
        const rows = first ? await query(tx, first.text, first.values) : [];
        const ending = await work(proxy, rows).finally(end);
        if (ending.last === null) {
          resolve(ending.result);
          throw new Error('idempotency: rolled back');
        }
        last = query(tx, ending.last.text, ending.last.values);
        last.catch(() => {}); // looked at below
        if (!pipelined) await last;
        return ending.result;
      }).then(async (result) => {
        await last; // if it has failed, COMMIT has rolled back
        resolve(result as T);
      }).catch(reject).finally(() => over());
    });
}

/** The database could not be reached, or did not answer in time. */
export class DatabaseAway extends Error {
  override name = 'DatabaseAway';
}

/** The adapter has seen its connection end. */
export class ConnectionLost extends Error {
  override name = 'ConnectionLost';
}

/** A prepared statement was lost, and everything rolled back. From now on nothing is prepared. */
export class Unprepared extends Error {
  override name = 'Unprepared';
}

/** Another request has the claim now, or may have it: later work is not recorded. */
export class LeaseLost extends Error {
  override name = 'LeaseLost';
}

/** All errors that drivers wrap into each other. */
function* chain(error: unknown): Generator<Record<string, any>> {
  const seen = new Set<unknown>();
  const todo = [error];
  for (let e = todo.shift(); e !== undefined; e = todo.shift()) {
    if (typeof e !== 'object' || e === null || seen.has(e)) continue;
    seen.add(e);
    const one = e as Record<string, any>;
    yield one;
    // TypeORM; Prisma with an adapter; AggregateError of a connection tried at several addresses
    todo.push(one.cause, one.driverError, one.meta, one.driverAdapterError, ...(Array.isArray(one.errors) ? one.errors : []));
    todo.push(...todo.splice(0).filter((next) => next !== undefined));
  }
}

// P1001 and the like are Prisma's own.
const isState = (word: unknown): word is string =>
  typeof word === 'string' && /^(?=.*\d)[0-9A-Z]{5}$/.test(word) && !/^P[1-9]/.test(word);

/** Other services have codes of five characters, too; PostgreSQL's errors have a severity, and Prisma's a name. */
const isDatabases = (one: Record<string, any>): boolean =>
  typeof one.severity === 'string' || typeof one.originalCode === 'string' || /^Prisma/.test(String(one.name));

/** The SQLSTATE of a driver's error, wherever the driver keeps it. */
export function sqlstate(error: unknown): string | undefined {
  let databases = false; // Prisma's has it in a member without a severity
  for (const one of chain(error)) {
    databases ||= isDatabases(one);
    if (databases) for (const word of [one.originalCode, one.code]) if (isState(word)) return word;
  }
  return undefined;
}

const LOST_CODES = new Set([
  'CONNECTION_CLOSED', 'CONNECTION_ENDED', 'CONNECTION_DESTROYED', 'CONNECT_TIMEOUT', // postgres.js
  'P1001', 'P1002', 'P1008', 'P1017', 'P2024', 'P2028', // Prisma
]);
const NETWORK = new Set([
  'ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOENT',
]);
// pg's errors have nothing but words.
const LOST_WORDS =
  /^(Connection terminated|Client has encountered a connection error|Client was closed and is not queryable|timeout exceeded when trying to connect|Cannot use a pool after|server closed the connection)/;
// What a handler's own calls over the network fail with as well.
const LOST_WORDS_OF_OURS = /(Connection terminated|Connection ended|Connection closed|Client was closed)/i;

/** The connection is lost, or none could be made. */
export function isConnectionLost(error: unknown, fromHandler = false): boolean {
  const state = sqlstate(error);
  // 25006: a standby, which takes no claim.
  if (state !== undefined) return /^(08|53|57P)/.test(state) || (state === '25006' && !fromHandler);
  for (const one of chain(error)) {
    if (one instanceof DatabaseAway || one instanceof ConnectionLost) return true;
    if (typeof one.code === 'string' && LOST_CODES.has(one.code)) return true;
    if (!fromHandler && typeof one.code === 'string' && NETWORK.has(one.code)) return true;
    if (typeof one.message !== 'string') continue;
    if (LOST_WORDS.test(one.message) || (!fromHandler && LOST_WORDS_OF_OURS.test(one.message))) return true;
  }
  return false;
}

/** Another run of the transaction may succeed. */
export function isTransient(error: unknown, fromHandler = false): boolean {
  return isConflict(error) || isConnectionLost(error, fromHandler);
}

/** A serialization failure, or a deadlock. */
export function isConflict(error: unknown): boolean {
  const state = sqlstate(error);
  if (state !== undefined && state.startsWith('40')) return true;
  for (const { code, name } of chain(error)) if (code === 'P2034' && /^Prisma/.test(String(name))) return true;
  return false;
}

/**
 * Counts the database's time, not the handler's. A late call is given up: the caller stops waiting, and ignores
 * a later result.
 */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #late: Promise<never>;
  #timer: NodeJS.Timeout | undefined;
  #reject!: (error: Error) => void;

  constructor(readonly limit: number) {
    this.#late = new Promise((_, reject) => { this.#reject = reject; });
    this.#late.catch(() => {});
  }

  get signal(): AbortSignal { return this.#controller.signal; }

  start(extra = 0): void {
    this.stop();
    this.#timer = setTimeout(() => this.#end(), Math.min(this.limit + extra, 2 ** 31 - 1));
  }

  stop(): void { clearTimeout(this.#timer); }

  /** Throws if the time has run out. */
  check(): void { this.signal.throwIfAborted(); }

  async guard<T>(promise: Promise<T>): Promise<T> {
    try {
      return await Promise.race([promise, this.#late]);
    } finally {
      promise.catch(() => {});
      this.stop();
    }
  }

  #end(): void {
    const error = new DatabaseAway(`the database did not answer within ${this.limit} ms`);
    this.#controller.abort(error);
    this.#reject(error);
  }
}

/** Within `limit`, a statement that is its own transaction. */
export function statement<Tx>(db: Database<Tx>, limit: number, text: string, values: Value[]): Promise<Row[]> {
  const deadline = new Deadline(limit);
  deadline.start();
  return deadline.guard(db.statement(text, values, deadline.signal).then((rows) => rows.map(plainNames)));
}

const CAPITAL = /[A-Z]/g;
const plain = new Map<string, string>(); // the few columns of our statements

/** Some drivers can turn names into camel case. */
export function plainNames(row: Row): Row {
  const own: Row = {};
  for (const name of Object.keys(row)) {
    let known = plain.get(name);
    if (known === undefined) plain.set(name, known = name.replace(CAPITAL, (c) => `_${c.toLowerCase()}`));
    own[known] = row[name];
  }
  return own;
}

export const pause = (milliseconds: number): Promise<void> => new Promise((done) => { setTimeout(done, milliseconds); });
