// The common part of all frameworks' middleware; each framework has its own file.
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { type Answer, type Claim } from './claim.js';
import { ATTEMPTS, DATABASE_TIMEOUT_MS, LEASE_MS, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, WINDOW_MS } from './contract.js';
import { type Database, DatabaseAway, sqlstate } from './database.js';
import {
  HANDLER_TIMEOUT, HandlerLate, type Leased, NothingHappened, Rejection, type Request, type Result, type Verdict, keepAnswer,
  keepByDefault, leased, transactionally, unclaimed,
} from './flows.js';
import { digest, isJson, mediaType, notJson, readBody, textOf } from './body.js';
import { newKey, parseKey, quoteKey } from './key.js';
import { checkOptions } from './options.js';
import { HttpProblem, Problems, type Statuses, type Word } from './problem.js';

/** The argument of hooks. */
export interface Event {
  readonly scope: string;
  readonly key: string | null;
  readonly attempt: number | null;
  /** `execute`, `replay`, or why it was refused. */
  readonly outcome: string;
}
export type Hook = (event: Event) => unknown;

/** The options of a route; times are milliseconds. `Req` is the framework's request. */
export interface Options<Req> {
  /** The operation, as in policies and statistics. By default method and route: `POST /payments`. */
  scope?: string;
  /** The client that the request comes from, by its authentication. None: 401, and the body is not read. */
  principal: (request: Req) => Principal | Promise<Principal>;
  /** The methods that need a key; others pass. */
  methods?: readonly string[];
  missingKey?: 'refuse' | 'pass' | 'generate' | 'derive';
  /** How long a derived key counts; then the server forgets it. */
  window?: number;
  /** Fields of the JSON body that may differ in repeats. */
  exclude?: readonly string[];
  /** Bytes to hash instead of method, target and body. */
  fingerprint?: (request: Req, body: Buffer) => Uint8Array | string | Promise<Uint8Array | string>;
  ttl?: number;
  lease?: number;
  wait?: number;
  /** Whether an answer with this status is stored and replayed. */
  keep?: (status: number) => boolean;
  /** Decides about one answer instead of `keep`; undefined leaves the decision to it. */
  verdict?: (answer: Answer) => Verdict | undefined;
  /** The time that the handler may take: then 503, and the claim ends as after an exception. */
  handlerTimeout?: number;
  /** Other statuses of refusals, by outcome. */
  statuses?: Statuses;
  keyHeader?: string;
  replayHeader?: string;
  echoKey?: boolean;
  maxRequestBytes?: number;
  maxAnswerBytes?: number;
  omitLargeAnswers?: boolean;
  attempts?: number;
  databaseTimeout?: number;
  /** Runs requests while the database is away, without protection. */
  unprotectedWithoutDatabase?: boolean;
  onExecute?: Hook;
  onReplay?: Hook;
  onRefusal?: Hook;
  onLeaseLost?: Hook;
}

/** The `request.idempotency` of a transactional route's handler. */
export interface Transactional<Tx> {
  readonly kind: 'transactional';
  /** The transaction that holds the claim; `transactional` routes do their work in it. */
  readonly client: Tx;
  /** False if the request runs without a claim, by the route's options. */
  readonly protected: boolean;
  readonly key: string | null;
  readonly scope: string;
  readonly principal: string;
  readonly attempt: number;
}

/** The `request.idempotency` of a leased route's handler. */
export interface LeasedRequest extends Leased {
  readonly kind: 'leased';
  readonly protected: boolean;
}

export type Context<Tx> = Transactional<Tx> | LeasedRequest;

/** A framework's part: the request, and a way to run the handler and catch its answer. */
export interface Exchange<Req, Tx> {
  readonly request: Req;
  readonly incoming: IncomingMessage;
  /** The target of the request line. */
  readonly target: string;
  readonly defaultScope: () => string;
  /** Where the body has not been read yet. */
  readonly stream: Readable | null;
  /** The body that an earlier middleware has read, not decoded here. */
  readonly body: Buffer | null;
  /** Gives the handler a body that it has not read itself. */
  readonly setBody: (body: Buffer) => void;
  /** Runs the handler, each time anew. */
  readonly run: (context: Context<Tx>, limit: number) => Promise<Answer>;
  /** The framework's answer to an error of the handler; none if it makes none of its own. Called once at most. */
  readonly answerTo?: (error: unknown) => Promise<Answer | null>;
}

/** The answer to send. `close`: the body was not read, so the connection cannot be reused. */
export interface Reply { answer: Answer; fields: [string, string][]; close: boolean }

/** An answer that cannot be kept. */
export class AnswerTooLarge extends Error {
  override name = 'AnswerTooLarge';
}

/** The caller, or nothing where there is none. */
type Principal = string | number | bigint | false | null | undefined;

/** Of any other value, the text may be another one in each request, or the same for all callers. */
function nameOf(principal: Principal): string {
  if (typeof principal === 'string' || typeof principal === 'bigint' || Number.isSafeInteger(principal)) return String(principal);
  if (principal === null || principal === undefined || principal === false) return '';
  throw new TypeError(`idempotency: \`principal\` has to return a string or a whole number, not a value of type ${typeof principal}`);
}

export class Route<Req, Tx> {
  readonly #problems: Problems;

  constructor(
    readonly db: Database<Tx>, readonly kind: 'transactional' | 'leased', readonly options: Options<Req>,
  ) {
    checkOptions(options);
    this.#problems = new Problems(db, options.statuses ?? {}, this.#patience);
  }

  get #patience(): number { return this.options.databaseTimeout ?? DATABASE_TIMEOUT_MS; }
  get maxRequestBytes(): number { return this.options.maxRequestBytes ?? MAX_REQUEST_BYTES; }
  get maxAnswerBytes(): number { return this.options.maxAnswerBytes ?? MAX_ANSWER_BYTES; }
  get #keyHeader(): string { return this.options.keyHeader ?? 'Idempotency-Key'; }
  get #replayHeader(): string { return this.options.replayHeader ?? 'Idempotent-Replayed'; }

  /** Whether requests with this method need a key. */
  concerns(method: string): boolean {
    return (this.options.methods ?? ['POST', 'PATCH']).includes(method);
  }

  /** All refusals that are possible before the body is read. */
  async admit(exchange: Pick<Exchange<Req, Tx>, 'request' | 'incoming' | 'defaultScope'>): Promise<Admitted | Reply> {
    const scope = this.options.scope ?? exchange.defaultScope();
    try {
      const principal = nameOf(await this.options.principal(exchange.request));
      if (principal === '') throw new HttpProblem('unauthorized');
      const sent = fieldsNamed(exchange.incoming, this.#keyHeader);
      const key = sent.length === 1 ? parseKey(sent[0]!) : null;
      if (sent.length > 0 && key === null) return await this.#refuse('bad_key', scope, null, null, true);
      if (key === null && this.#needsKey(exchange.incoming.method!)) return await this.#refuse('missing_key', scope, null, null, true);
      return { scope, principal, key };
    } catch (error) {
      if (error instanceof HttpProblem) return { answer: error.answer, fields: [], close: true };
      throw error;
    }
  }

  #needsKey(method: string): boolean {
    return this.concerns(method) && (this.options.missingKey ?? 'refuse') === 'refuse';
  }

  async handle(exchange: Exchange<Req, Tx>): Promise<Reply> {
    const admitted = await this.admit(exchange);
    return 'answer' in admitted ? admitted : this.proceed(exchange, admitted);
  }

  async proceed(exchange: Exchange<Req, Tx>, admitted: Admitted): Promise<Reply> {
    const { scope, principal } = admitted;
    let body: Buffer;
    try {
      body = exchange.body ?? await readBody(exchange.stream!, exchange.incoming.headers, this.maxRequestBytes);
      if (body.length > this.maxRequestBytes) throw new HttpProblem('body_too_large');
      exchange.setBody(body);
    } catch (error) {
      if (error instanceof HttpProblem) return { answer: error.answer, fields: [], close: true };
      throw error;
    }
    try {
      return await this.#run(exchange, scope, principal, admitted.key, body);
    } catch (error) {
      if (error instanceof HttpProblem) return { answer: error.answer, fields: [], close: false };
      throw error;
    }
  }

  async #run(exchange: Exchange<Req, Tx>, scope: string, principal: string, sent: string | null, body: Buffer): Promise<Reply> {
    const mode = this.concerns(exchange.incoming.method!) ? this.options.missingKey ?? 'refuse' : 'pass';
    const key = sent ?? (mode === 'generate' ? newKey() : null);
    const derive = key === null && mode === 'derive' ? this.options.window ?? WINDOW_MS : null;
    try {
      const identity = await this.#identity(exchange, body);
      if ((key === null && derive === null) || !this.concerns(exchange.incoming.method!)) {
        return await this.#unprotected(exchange, scope, principal, key);
      }
      const request: Request = {
        ...identity, key, derive, scope, principal, exclude: this.options.exclude ?? [], holder: null,
        ttl: derive ?? this.options.ttl ?? null, wait: this.options.wait ?? null,
      };
      return await this.#claimed(exchange, request, body, sent === null);
    } catch (error) {
      if (!(error instanceof DatabaseAway)) throw error;
      return this.#refuse('unavailable', scope, key, 1, false, sent === null);
    }
  }

  async #identity(exchange: Exchange<Req, Tx>, body: Buffer) {
    const method = exchange.incoming.method!;
    const { target } = exchange;
    // Many libraries send the type without a body.
    const json = body.length > 0 && isJson(mediaType(exchange.incoming.headers['content-type'])) ? textOf(body) : null;
    const own = this.options.fingerprint ? await this.options.fingerprint(exchange.request, body) : null;
    if (own !== null) exchange.setBody(body); // as new, whatever that did to it
    const fingerprint = own !== null ? createHash('sha256').update(own).digest()
      : json === null ? this.#digest(exchange, body) : null;
    return { json, fingerprint, method, target };
  }

  #digest({ incoming, target }: Exchange<Req, Tx>, body: Buffer): Buffer {
    return digest(incoming.method!, target, incoming.headers['content-type'], body);
  }

  async #claimed(exchange: Exchange<Req, Tx>, request: Request, body: Buffer, ours: boolean): Promise<Reply> {
    let executed = false; // the handler has begun: what fails is not the request's JSON any more
    let told: Promise<Answer | null> | undefined;
    const tell = (error: unknown) => { told ??= this.#answerTo(exchange, error); return told; };
    let { key } = request; // or the one that the server derives
    const event = (claim: Claim | null, outcome: string): Event =>
      ({ scope: request.scope, key, attempt: claim?.attempt ?? null, outcome });
    const settings = {
      attempts: this.options.attempts ?? ATTEMPTS,
      databaseTimeout: this.#patience,
      keep: this.options.keep,
      verdict: this.options.verdict,
      handlerTimeout: this.options.handlerTimeout ?? HANDLER_TIMEOUT[this.kind],
      dropHeaders: [this.#keyHeader, this.#replayHeader],
      lease: this.options.lease ?? LEASE_MS,
      onClaim: (claim: Claim) => {
        executed = true;
        key = claim.key;
        call(this.options.onExecute, event(claim, 'execute'));
      },
      onLeaseLost: (claim: Claim) => call(this.options.onLeaseLost, event(claim, 'lease_lost')),
    } as const;
    const flow = this.kind === 'leased'
      ? leased(this.db, request, (claim) => this.#leasedAnswer(exchange, { ...claim, kind: 'leased', protected: true }, tell), settings as any)
      : transactionally(this.db, request, (client, claim) => this.#answer(exchange, {
        kind: 'transactional', client, protected: true, key: claim.key, scope: request.scope,
        principal: request.principal, attempt: claim.attempt ?? 1,
      }), settings as any);
    let result: Result;
    try {
      result = await flow;
    } catch (error) {
      const answer = executed ? await tell(error) : null;
      if (answer && this.kind === 'transactional' && this.#keepsError(answer)) {
        result = await keepAnswer(this.db, request, answer, { ...settings, onClaim: undefined } as any);
        return this.#replyOf(result, request, ours, event);
      }
      if (answer) return { answer, fields: this.#keyFields(key, ours), close: false };
      if (executed) throw error;
      if (request.json !== null && isRefusedByJsonb(error)) {
        const fingerprint = request.fingerprint ?? this.#digest(exchange, body);
        return this.#claimed(exchange, { ...request, json: null, fingerprint }, body, ours);
      }
      if (this.options.unprotectedWithoutDatabase && error instanceof DatabaseAway) {
        return this.#unprotected(exchange, request.scope, request.principal, request.key, true);
      }
      throw ofBegin(error);
    }
    return this.#replyOf(result, request, ours, event);
  }

  async #replyOf(result: Result, request: Request, ours: boolean, event: (claim: Claim | null, outcome: string) => Event): Promise<Reply> {
    const keyFields = this.#keyFields(result.claim?.key ?? request.key, ours);
    switch (result.outcome) {
      case 'executed':
      case 'not_kept':
        return { answer: whole(result.answer), fields: keyFields, close: false };
      case 'replay':
      case 'failed': {
        call(this.options.onReplay, event(result.claim, 'replay'));
        const answer = result.outcome === 'replay' ? result.answer : await this.#problems.answer('failed');
        return { answer, fields: [[this.#replayHeader, 'true'], ...keyFields], close: false };
      }
      default:
        call(this.options.onRefusal, event(result.claim, result.outcome));
        return { answer: await this.#problems.answer(result.outcome, result.claim?.retryAfter ?? null), fields: keyFields, close: false };
    }
  }

  /** What the client is told of an error; none if the framework, or its caller, has to be told of the error itself. */
  async #answerTo(exchange: Exchange<Req, Tx>, error: unknown): Promise<Answer | null> {
    if (error instanceof HandlerLate) return new HttpProblem('handler_late').answer;
    if (error instanceof DatabaseAway) return null;
    return await exchange.answerTo?.(error) ?? null;
  }

  /** The handler said no. What has gone wrong, or may be tried again, is not kept. */
  #keepsError(answer: Answer): boolean {
    return answer.status >= 400 && answer.status < 500 && (this.options.keep ?? keepByDefault)(answer.status);
  }

  /** A leased claim holds no transaction, so it ends with the framework's answer to an error. */
  async #leasedAnswer(exchange: Exchange<Req, Tx>, context: Context<Tx>, tell: (error: unknown) => Promise<Answer | null>): Promise<Answer> {
    try {
      return await this.#answer(exchange, context);
    } catch (error) {
      if (error instanceof Rejection || error instanceof NothingHappened || error instanceof AnswerTooLarge) throw error;
      const answer = await tell(error);
      if (answer && this.#keepsError(answer)) return answer;
      throw error;
    }
  }

  async #unprotected(exchange: Exchange<Req, Tx>, scope: string, principal: string, key: string | null, withoutDatabase = false): Promise<Reply> {
    const names = { key, scope, principal, attempt: 1, protected: false };
    let answer: Answer;
    if (this.kind === 'leased') {
      answer = await this.#answer(exchange, {
        ...names, kind: 'leased', key: key ?? '', recoveryPoint: null, state: {}, signal: new AbortController().signal,
        step: async (_name, work) => work(new AbortController().signal), unknown: async () => {},
      });
    } else if (withoutDatabase) {
      answer = await this.#answer(exchange, {
        ...names, kind: 'transactional',
        get client(): Tx { throw new DatabaseAway('there is no transaction while the database is away'); },
      });
    } else {
      const settings = {
        attempts: this.options.attempts, databaseTimeout: this.#patience, keep: this.options.keep, verdict: this.options.verdict,
        handlerTimeout: this.options.handlerTimeout,
      } as any;
      answer = await unclaimed(this.db, (client) => this.#answer(exchange, { ...names, kind: 'transactional', client }), settings);
    }
    return { answer: whole(answer), fields: this.#keyFields(key, false), close: false };
  }

  async #answer(exchange: Exchange<Req, Tx>, context: Context<Tx>): Promise<Answer> {
    const answer = await exchange.run(context, this.options.omitLargeAnswers ? Infinity : this.maxAnswerBytes);
    const size = Buffer.byteLength(answer.body ?? '');
    if (size <= this.maxAnswerBytes) return answer;
    if (!this.options.omitLargeAnswers) throw new AnswerTooLarge(`the answer has more than ${this.maxAnswerBytes} bytes`);
    return new Omitted(answer);
  }

  async #refuse(word: Word, scope: string, key: string | null, retryAfter: number | null, close: boolean, ours = false): Promise<Reply> {
    call(this.options.onRefusal, { scope, key, attempt: null, outcome: word });
    return { answer: await this.#problems.answer(word, retryAfter), fields: this.#keyFields(key, ours), close };
  }

  #keyFields(key: string | null, ours: boolean): [string, string][] {
    return key !== null && (ours || this.options.echoKey) ? [[this.#keyHeader, quoteKey(key)]] : [];
  }
}

export interface Admitted { scope: string; principal: string; key: string | null }

/** Only its status is stored; the first time, the whole answer is sent. */
class Omitted implements Answer {
  readonly headers: [string, string][] = [['Idempotent-Body', 'omitted']];
  readonly body = null;
  constructor(readonly whole: Answer) {}
  get status(): number { return this.whole.status; }
}
const whole = (answer: Answer): Answer => (answer instanceof Omitted ? answer.whole : answer);

/** JSON that jsonb cannot hold: an escaped NUL, a number beyond numeric. */
const isRefusedByJsonb = (error: unknown): boolean => ['22P05', '22003'].includes(sqlstate(error) ?? '');

/** The errors of idem_begin about a body that claims to be JSON. */
function ofBegin(error: unknown): unknown {
  const state = sqlstate(error);
  if (state === '54000' || state === '54001') return new HttpProblem('body_too_large', 'The body is too large, or nested too deeply.');
  if (state && ['22P02', '22021', '22032', '22030'].includes(state)) return notJson();
  return error;
}

function call(hook: Hook | undefined, event: Event): void {
  if (!hook) return;
  try {
    Promise.resolve(hook(event)).catch(() => {});
  } catch { /* a hook's failure is none of the request's */ }
}

/** The values of the fields of that name, unchanged. */
export function fieldsNamed(incoming: IncomingMessage, name: string): string[] {
  const lower = name.toLowerCase();
  const values: string[] = [];
  for (let i = 0; i < incoming.rawHeaders.length; i += 2) {
    if (incoming.rawHeaders[i]!.toLowerCase() === lower) values.push(incoming.rawHeaders[i + 1]!);
  }
  return values;
}
