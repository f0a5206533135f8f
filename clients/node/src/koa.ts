// Koa.
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { Context as KoaContext, Middleware } from 'koa';
import { collect, fieldsOf, grouped, intercepted, isFraming } from './capture.js';
import type { Answer } from './claim.js';
import type { Database } from './database.js';
import { type Context, type LeasedRequest, type Options, type Reply, Route, type Transactional } from './middleware.js';
import { fail, parsedBody, send as sendWhole } from './node.js';

export * from './index.js';
export { bearer } from './node.js';

export type KoaHandler<C> = (context: KoaContext & { idempotency: C; request: { body?: any; rawBody?: Buffer } }) => unknown;
export type KoaOptions = Partial<Options<KoaContext>>;

/** The options that all routes of a service share, and two ways to make a route. */
export function idempotency<Tx>(common: KoaOptions & Pick<Options<KoaContext>, 'principal'> & { database: Database<Tx> }) {
  const { database, ...defaults } = common;
  new Route<KoaContext, Tx>(database, 'transactional', defaults); // checks the options
  function make<C>(kind: 'transactional' | 'leased', first: KoaOptions | KoaHandler<C>, second?: KoaHandler<C>): Middleware {
    const handler = (typeof first === 'function' ? first : second!) as (context: KoaContext) => unknown;
    const options = { ...defaults, ...(typeof first === 'function' ? {} : first) } as Options<KoaContext>;
    const route = new Route<KoaContext, Tx>(database, kind, options);
    return (context) => new Promise<void>((resolve, reject) => {
      let told = false; // the application, of an error: it has answered
      route.handle({
        request: context as KoaContext,
        incoming: context.req,
        target: context.originalUrl,
        defaultScope: () => `${context.method} ${(context as any)._matchedRoute ?? context.path}`,
        ...bodyOf(context as KoaContext),
        setBody: (body) => Object.assign(context.request, { body: parsedBody(context.req, body), rawBody: body }),
        run: runOf<Tx>(context as KoaContext, handler),
        answerTo: async (error) => {
          const { answer, restore } = intercepted(context.res, route.maxAnswerBytes);
          told = true;
          reject(error);
          return answer.finally(restore);
        },
      }).then((reply) => {
        if (told) sendWhole(context.res, reply);
        else send(context as KoaContext, reply);
        resolve();
      }).catch((error: unknown) => {
        if (told) fail(context.res, error);
        reject(error);
      });
    });
  }
  function transactional(handler: KoaHandler<Transactional<Tx>>): Middleware;
  function transactional(options: KoaOptions, handler: KoaHandler<Transactional<Tx>>): Middleware;
  function transactional(first: any, second?: any): Middleware { return make('transactional', first, second); }
  function leased(handler: KoaHandler<LeasedRequest>): Middleware;
  function leased(options: KoaOptions, handler: KoaHandler<LeasedRequest>): Middleware;
  function leased(first: any, second?: any): Middleware { return make('leased', first, second); }
  return { transactional, leased };
}

function bodyOf(context: KoaContext): { stream: IncomingMessage | null; body: Buffer | null } {
  const { rawBody } = context.request as { rawBody?: Buffer | string };
  if (rawBody !== undefined) return { stream: null, body: Buffer.from(rawBody as string) };
  if (!context.req.readableEnded && !context.req.readableDidRead) return { stream: context.req, body: null };
  throw new Error('idempotency: the body was read before the route. Put the route before body parsers, or let them keep `rawBody`');
}

/** Each run of the handler begins with the original response. */
function runOf<Tx>(context: KoaContext, handler: (context: KoaContext) => unknown) {
  const before = fieldsOf(context.res);
  const { statusCode } = context.res;
  return async (claim: Context<Tx>, limit: number): Promise<Answer> => {
    const response = context.response as any;
    for (const name of context.res.getHeaderNames()) context.res.removeHeader(name);
    for (const [name, value] of grouped(before)) context.res.setHeader(name, value);
    context.res.statusCode = statusCode;
    for (const field of ['_body', '_explicitStatus', '_explicitNullBody']) response[field] = undefined;
    context.idempotency = claim;
    const { rawBody } = context.request as unknown as { rawBody: Buffer };
    Object.assign(context.request, { body: parsedBody(context.req, rawBody) });
    await handler(context);
    return { status: context.status, body: await bytesOf(context, limit), headers: fieldsOf(context.res) };
  };
}

/** In the form in which Koa sends it. */
async function bytesOf(context: KoaContext, limit: number): Promise<Buffer> {
  const body: unknown = context.body;
  if ([204, 205, 304].includes(context.status)) return Buffer.alloc(0);
  if (body === null || body === undefined) {
    if ((context.response as any)._explicitNullBody) return Buffer.alloc(0);
    context.type = 'text';
    return Buffer.from(context.message || String(context.status));
  }
  if (Buffer.isBuffer(body) || typeof body === 'string') return Buffer.from(body as string);
  if (typeof (body as Readable).pipe === 'function') return collect(body as Readable, limit);
  if (body instanceof Response || body instanceof Blob || body instanceof ReadableStream) {
    return Buffer.from(await (body instanceof Response ? body : new Response(body)).arrayBuffer());
  }
  return Buffer.from(JSON.stringify(body));
}

function send(context: KoaContext, { answer, fields, close }: Reply): void {
  const pairs = grouped([...answer.headers ?? [], ...fields]);
  context.status = answer.status;
  context.body = Buffer.from(answer.body ?? '');
  context.res.removeHeader('Content-Type'); // Koa's guess
  context.res.removeHeader('Trailer');
  for (const [name, value] of pairs) if (!isFraming(name)) context.res.setHeader(name, value);
  context.status = answer.status;
  if (close) context.res.setHeader('Connection', 'close');
}
