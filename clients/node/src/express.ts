// Express 4 and 5.
import type { IncomingMessage } from 'node:http';
import type { ErrorRequestHandler, NextFunction, Request, RequestHandler, Response } from 'express';
import { intercepted } from './capture.js';
import type { Answer } from './claim.js';
import type { Database } from './database.js';
import { type LeasedRequest, type Options, Route, type Transactional } from './middleware.js';
import { type WithClaim, exchangeOf, fail, send } from './node.js';

export * from './index.js';
export { bearer } from './node.js';

type Parameters = Record<string, string>;
export type ExpressRequest<C> = WithClaim<Request<Parameters>, C>;
/** As any of Express: it answers, calls `next`, or throws. */
export type ExpressHandler<C> = (request: ExpressRequest<C>, response: Response, next: NextFunction) => unknown;
export type ExpressOptions = Partial<Options<Request>>;
type Handlers<C> = readonly ExpressHandler<C>[];

/** The options that all routes of a service share, and two ways to make a route. */
export function idempotency<Tx>(common: ExpressOptions & Pick<Options<Request>, 'principal'> & { database: Database<Tx> }) {
  const { database, ...defaults } = common;
  new Route<Request, Tx>(database, 'transactional', defaults); // checks the options
  function make<C>(kind: 'transactional' | 'leased', first?: ExpressOptions | Handlers<C>[number], rest: Handlers<C> = []): RequestHandler {
    const handlers = (typeof first === 'function' ? [first, ...rest] : rest) as RequestHandler[];
    const options = { ...defaults, ...(typeof first === 'function' ? {} : first) } as Options<Request>;
    const route = new Route<Request, Tx>(database, kind, options);
    const middleware: RequestHandler = (request: Request, response: Response, next: NextFunction): void => {
      const scope = () => `${request.method} ${request.baseUrl}${request.route?.path ?? request.path}`;
      let told = false; // the application, of an error
      const run = (own: Request, ours: Response) => chain(handlers.length > 0 ? handlers : handlersAfter(middleware, request), own, ours);
      Promise.resolve()
        .then(() => exchangeOf<any, Response, Tx>(request as unknown as IncomingMessage, response, request.originalUrl, scope, run as any))
        .then((exchange) => route.handle({ ...exchange, answerTo: (error) => { told = true; return answerTo(response, error, next, route.maxAnswerBytes); } }))
        .then((reply) => send(response, reply))
        .catch((error: unknown) => (told ? fail(response, error) : next(error)));
    };
    return middleware;
  }
  function transactional(...handlers: Handlers<Transactional<Tx>>): RequestHandler;
  function transactional(options: ExpressOptions, ...handlers: Handlers<Transactional<Tx>>): RequestHandler;
  function transactional(first?: any, ...rest: any[]): RequestHandler { return make('transactional', first, rest); }
  function leased(...handlers: Handlers<LeasedRequest>): RequestHandler;
  function leased(options: ExpressOptions, ...handlers: Handlers<LeasedRequest>): RequestHandler;
  function leased(first?: any, ...rest: any[]): RequestHandler { return make('leased', first, rest); }
  return { transactional, leased };
}

/** The handlers behind this one in `app.post(path, keys.transactional(), validate, handler)`. */
function handlersAfter(middleware: RequestHandler, request: Request): RequestHandler[] {
  const layers = (request.route?.stack ?? []) as { handle: RequestHandler; method?: string }[];
  const own = layers.findIndex(({ handle }) => handle === middleware);
  if (own < 0) throw new Error('idempotency: give the handlers to `transactional` or `leased`, or put it into a route: app.post(path, keys.transactional(), handler)');
  const method = request.method.toLowerCase();
  return layers.slice(own + 1).filter((layer) => !layer.method || layer.method === method).map(({ handle }) => handle);
}

/** Runs handlers as a route of Express does. The promise rejects by what is thrown or given to `next`. */
function chain(handlers: readonly (RequestHandler | ErrorRequestHandler)[], request: Request, response: Response): Promise<void> {
  return new Promise((resolve, reject) => {
    const from = (at: number, error?: unknown): void => {
      if (error === 'route' || error === 'router') return from(handlers.length);
      const handler = handlers[at];
      if (handler === undefined) return reject(error ?? Object.assign(new Error('No handler has answered'), { status: 404, statusCode: 404 }));
      if ((error !== undefined && error !== null) !== (handler.length === 4)) return from(at + 1, error);
      let left = false;
      const next = (raised?: unknown): void => {
        if (left) return;
        left = true;
        from(at + 1, raised ?? undefined);
      };
      Promise.resolve()
        .then(() => (error === undefined ? (handler as RequestHandler)(request, response, next) : (handler as ErrorRequestHandler)(error, request, response, next)))
        .then(() => { if (!left) resolve(); }, next);
    };
    from(0);
  });
}

/** What the application's error handlers answer. They write into the real response, which is caught meanwhile. */
async function answerTo(response: Response, error: unknown, next: NextFunction, limit: number): Promise<Answer> {
  const { answer, restore } = intercepted(response, limit);
  next(error);
  try {
    return await answer;
  } finally {
    restore();
  }
}
