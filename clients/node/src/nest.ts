// NestJS on Express: an interceptor for a method. It needs none of NestJS's packages.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { intercepted } from './capture.js';
import type { Answer } from './claim.js';
import { type Database, DatabaseAway } from './database.js';
import { type Context, type Options, Route } from './middleware.js';
import { exchangeOf, send } from './node.js';

export * from './index.js';
export { bearer } from './node.js';

interface Subscribable {
  subscribe(observer: { next: (value: unknown) => void; error: (error: unknown) => void; complete: () => void }): unknown;
}
interface ExecutionContext { switchToHttp(): { getRequest(): any; getResponse(): any } }
/** As `@UseInterceptors` takes it. */
export interface Interceptor { intercept(context: ExecutionContext, next: { handle(): Subscribable }): Promise<any> }
export type NestOptions = Partial<Options<any>>;

/** The options that all methods of a service share, and two ways to make an interceptor. */
export function idempotency<Tx>(common: NestOptions & Pick<Options<any>, 'principal'> & { database: Database<Tx> }) {
  const { database, ...defaults } = common;
  new Route<any, Tx>(database, 'transactional', defaults); // checks the options
  const make = (kind: 'transactional' | 'leased', options: NestOptions): Interceptor => {
    const route = new Route<any, Tx>(database, kind, { ...defaults, ...options });
    return {
      intercept: async (context, next) => {
        const http = context.switchToHttp();
        return new Method<Tx>(route, http.getRequest(), http.getResponse(), () => next.handle()).run();
      },
    };
  };
  return {
    transactional: (options: NestOptions = {}) => make('transactional', options),
    leased: (options: NestOptions = {}) => make('leased', options),
  };
}

/** NestJS makes an answer of what an interceptor returns or throws, once. It is caught, and sent after COMMIT. */
class Method<Tx> {
  #told = false;
  #resolve!: (values: unknown[]) => void;
  #reject!: (error: unknown) => void;

  constructor(
    readonly route: Route<any, Tx>, readonly request: IncomingMessage & Record<string, any>, readonly response: ServerResponse,
    readonly handle: () => Subscribable,
  ) {}

  /** An array is an observable of its values. */
  run(): Promise<unknown[]> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#answer().catch(reject);
    });
  }

  async #answer(): Promise<void> {
    const before = new Set(this.response.getHeaderNames());
    const { request, response } = this;
    const scope = () => `${request.method} ${request.baseUrl ?? ''}${request.route?.path ?? request.path}`;
    const exchange = exchangeOf<any, ServerResponse, Tx>(request, response, request.originalUrl, scope, () => {});
    const reply = await this.route.handle({
      ...exchange,
      run: async (claim: Context<Tx>) => {
        request.idempotency = claim;
        const value = await lastOf(this.handle());
        return this.#caught(() => this.#resolve([value]));
      },
      answerTo: (error) => this.#caught(() => this.#reject(error)),
    });
    if (!this.#told) await this.#caught(() => this.#resolve([undefined])); // a replay or a refusal: NestJS has to end, too
    const kept = new Set([...reply.answer.headers ?? [], ...reply.fields].map(([name]) => name.toLowerCase()));
    for (const name of response.getHeaderNames()) {
      if (!before.has(name) && !kept.has(name) && name !== 'content-length') response.removeHeader(name);
    }
    send(response, reply);
  }

  async #caught(tell: () => void): Promise<Answer> {
    if (this.#told) throw new DatabaseAway('the transaction failed after NestJS had made the answer');
    this.#told = true;
    const { answer, restore } = intercepted(this.response, this.route.maxAnswerBytes);
    tell();
    return answer.finally(restore);
  }
}

function lastOf(values: Subscribable): Promise<unknown> {
  return new Promise((resolve, reject) => {
    let last: unknown;
    values.subscribe({ next: (value) => { last = value; }, error: reject, complete: () => resolve(last) });
  });
}
