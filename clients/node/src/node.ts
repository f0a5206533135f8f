// node:http, and what Express shares with it.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { parse as parseForm } from 'node:querystring';
import { Readable } from 'node:stream';
import { isForm, isJson, mediaType } from './body.js';
import { captured, grouped, isFraming } from './capture.js';
import type { Answer } from './claim.js';
import { type Database, DatabaseAway } from './database.js';
import { Rejection } from './flows.js';
import { type Context, type LeasedRequest, type Options, type Reply, Route, type Transactional } from './middleware.js';
import { HttpProblem, plainProblem } from './problem.js';

export * from './index.js';

/** A handler's request: `body` is parsed JSON, or the bytes of anything else. */
export type WithClaim<Req, C> = Req & { idempotency: C; body: any; rawBody: Buffer };

export type NodeHandler<C> =
  (request: WithClaim<IncomingMessage, C>, response: ServerResponse) => unknown;

/** A plain server has no routes, so the caller gives the scope. */
export type NodeOptions = Options<IncomingMessage> & { scope: string };

type Defaults = Partial<Options<IncomingMessage>> & Pick<Options<IncomingMessage>, 'principal'>;

/** The options that all routes of a server share, and a way to make a route. */
export function idempotency<Tx>(common: Defaults & { database: Database<Tx> }) {
  const { database, ...defaults } = common;
  new Route<IncomingMessage, Tx>(database, 'transactional', defaults); // checks the options
  function make<C extends Context<Tx>>(kind: 'transactional' | 'leased', options: Partial<NodeOptions>, handler: NodeHandler<C>) {
    const merged = { ...defaults, ...options } as NodeOptions;
    if (!merged.scope) throw new TypeError('idempotency: `scope` is needed where there is no router');
    const route = new Route<IncomingMessage, Tx>(database, kind, merged);
    return async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      try {
        const exchange = exchangeOf<IncomingMessage, ServerResponse, Tx>(request, response, request.url!, () => merged.scope, handler as any);
        send(response, await route.handle({ ...exchange, answerTo: async (error) => problemOf(error) }));
      } catch (error) {
        fail(response, error); // there is no framework to pass it to
      }
    };
  }
  return {
    transactional: (options: Partial<NodeOptions> & { scope: string }, handler: NodeHandler<Transactional<Tx>>) => make('transactional', options, handler),
    leased: (options: Partial<NodeOptions> & { scope: string }, handler: NodeHandler<LeasedRequest>) => make('leased', options, handler),
  };
}

/** An exchange whose handler gets a node:http request and a response of ours. */
export function exchangeOf<Req extends IncomingMessage, Res extends ServerResponse, Tx>(
  request: Req, response: Res, target: string, defaultScope: () => string,
  handler: (request: WithClaim<Req, Context<Tx>>, response: Res) => unknown,
) {
  let fresh = false; // no handler has had the body
  return {
    request, incoming: request as IncomingMessage, target, defaultScope,
    ...bodyOf(request),
    setBody: (body: Buffer) => {
      giveBody(request, body);
      fresh = true;
    },
    run: async (context: Context<Tx>, limit: number): Promise<Answer> => {
      const { response: ours, answer } = captured(response, limit);
      (request as any).idempotency = context;
      if (!fresh) giveBody(request, (request as any).rawBody); // as new, whatever the previous run did to it
      fresh = false;
      const handled = handler(request as WithClaim<Req, Context<Tx>>, ours);
      // An exception of the handler counts even after its answer; callbacks may answer later.
      await Promise.race([handled, answer.then(() => handled)]);
      const result = await answer;
      await handled;
      return result;
    },
  };
}

/** An error with a status, as http-errors makes them, or a rejection. */
export function problemOf(error: unknown): Answer | null {
  if (error instanceof Rejection) return error.answer;
  const { status, statusCode, message } = (error ?? {}) as { status?: unknown; statusCode?: unknown; message?: unknown };
  const found = [status, statusCode].find((one): one is number => Number.isInteger(one) && (one as number) >= 400 && (one as number) <= 599);
  // What went wrong within is not for the client.
  return found === undefined ? null : plainProblem(found, found < 500 ? String(message || found) : 'Internal server error');
}

// An earlier parser has consumed the stream; such parsers can be configured to leave `rawBody`.
function bodyOf(request: IncomingMessage & { body?: unknown; rawBody?: unknown }) {
  if (Buffer.isBuffer(request.rawBody)) return { stream: null, body: request.rawBody };
  if (Buffer.isBuffer(request.body)) return { stream: null, body: request.body };
  if (!request.readableEnded && !request.readableDidRead) return { stream: request, body: null };
  throw new Error('idempotency: the body was read before the route. Put the route before body parsers, or let them keep `rawBody`');
}

/** Parsed, and as a stream: a parser of forms within the route reads that. */
function giveBody(request: any, body: Buffer): void {
  request.rawBody = body;
  request.body = parsedBody(request, body);
  request._body = !isForm(request.headers['content-type']); // for body-parser 1
  readableAgain(request, body);
}

/** A stream that has ended cannot get anything more, so the request becomes a new one. */
export function readableAgain(request: any, body: Buffer): void {
  for (const event of ['data', 'end', 'readable']) request.removeAllListeners(event);
  (Readable as any).call(request, { read() {}, autoDestroy: false });
  if (body.length > 0) request.push(body);
  request.push(null);
}

/** JSON and forms are parsed; other bodies are returned as they are. */
export function parsedBody(request: IncomingMessage, body: Buffer): unknown {
  const type = mediaType(request.headers['content-type']);
  if (type === 'application/x-www-form-urlencoded') return { ...parseForm(body.toString()) };
  if (!isJson(type)) return body;
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined; // the database says so, with the right answer
  }
}

/** Sends an answer, and the middleware's own fields. */
export function send(response: ServerResponse, { answer, fields, close }: Reply): void {
  const pairs = grouped([...answer.headers ?? [], ...fields]);
  const body = Buffer.from(answer.body ?? '');
  response.statusCode = answer.status;
  for (const [name, value] of pairs) if (!isFraming(name)) response.setHeader(name, value);
  // Node remembers a removed Content-Length, and then closes the connection to end the answer.
  if (![204, 304].includes(answer.status)) response.setHeader('Content-Length', body.length);
  if (close) response.setHeader('Connection', 'close');
  response.end(body.length > 0 ? body : undefined); // an empty chunk would be a write of its own
}

/** For where the framework believes that it has answered: an error of ours, after one of the handler's. */
export function fail(response: ServerResponse, error: unknown): void {
  if (!problemOf(error)) process.emitWarning(error instanceof Error ? error.stack ?? error.message : String(error), 'IdempotencyHandler');
  const word = error instanceof DatabaseAway ? 'unavailable' : 'internal';
  const answer = problemOf(error) ?? new HttpProblem(word).answer;
  send(response, { answer, fields: [], close: false });
}

/** The token of `Authorization: Bearer TOKEN`; null if there is none, or more than one. */
export function bearer(request: IncomingMessage): string | null {
  const fields: string[] = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    if (request.rawHeaders[i]!.toLowerCase() === 'authorization') fields.push(request.rawHeaders[i + 1]!);
  }
  const match = fields.length === 1 ? /^bearer +([A-Za-z0-9\-._~+/]+=*)$/i.exec(fields[0]!) : null;
  return match ? match[1]! : null;
}
