// The three ways to execute a request once, without HTTP. Callers never complete a claim themselves: work
// returns its answer, or throws, and the function ends the claim, once.
import { type Answer, type Claim, type Name, type Refusal, claimOf, replayOf, storedHeaders } from './claim.js';
import {
  type Database, type Ending, type Row, type Statement, DatabaseAway, Deadline, LeaseLost, Unprepared, isConflict, isConnectionLost, isTransient, pause, plainNames, sqlstate, statement,
} from './database.js';
import {
  ATTEMPTS, DATABASE_TIMEOUT_MS as DATABASE_TIMEOUT, HANDLER_TIMEOUT_MS, LEASED_HANDLER_TIMEOUT_MS, LEASE_MS as LEASE, NOT_KEPT,
} from './contract.js';
import { Heartbeat } from './heartbeat.js';
import {
  BEGIN, CHECK, CHECKPOINT, COMPLETE, EXTEND, FAIL, ONCE, UNKNOWN, type Value, bytea, number, textArray,
} from './statements.js';

/** The request of a claim. Times are milliseconds. */
export interface Request extends Omit<Name, 'key'> {
  /** Null: the server derives the key, see `derive`. */
  readonly key: string | null;
  /** The server derives a key from the request, and forgets it after this time. */
  readonly derive?: number | null;
  /** The request's JSON, as it was sent. */
  readonly json?: string | null;
  /** The digest of a body that is not JSON. */
  readonly fingerprint?: Uint8Array | null;
  readonly method?: string | null;
  readonly target?: string | null;
  readonly exclude?: readonly string[];
  readonly ttl?: number | null;
  readonly wait?: number | null;
  /** The name of this worker, shown to operators. */
  readonly holder?: string | null;
}

/** The result of a request. */
export type Result =
  | { outcome: 'executed' | 'replay'; answer: Answer; claim: Claim }
  | { outcome: 'not_kept'; answer: Answer; claim: Claim }
  | { outcome: 'failed'; claim: Claim }
  | { outcome: Refusal; claim: Claim | null };

export interface Settings {
  readonly attempts?: number;
  readonly databaseTimeout?: number;
  /** Whether an answer is stored, by its status. */
  readonly keep?: (status: number) => boolean;
  /** Decides instead of `keep`; undefined leaves the decision to it. */
  readonly verdict?: (answer: Answer) => Verdict | undefined;
  /** The time that the work may take; then it is given up. */
  readonly handlerTimeout?: number;
  /** Header fields that the middleware sets. */
  readonly dropHeaders?: readonly string[];
  readonly onClaim?: (claim: Claim) => void;
}

/** `keep`: stored and replayed. `free`: the key is free for the next. `unknown`: an operator decides. */
export type Verdict = 'keep' | 'free' | 'unknown';

export const HANDLER_TIMEOUT = { transactional: HANDLER_TIMEOUT_MS, leased: LEASED_HANDLER_TIMEOUT_MS } as const;

/** Of work that answers nothing: its record is completed without a status. */
export const NO_ANSWER: Answer = { status: 0 };

/** All statuses except those that another attempt may cure, and server faults. */
export const keepByDefault = (status: number): boolean => status < 500 && !NOT_KEPT.includes(status);

// ---- transactional ----

/** Carries an answer out of a transaction that is rolled back. */
class NotKept { constructor(readonly result: Result) {} }

/** Likewise, one that is to be kept although its work is not. */
class Undone { constructor(readonly answer: Answer) {} }

/** Tells exceptions of the handler from those of our own statements. */
class Thrown { constructor(readonly error: unknown) {} }

/** Thrown by work: it is rolled back, and the answer is that of the request, stored and replayed as any other. */
export class Rejection extends Error {
  override name = 'Rejection';
  constructor(readonly answer: Answer) { super(`status ${answer.status}`); }
}

/** The work has not ended within `handlerTimeout`. */
export class HandlerLate extends Error {
  override name = 'HandlerLate';
}

/** COMMIT has no answer, and there is no record that tells its result: a repetition might do the work twice. */
class InDoubt extends DatabaseAway {}

/** We have lost its connection; the server may notice later than we do. */
class OwnTransaction extends Error {}

/**
 * Claim, work and answer in one transaction. If `work` throws, or its answer is not to be kept, everything
 * rolls back, and the key is free. The answer of a Rejection is stored all the same, by another transaction.
 */
export async function transactionally<Tx>(
  db: Database<Tx>, request: Request, work: (tx: Tx, claim: Claim) => Promise<Answer>, settings: Settings = {},
): Promise<Result> {
  try {
    return await claimed(db, request, settings, async (tx, claim) => {
      settings.onClaim?.(claim);
      const answer = await performed(() => work(tx, claim), settings.handlerTimeout ?? HANDLER_TIMEOUT.transactional);
      if (answer instanceof Rejection) throw new Undone(answer.answer);
      return answer;
    });
  } catch (error) {
    if (error instanceof Undone) return keepAnswer(db, request, error.answer, settings);
    throw error;
  }
}

/** Stores an answer whose work is rolled back. If another request has claimed the key by then, its answer counts. */
export function keepAnswer<Tx>(db: Database<Tx>, request: Request, answer: Answer, settings: Settings = {}): Promise<Result> {
  return claimed(db, request, settings, async () => answer);
}

function claimed<Tx>(
  db: Database<Tx>, request: Request, settings: Settings, answerOf: (tx: Tx, claim: Claim) => Promise<Answer>,
): Promise<Result> {
  const begin = beginning(request, null);
  // A duplicate waits within this statement.
  const patience = request.wait ?? 0;
  return again(settings, (lost, last) => inTransaction<Tx, Result>(db, settings, begin, patience, async (tx, rows, deadline) => {
    const claim = claimOf(plainNames(rows[0]!));
    deadline.check(); // the caller has stopped waiting: the work must not be done
    if (claim.outcome === 'in_progress' && lost && !last) throw new OwnTransaction('the transaction before has not ended');
    if (claim.outcome !== 'execute') return { result: refusalOrReplay(claim), last: null };
    deadline.stop();
    const answer = await answerOf(tx, claim);
    deadline.start();
    const name = nameOf(request, claim);
    switch (verdictOn(answer, settings)) {
      case 'keep': return { result: { outcome: 'executed', answer, claim }, last: completion(name, answer, claim.token, settings) };
      case 'unknown': return { result: { outcome: 'not_kept', answer, claim }, last: ofUnknown(name, claim.token, `status ${answer.status}`) };
      default: throw new NotKept({ outcome: 'not_kept', answer, claim });
    }
  }));
}

/** The work's answer or rejection. It is given up when its time is over: the connection is for others, too. */
async function performed(work: () => Promise<Answer>, limit: number): Promise<Answer | Rejection> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new HandlerLate(`the handler did not answer within ${limit} ms`)), Math.min(limit, 2 ** 31 - 1));
  });
  try {
    return await Promise.race([work(), late]);
  } catch (error) {
    if (error instanceof Rejection) return error;
    throw new Thrown(error);
  } finally {
    clearTimeout(timer);
  }
}

/** What the status says, where the route has no opinion. */
function verdictOn(answer: Answer, settings: Settings): Verdict | 'by_status' {
  const word = settings.verdict?.(answer) ?? ((settings.keep ?? keepByDefault)(answer.status) ? 'keep' : 'by_status');
  // An unknown one would be a success to the caller, although its work is rolled back.
  if (['keep', 'free', 'unknown', 'by_status'].includes(word)) return word;
  throw new TypeError("idempotency: `verdict` has to return 'keep', 'free', 'unknown' or undefined");
}

/** A message: applied once, in one transaction with the note that it was. True if now. */
export async function once<Tx>(
  db: Database<Tx>, name: Name, work: (tx: Tx) => Promise<unknown>, settings: Settings = {},
): Promise<boolean> {
  const noted: Statement = { text: ONCE, values: [name.key, name.scope, name.principal] };
  return again(settings, () => inTransaction(db, settings, noted, 0, async (tx, [row], deadline) => {
    deadline.check();
    if (row!.first !== true) return { result: false, last: null };
    deadline.stop();
    try {
      await work(tx);
    } catch (error) {
      throw new Thrown(error);
    }
    deadline.start();
    return { result: true, last: CHECKED };
  }));
}

const CHECKED: Statement = { text: CHECK, values: [] };

/**
 * Work in a transaction without a claim, with the same deadlines and retries, except after a COMMIT without an
 * answer.
 */
export async function unclaimed<Tx>(
  db: Database<Tx>, work: (tx: Tx) => Promise<Answer>, settings: Settings = {},
): Promise<Answer> {
  let done = false;
  const run = () => inTransaction<Tx, Answer>(db, settings, null, 0, async (tx, _, deadline) => {
    deadline.stop();
    done = false;
    const answer = await performed(() => work(tx), settings.handlerTimeout ?? HANDLER_TIMEOUT.transactional);
    deadline.start();
    const left = (of: Answer) => new NotKept({ outcome: 'not_kept', answer: of, claim: null as unknown as Claim });
    if (answer instanceof Rejection) throw left(answer.answer);
    if (!['keep', 'unknown'].includes(verdictOn(answer, settings))) throw left(answer);
    done = true;
    return { result: answer, last: CHECKED };
  });
  const result = await again(settings, async () => {
    try {
      return await run();
    } catch (error) {
      if (done && isConnectionLost(error)) throw new InDoubt('it is not known whether the transaction committed', { cause: error });
      throw error;
    }
  });
  return 'answer' in result ? (result as { answer: Answer }).answer : result as Answer;
}

async function inTransaction<Tx, T>(
  db: Database<Tx>, settings: Settings, first: Statement | null, patience: number,
  work: (tx: Tx, rows: Row[], deadline: Deadline) => Promise<Ending<T>>,
): Promise<T> {
  const deadline = new Deadline(settings.databaseTimeout ?? DATABASE_TIMEOUT);
  deadline.start(patience);
  return deadline.guard(db.transaction<T>(first, async (tx, rows) => {
    deadline.check();
    deadline.start();
    try {
      return await work(tx, rows, deadline);
    } finally {
      deadline.start(); // for the end
    }
  }, deadline.signal));
}

/**
 * Repeats all of it after a conflict or a lost connection. Also after a COMMIT without an answer: the same key
 * gets `replay` if it was committed, `execute` if not.
 */
async function again<T extends Result | Answer | boolean>(
  settings: Settings, call: (lost: boolean, last: boolean) => Promise<T>,
): Promise<T> {
  const attempts = settings.attempts ?? ATTEMPTS;
  let late = 0;
  let lost = false; // a connection, in an attempt before
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call(lost, attempt === attempts);
    } catch (raised) {
      const undone = find(raised, Undone);
      if (undone) throw undone;
      const thrown = find(raised, Thrown);
      const notKept = find(raised, NotKept);
      if (notKept) return notKept.result as T;
      if (find(raised, Unprepared)) { // the next run prepares nothing
        attempt -= 1;
        continue;
      }
      const error = thrown ? thrown.error : raised;
      const transient = isTransient(raised, thrown !== undefined) || (thrown && isTransient(thrown.error, true));
      if ((!transient && !find(raised, OwnTransaction)) || raised instanceof InDoubt) throw error;
      lost ||= !sqlstate(raised)?.startsWith('40');
      // Each of these has used the whole time; a second one asks for the result of a COMMIT.
      if (raised instanceof DatabaseAway) late += 1;
      if (attempt >= attempts || late === 2) throw new DatabaseAway('the database could not do it', { cause: error });
      await pause(10 * 2 ** attempt * (0.5 + Math.random()));
    }
  }
}

// Some drivers wrap the exception of a transaction's callback.
function find<T>(error: unknown, type: new (...args: any[]) => T): T | undefined {
  for (let e = error as any, depth = 0; e && depth < 5; e = e.cause, depth += 1) if (e instanceof type) return e;
  return undefined;
}

// ---- leased ----

/** Thrown by the work of a leased claim: nothing has happened, so the next request may try again. */
export class NothingHappened extends Error {
  override name = 'NothingHappened';
}

/** A claim that is committed before the work, and extended during it. */
export interface Leased {
  readonly key: string;
  readonly scope: string;
  readonly principal: string;
  /** 1 for the first, plus one for each attempt after a failure or a crash. */
  readonly attempt: number;
  /** The name of the last step that an attempt has done. */
  readonly recoveryPoint: string | null;
  /** The results of the steps that are done, by name. */
  readonly state: Readonly<Record<string, unknown>>;
  /** Aborted when the lease is lost or may have expired: the work must stop. */
  readonly signal: AbortSignal;
  /**
   * Does a part of the work, and notes that it is done, with its result, a value of JSON. A later attempt gets
   * the result, and does not repeat the part. A crash between work and note repeats it: a service that it calls
   * needs a key, too; derive one from this claim's.
   */
  step<T>(name: string, work: (signal: AbortSignal) => Promise<T> | T): Promise<T>;
  /**
   * Ends the claim: it is not known whether the work had its effect. Repeats get `unknown` until an operator
   * decides. `reference` is the provider's name for the attempt. The work's answer is still sent, but not
   * stored. Only the first call counts.
   */
  unknown(error?: string | null, reference?: string | null): Promise<void>;
}

export interface LeasedSettings extends Settings {
  readonly lease?: number;
  readonly onLeaseLost?: (claim: Claim) => void;
}

/**
 * The claim is committed first, and the answer with its token afterwards. An answer that is not to be
 * kept, and an exception other than NothingHappened, leave the outcome open: the scope's policy says
 * whether the request may be tried again.
 */
export async function leased<Tx>(
  db: Database<Tx>, request: Request, work: (claim: Leased) => Promise<Answer>, settings: LeasedSettings = {},
): Promise<Result> {
  const run = runOn(db, settings);
  let sent = 0;
  const claim = await again(settings, async () => {
    sent = Heartbeat.now();
    const first = beginning(request, settings.lease ?? LEASE);
    const [row] = await run(first.text, first.values, (settings.databaseTimeout ?? DATABASE_TIMEOUT) + (request.wait ?? 0));
    return claimOf(row!) as any;
  }) as Claim;
  if (claim.outcome !== 'execute') return refusalOrReplay(claim);
  settings.onClaim?.(claim);
  return new Held(db, claim, nameOf(request, claim), settings, sent).settle(work);
}

type Run = (text: string, values: Value[], within?: number) => Promise<Row[]>;

export const runOn = <Tx>(db: Database<Tx>, { databaseTimeout = DATABASE_TIMEOUT }: Settings): Run =>
  (text, values, within = databaseTimeout) => statement(db, within, text, values);

/** A claim with a lease, from its grant to its end. `sent`: when it was asked for. */
export class Held<Tx> {
  readonly #heart: Heartbeat;
  readonly #run: Run;
  #state: Record<string, unknown>;
  // A note contains all steps, so an older one must not overwrite a newer one: each waits for the previous one.
  #noting: Promise<unknown> = Promise.resolve();
  #unknown: Promise<void> | undefined;

  constructor(readonly db: Database<Tx>, readonly claim: Claim, readonly name: Name, readonly settings: LeasedSettings, sent: number) {
    const limit = settings.databaseTimeout ?? DATABASE_TIMEOUT;
    this.#run = runOn(db, settings);
    this.#state = { ...(claim.state as Record<string, unknown> | null) };
    this.#heart = new Heartbeat(
      settings.lease ?? LEASE, sent,
      (within) => this.#run(EXTEND, [name.key, claim.token, name.scope, name.principal], Math.min(limit, within)),
      isLost, () => settings.onLeaseLost?.(claim), (message, cause) => new LeaseLost(message, { cause }),
    );
  }

  /** Does the work, and ends the claim by its result. */
  async settle(work: (claim: Leased) => Promise<Answer>): Promise<Result> {
    const { claim, settings } = this;
    const lost: Result = { outcome: 'in_progress', claim: null };
    let answer: Answer;
    try {
      const done = await performed(() => work(this.#handle()), settings.handlerTimeout ?? HANDLER_TIMEOUT.leased);
      answer = done instanceof Rejection ? done.answer : done;
      if (await this.#endedUnknown()) return { outcome: 'not_kept', answer, claim };
      this.#heart.stop();
      if (this.#heart.lost) return lost;
      const verdict = verdictOn(answer, settings);
      if (verdict !== 'keep') return await this.#leave(verdict, `status ${answer.status}`) ? { outcome: 'not_kept', answer, claim } : lost;
    } catch (thrown) {
      const error = thrown instanceof Thrown ? thrown.error : thrown;
      if (await this.#endedUnknown()) throw error;
      this.#heart.stop();
      if (this.#heart.lost) return lost;
      // The caller learns of the work's failure even if it cannot be recorded.
      if (!await this.#fail(messageOf(error), !(error instanceof NothingHappened)).catch(() => true)) return lost;
      throw error;
    }
    return await this.#complete(answer) ? { outcome: 'executed', answer, claim } : lost;
  }

  /** The same in a transaction: what the work does there commits with the end of the claim, or rolls back. */
  async settleWithin(work: (tx: Tx, claim: Leased) => Promise<Answer>): Promise<Result> {
    const { claim, settings } = this;
    const attempts = settings.attempts ?? ATTEMPTS;
    const run = () => inTransaction<Tx, Result>(this.db, settings, null, 0, async (tx, _, deadline) => {
      deadline.stop();
      const answer = await performed(() => work(tx, this.#handle()), settings.handlerTimeout ?? HANDLER_TIMEOUT.leased);
      this.#heart.stop();
      deadline.start();
      if (this.#heart.lost) throw this.#heart.signal.reason;
      if (answer instanceof Rejection) throw new Undone(answer.answer);
      if (verdictOn(answer, settings) !== 'keep') throw new NotKept({ outcome: 'not_kept', answer, claim });
      return { result: { outcome: 'executed', answer, claim }, last: completion(this.name, answer, claim.token, settings) };
    });
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await run();
      } catch (raised) {
        if (find(raised, Unprepared)) attempt -= 1; // the next run prepares nothing
        else if (this.#heart.lost || attempt >= attempts || !isConflict(find(raised, Thrown)?.error ?? raised)) return this.#rolledBack(raised);
        else await pause(10 * 2 ** attempt * (0.5 + Math.random()));
        this.#heart.resume();
        if (this.#heart.lost) return this.#rolledBack(raised); // during COMMIT or the pause
      }
    }
  }

  /** Ends the claim of a transaction that has had no effect. */
  async #rolledBack(raised: unknown): Promise<Result> {
    this.#heart.stop();
    const lost: Result = { outcome: 'in_progress', claim: null };
    if (this.#heart.lost || isLost(raised)) return lost;
    this.#heart.tell(raised); // work may go on that has lost its connection
    const undone = find(raised, Undone);
    if (undone) return await this.#complete(undone.answer) ? { outcome: 'executed', answer: undone.answer, claim: this.claim } : lost;
    const notKept = find(raised, NotKept)?.result;
    const error = find(raised, Thrown)?.error ?? raised;
    const reason = notKept && 'answer' in notKept ? `status ${notKept.answer.status}` : messageOf(error);
    if (!await this.#fail(reason, false).catch(() => true)) return lost;
    if (notKept) return notKept;
    throw error;
  }

  /** Tells the work to stop, although the claim is held. */
  tell(reason: unknown): void { this.#heart.tell(reason); }

  async #complete(answer: Answer): Promise<boolean> {
    const { claim, name, settings } = this;
    try {
      const last = completion(name, answer, claim.token, settings);
      const kept = await this.#end(last.text, last.values);
      if (!kept) settings.onLeaseLost?.(claim);
      return kept;
    } catch (error) {
      // The answer cannot be kept, but the work is done.
      if (!(error instanceof DatabaseAway)) await this.#fail(`the answer can't be stored: ${(error as Error).message}`).catch(() => {});
      throw error;
    }
  }

  /** Without an answer. */
  #leave(verdict: Exclude<Verdict, 'keep'> | 'by_status', reason: string): Promise<boolean> {
    if (verdict !== 'unknown') return this.#fail(reason, verdict !== 'free');
    const { text: statementText, values } = ofUnknown(this.name, this.claim.token, reason);
    return this.#end(statementText, values);
  }

  /** `uncertain`: the work may have had effects. */
  #fail(reason: string, uncertain = true): Promise<boolean> {
    const { key, scope, principal } = this.name;
    return this.#end(FAIL, [key, text(reason), scope, principal, this.claim.token, String(uncertain)]);
  }

  /** False if the claim is lost. */
  async #end(statementText: string, values: Value[]): Promise<boolean> {
    try {
      await this.#repeated(statementText, values);
      return true;
    } catch (error) {
      if (isLost(error)) return false;
      throw error;
    }
  }

  #repeated(statementText: string, values: Value[]): Promise<boolean> {
    return again(this.settings, async () => { await this.#run(statementText, values); return true; });
  }

  /** The argument of the work. */
  #handle(): Leased {
    return {
      ...this.name,
      attempt: this.claim.attempt ?? 1,
      recoveryPoint: this.claim.recoveryPoint,
      state: this.#state,
      signal: this.#heart.signal,
      step: (name, work) => this.#step(name, work),
      unknown: (error = null, reference = null) => {
        this.#unknown ??= this.#endAsUnknown(error, reference).catch((failure) => {
          this.#unknown = undefined;
          throw failure;
        });
        this.#unknown.catch(() => {}); // the work may not look at it
        return this.#unknown;
      },
    };
  }

  async #endAsUnknown(error: string | null, reference: string | null): Promise<void> {
    const end = ofUnknown(this.name, this.claim.token, error, reference);
    await this.#heldStill(() => this.#repeated(end.text, end.values));
    this.#heart.stop();
  }

  /** Also if the work has not waited for it. */
  async #endedUnknown(): Promise<boolean> {
    return this.#unknown === undefined ? false : this.#unknown.then(() => true, () => false);
  }

  async #step<T>(name: string, work: (signal: AbortSignal) => Promise<T> | T): Promise<T> {
    if (Object.hasOwn(this.#state, name)) return this.#state[name] as T;
    if (this.#unknown) throw new Error('idempotency: the claim has ended as unknown');
    const { signal } = this.#heart;
    signal.throwIfAborted();
    const result = await work(signal);
    const noted = this.#noting.then(() => this.#heldStill(() => this.#note(name, result ?? null)));
    this.#noting = noted.catch(() => undefined);
    await noted;
    return result;
  }

  async #note(step: string, result: unknown): Promise<void> {
    const { key, scope, principal } = this.name;
    const next = JSON.stringify({ ...this.#state, [step]: result });
    await again(this.settings, async () => {
      const sent = Heartbeat.now();
      await this.#run(CHECKPOINT, [key, step, next, scope, principal, this.claim.token]);
      this.#heart.succeeded(sent);
      return true;
    });
    this.#state[step] = result;
  }

  /** Tells the work to stop if the server reports the claim as lost. */
  async #heldStill(call: () => Promise<unknown>): Promise<void> {
    try {
      await call();
    } catch (error) {
      if (!isLost(error)) throw error;
      this.#heart.lose(error);
      this.#heart.signal.throwIfAborted();
      throw error;
    }
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** ID404 and ID409: no claim with this token. */
function isLost(error: unknown): boolean {
  return ['ID404', 'ID409'].includes(sqlstate(error) ?? '');
}

/** A text of PostgreSQL cannot hold a NUL. */
const text = (value: string | null): Value => value?.replaceAll('\0', '') ?? null;

// ---- shared by both ----

function beginning(request: Request, lease: number | null): Statement {
  // A key generated by the server would change if the statement is repeated.
  if (request.key === null && !request.derive) throw new TypeError('idempotency: a request needs `key` or `derive`');
  return {
    text: BEGIN,
    values: [
      request.key, request.json ?? null, bytea(request.fingerprint ?? null), request.method ?? null, request.target ?? null,
      textArray(request.exclude ?? []), request.scope, request.principal, number(request.ttl), number(lease),
      number(request.wait), request.holder ?? null, String(lease === null), number(request.derive),
    ],
  };
}

const nameOf = ({ scope, principal }: Request, { key }: Claim): Name => ({ key, scope, principal });

function completion(name: Name, answer: Answer, token: string | null, settings: Settings): Statement {
  const body = typeof answer.body === 'string' ? Buffer.from(answer.body) : answer.body ?? null;
  const headers = storedHeaders(answer.headers ?? [], settings.dropHeaders);
  return { text: COMPLETE, values: [name.key, answer === NO_ANSWER ? null : String(answer.status), bytea(body), headers, name.scope, name.principal, token] };
}

function ofUnknown({ key, scope, principal }: Name, token: string | null, error: string | null, reference: string | null = null): Statement {
  return { text: UNKNOWN, values: [key, text(error), text(reference), scope, principal, token] };
}

function refusalOrReplay(claim: Claim): Result {
  if (claim.outcome !== 'replay') return { outcome: claim.outcome as Refusal, claim };
  const answer = replayOf(claim);
  return answer ? { outcome: 'replay', answer, claim } : { outcome: 'failed', claim };
}
