// Fastify.
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest, RouteShorthandOptionsWithHandler } from 'fastify';
import { isForm, readBody } from './body.js';
import { collect, grouped, intercepted, isFraming } from './capture.js';
import type { Answer } from './claim.js';
import type { Database } from './database.js';
import { type Admitted, type Context, type LeasedRequest, type Options, type Reply, Route, type Transactional } from './middleware.js';
import { HttpProblem } from './problem.js';
import { bearer as bearerOf, fail, readableAgain, send as sendWhole } from './node.js';

export * from './index.js';

export const bearer = (request: FastifyRequest): string | null => bearerOf(request.raw);

export type FastifyHandler<C> = (request: FastifyRequest<any> & { idempotency: C; rawBody: Buffer }, reply: FastifyReply) => unknown;
export type FastifyOptions = Partial<Options<FastifyRequest>>;

/** The options that all routes of a service share, and two ways to make a route's options. */
export function idempotency<Tx>(common: FastifyOptions & Pick<Options<FastifyRequest>, 'principal'> & { database: Database<Tx> }) {
  const { database, ...defaults } = common;
  new Route<FastifyRequest, Tx>(database, 'transactional', defaults); // checks the options
  function make<C>(kind: 'transactional' | 'leased', first: FastifyOptions | FastifyHandler<C>, second?: FastifyHandler<C>) {
    const handler = (typeof first === 'function' ? first : second!) as (request: any, reply: any) => unknown;
    const options = { ...defaults, ...(typeof first === 'function' ? {} : first) } as Options<FastifyRequest>;
    return routeOptions(new Route<FastifyRequest, Tx>(database, kind, options), handler);
  }
  function transactional(handler: FastifyHandler<Transactional<Tx>>): RouteShorthandOptionsWithHandler;
  function transactional(options: FastifyOptions, handler: FastifyHandler<Transactional<Tx>>): RouteShorthandOptionsWithHandler;
  function transactional(first: any, second?: any) { return make('transactional', first, second); }
  function leased(handler: FastifyHandler<LeasedRequest>): RouteShorthandOptionsWithHandler;
  function leased(options: FastifyOptions, handler: FastifyHandler<LeasedRequest>): RouteShorthandOptionsWithHandler;
  function leased(first: any, second?: any) { return make('leased', first, second); }
  return { transactional, leased };
}

/** Admitted before the body is read, read before Fastify parses it, claimed around the handler. */
function routeOptions<Tx>(
  route: Route<FastifyRequest, Tx>, handler: (this: unknown, request: any, reply: any) => unknown,
): RouteShorthandOptionsWithHandler {
  const admitted = new WeakMap<FastifyRequest, Admitted>();
  const bodies = new WeakMap<FastifyRequest, Buffer>();
  const defaultScope = (request: FastifyRequest) => () => `${request.method} ${request.routeOptions.url}`;
  return {
    bodyLimit: route.maxRequestBytes,
    async onRequest(request, reply) {
      const result = await route.admit({ request, incoming: request.raw, defaultScope: defaultScope(request) });
      if ('answer' in result) return send(reply, result);
      admitted.set(request, result);
      return undefined;
    },
    async preParsing(request, reply, payload) {
      try {
        const body = await readBody(payload as Readable, request.headers, route.maxRequestBytes);
        bodies.set(request, body);
        return Object.assign(Readable.from(body.length ? [body] : []), {
          receivedEncodedLength: Number(request.headers['content-length'] ?? body.length),
        });
      } catch (error) {
        if (!(error instanceof HttpProblem)) throw error;
        send(reply, { answer: error.answer, fields: [], close: true });
        return payload;
      }
    },
    async handler(request, reply) {
      const body = bodies.get(request) ?? Buffer.alloc(0);
      Object.assign(request, { rawBody: body });
      if (isForm(request.headers['content-type'])) readableAgain(request.raw, body); // @fastify/multipart parses that
      const given = admitted.get(request)!;
      return new Promise((resolve, reject) => {
        let told = false; // the application, of an error: it has answered
        route.proceed({
          request, incoming: request.raw, target: request.originalUrl, defaultScope: defaultScope(request),
          stream: null, body, setBody: () => {}, run: runOf<Tx>(this, request, reply, handler),
          answerTo: async (error) => {
            const { answer, restore } = intercepted(reply.raw, route.maxAnswerBytes);
            told = true;
            reject(error);
            return answer.finally(restore);
          },
        }, given).then((done) => {
          if (told) sendWhole(reply.raw, done);
          else resolve(send(reply, done));
        }).catch((error: unknown) => {
          if (told) fail(reply.raw, error);
          reject(error);
        });
      });
    },
  };
}

/** Each run of the handler begins with the original reply, and sends nothing yet. */
function runOf<Tx>(
  server: unknown, request: FastifyRequest, reply: FastifyReply, handler: (this: unknown, request: any, reply: any) => unknown,
) {
  const before = { ...reply.getHeaders() };
  const { statusCode } = reply;
  return async (claim: Context<Tx>, limit: number): Promise<Answer> => {
    for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
    reply.headers(before as Record<string, string>);
    reply.code(statusCode);
    Object.assign(request, { idempotency: claim });
    let isSent = false;
    let take!: (payload: unknown) => void;
    const sent = new Promise<unknown>((resolve) => { take = resolve; });
    const ours: FastifyReply = Object.create(reply, {
      then: { value: undefined }, // or an async handler that returns it would wait for the sending
      send: { value: (payload: unknown) => { isSent = true; take(payload); return ours; } },
    });
    const handled = handler.call(server, request, ours);
    const result = await handled;
    let payload = result;
    if (isSent || result === ours || (result === undefined && !(handled instanceof Promise))) payload = await sent;
    else if (result === undefined) throw new Error('idempotency: the handler has neither returned nor sent an answer');
    if (payload instanceof Error) throw payload;
    const body = await bytesOf(reply, payload, limit);
    const headers = Object.entries(reply.getHeaders()).flatMap(([name, value]) =>
      (Array.isArray(value) ? value : [value]).map((one): [string, string] => [name, String(one)]));
    return { status: reply.statusCode, headers, body };
  };
}

/** In the form in which Fastify sends it. */
async function bytesOf(reply: FastifyReply, payload: unknown, limit: number): Promise<Buffer> {
  const type = (ifNone: string) => { if (!reply.hasHeader('content-type')) reply.header('content-type', ifNone); };
  if (payload === undefined || payload === null) return Buffer.alloc(0);
  if (typeof payload === 'string') {
    type('text/plain; charset=utf-8');
    return Buffer.from(payload);
  }
  if (payload instanceof Uint8Array) {
    type('application/octet-stream');
    return Buffer.from(payload);
  }
  if (typeof (payload as Readable).pipe === 'function') {
    type('application/octet-stream');
    return collect(payload as Readable, limit);
  }
  type('application/json; charset=utf-8');
  return Buffer.from(reply.serialize(payload) as string);
}

function send(reply: FastifyReply, { answer, fields, close }: Reply): FastifyReply {
  reply.code(answer.status);
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
  for (const [name, value] of grouped([...answer.headers ?? [], ...fields])) {
    if (!isFraming(name)) reply.header(name, value);
  }
  if (close) reply.header('connection', 'close');
  const body = Buffer.from(answer.body ?? '');
  return reply.send(body.length === 0 ? undefined : body);
}
