// Express 4 and 5.
import type { IncomingMessage } from 'node:http';
import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Database } from './database.js';
import { type Context, type LeasedRequest, type Options, Route, type Transactional } from './middleware.js';
import { type WithClaim, exchangeOf, send } from './node.js';

export * from './index.js';
export { bearer } from './node.js';

export type ExpressHandler<C> = (request: WithClaim<Request, C>, response: Response) => unknown;
export type ExpressOptions = Partial<Options<Request>>;

/** The options that all routes of a service share, and two ways to make a route. */
export function idempotency<Tx>(common: ExpressOptions & Pick<Options<Request>, 'principal'> & { database: Database<Tx> }) {
  const { database, ...defaults } = common;
  function make<C>(kind: 'transactional' | 'leased', first: ExpressOptions | ExpressHandler<C>, second?: ExpressHandler<C>): RequestHandler {
    const handler = (typeof first === 'function' ? first : second!) as ExpressHandler<Context<Tx>>;
    const options = { ...defaults, ...(typeof first === 'function' ? {} : first) } as Options<Request>;
    const route = new Route<Request, Tx>(database, kind, options);
    return (request: Request, response: Response, next: NextFunction): void => {
      const scope = () => `${request.method} ${request.baseUrl}${request.route?.path ?? request.path}`;
      Promise.resolve()
        .then(() => route.handle(exchangeOf<any, Response, Tx>(request as unknown as IncomingMessage, response, request.originalUrl, scope, handler as any)))
        .then((reply) => send(response, reply))
        .catch(next);
    };
  }
  function transactional(handler: ExpressHandler<Transactional<Tx>>): RequestHandler;
  function transactional(options: ExpressOptions, handler: ExpressHandler<Transactional<Tx>>): RequestHandler;
  function transactional(first: any, second?: any): RequestHandler { return make('transactional', first, second); }
  function leased(handler: ExpressHandler<LeasedRequest>): RequestHandler;
  function leased(options: ExpressOptions, handler: ExpressHandler<LeasedRequest>): RequestHandler;
  function leased(first: any, second?: any): RequestHandler { return make('leased', first, second); }
  return { transactional, leased };
}
