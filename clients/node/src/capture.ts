// A response that sends nothing: it captures a handler's answer, which is sent after COMMIT. Each run of the
// handler gets a new one.
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Answer } from './claim.js';
import { AnswerTooLarge } from './middleware.js';
import type { Readable } from 'node:stream';

type Callback = (error?: Error | null) => void;

/**
 * A response like `real`, of the same class and with the same fields so far; and its answer once it has ended.
 * Rejects if the answer has more than `limit` bytes.
 */
export function captured<Res extends ServerResponse>(real: Res, limit: number): { response: Res; answer: Promise<Answer> } {
  const response = Object.create(Object.getPrototypeOf(real)) as Res; // to change it later would make each use slow
  (ServerResponse as any).call(response, real.req as IncomingMessage);
  for (const name of ['locals', 'app', 'ctx', 'log'] as const) {
    if (Object.hasOwn(real, name)) (response as any)[name] = (real as any)[name];
  }
  for (const name of real.getHeaderNames()) response.setHeader(spelt(real, name), real.getHeader(name)!);
  response.statusCode = real.statusCode;
  const answer = new Promise<Answer>((resolve, reject) => override(response, limit, resolve, reject));
  answer.catch(() => {});
  return { response, answer };
}

/** Captures what a framework writes into the real response; `restore` lets it be sent again. */
export function intercepted(real: ServerResponse, limit: number): { answer: Promise<Answer>; restore: () => void } {
  let names: string[] = [];
  const answer = new Promise<Answer>((resolve, reject) => { names = override(real, limit, resolve, reject, false); });
  answer.catch(() => {});
  return { answer, restore: () => { for (const name of names) delete (real as any)[name]; } };
}

/** The names of the properties that it has given the response. Without `ends`, the response goes on afterwards. */
function override(
  response: ServerResponse, limit: number, resolve: (answer: Answer) => void, reject: (error: Error) => void, ends = true,
): string[] {
  const chunks: Buffer[] = [];
  let size = 0;
  let sent = false; // the status line is fixed
  let ended = false;

  const take = (chunk: unknown, encoding: unknown): void => {
    if (chunk === null || chunk === undefined) return;
    const bytes = typeof chunk === 'string'
      ? Buffer.from(chunk, typeof encoding === 'string' ? encoding as BufferEncoding : 'utf8')
      : Buffer.from(chunk as Uint8Array);
    size += bytes.length;
    if (size <= limit) chunks.push(bytes);
    else chunks.length = 0;
  };
  const last = (...candidates: unknown[]): Callback | undefined =>
    candidates.find((one): one is Callback => typeof one === 'function');

  const own: Record<string, unknown> = {
    writeHead(status: number, reason?: unknown, fields?: unknown) {
      response.statusCode = status;
      setAll(response, typeof reason === 'string' ? fields : reason);
      sent = true;
      return response;
    },
    flushHeaders() { sent = true; },
    write(chunk: unknown, encoding?: unknown, callback?: unknown) {
      sent = true;
      if (!ended) take(chunk, encoding);
      const done = last(encoding, callback);
      if (done) process.nextTick(done);
      return true;
    },
    end(chunk?: unknown, encoding?: unknown, callback?: unknown) {
      if (ended) return response;
      if (typeof chunk !== 'function') take(chunk, encoding);
      sent = true;
      ended = true;
      if (ends) response.finished = true;
      const done = last(chunk, encoding, callback);
      if (done) response.once('finish', done);
      if (size > limit) reject(new AnswerTooLarge(`the answer has more than ${limit} bytes`));
      else resolve({ status: response.statusCode, headers: fieldsOf(response), body: Buffer.concat(chunks) });
      if (ends) process.nextTick(() => {
        response.emit('finish');
        (response as any)._closed = true;
        response.emit('close');
      });
      return response;
    },
    destroy(error?: Error) {
      reject(error ?? new Error('the response was destroyed before its end'));
      return response;
    },
  };
  Object.assign(response, own);
  Object.defineProperty(response, 'headersSent', { get: () => sent, configurable: true });
  return [...Object.keys(own), 'headersSent'];
}

function setAll(response: ServerResponse, fields: unknown): void {
  if (Array.isArray(fields)) {
    const pairs = Array.isArray(fields[0]) ? fields as [string, string][]
      : fields.flatMap((name, i) => (i % 2 === 0 ? [[name, fields[i + 1]] as [string, string]] : []));
    const names = new Set<string>();
    for (const [name, value] of pairs) {
      if (names.has(name.toLowerCase())) response.appendHeader(name, value);
      else response.setHeader(name, value);
      names.add(name.toLowerCase());
    }
  } else if (typeof fields === 'object' && fields !== null) {
    for (const [name, value] of Object.entries(fields)) if (value !== undefined) response.setHeader(name, value as string);
  }
}

/** The name of a field in its author's spelling. */
function spelt(response: ServerResponse, lower: string): string {
  return (response as any).getRawHeaderNames?.().find((name: string) => name.toLowerCase() === lower) ?? lower;
}

/** A response's fields as pairs, in their author's spelling. */
export function fieldsOf(response: ServerResponse): [string, string][] {
  return response.getHeaderNames().flatMap((lower) => {
    const value = response.getHeader(lower)!;
    const name = spelt(response, lower);
    return (Array.isArray(value) ? value : [value]).map((one): [string, string] => [name, String(one)]);
  });
}

/** All of a stream, up to `limit` bytes. */
export async function collect(stream: Readable, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk));
    size += chunks.at(-1)!.length;
    if (size > limit) throw new AnswerTooLarge(`the answer has more than ${limit} bytes`);
  }
  return Buffer.concat(chunks);
}

/** Fields that describe how one message is sent: the answer is sent whole, in a message of its own. */
export const isFraming = (name: string): boolean => /^(content-length|transfer-encoding|trailer)$/i.test(name);

/** Values by name: the form that node:http's setHeader takes. */
export function grouped(pairs: Iterable<readonly [string, string]>): Map<string, string | string[]> {
  const names = new Map<string, { name: string; values: string[] }>();
  for (const [name, value] of pairs) {
    const entry = names.get(name.toLowerCase()) ?? { name, values: [] };
    entry.values.push(value);
    names.set(name.toLowerCase(), entry);
  }
  return new Map([...names.values()].map(({ name, values }) => [name, values.length === 1 ? values[0]! : values]));
}
