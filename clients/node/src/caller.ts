// For those who call a service with idempotency keys: one key for all sendings of a request, until its answer is final.
import { newKey, quoteKey } from './key.js';

export { newKey };

/** Times are milliseconds. */
export interface CallOptions {
  /** Of an earlier `call` for the same request, by the application's own record. Else a new one. */
  key?: string;
  /** Stores the key before the first sending: after a crash the application goes on with the same one. */
  store?: (key: string) => unknown;
  keyHeader?: string;
  /** How often the request is sent. */
  attempts?: number;
  /** The longest first pause; each further one may be twice as long, up to `cap`. */
  base?: number;
  cap?: number;
  /** The limit for one sending. */
  timeout?: number;
  /** No pause begins that would end later than this after the first sending. */
  giveUpAfter?: number;
  signal?: AbortSignal;
}

/** The answer is not known yet. A later `call` with the same key goes on; another key could do the work twice. */
export class NotFinal extends Error {
  override name = 'NotFinal';
  constructor(readonly key: string, readonly response: Response | null, cause: unknown) {
    super(`no final answer under the key ${key}`, { cause });
  }
}

const PROBLEM = /\/problems\/idempotency\/([a-z-]+)$/;

/** Whether a repeat with the same key would get this answer again. Rejects if the connection has cut it short. */
export async function isFinal(response: Response): Promise<boolean> {
  if (response.headers.get('Idempotent-Replayed') === 'true') return true;
  switch (await problemOf(response)) {
    case 'in-progress': case 'unknown': case 'retry-later': case 'unavailable': case 'handler-late': return false;
    case 'failed': case 'exhausted': return true;
    default: return response.status < 500 && ![408, 425, 429].includes(response.status);
  }
}

async function problemOf(response: Response): Promise<string | null> {
  if (!response.headers.get('Content-Type')?.startsWith('application/problem+json')) return null;
  const text = await response.clone().text();
  try {
    const { type } = JSON.parse(text) as { type?: unknown };
    return PROBLEM.exec(String(type))?.[1] ?? null;
  } catch {
    return null;
  }
}

/**
 * Sends a request until its answer is final: with one key, after pauses that grow (exponential backoff, full jitter)
 * and are no shorter than Retry-After. `send` gets the key's header field, and makes the same request each time.
 */
export async function call(
  send: (headers: Record<string, string>, signal: AbortSignal) => Promise<Response>, options: CallOptions = {},
): Promise<Response> {
  const { key = newKey(), attempts = 8, base = 200, cap = 30_000, timeout = 30_000, giveUpAfter = 300_000 } = options;
  await options.store?.(key);
  const end = performance.now() + giveUpAfter;
  for (let sent = 1; ; sent += 1) {
    options.signal?.throwIfAborted();
    let response: Response | null = null;
    let failure: unknown;
    const alive = setInterval(() => {}, 1000); // the signal's own timer lets a process end
    try {
      const limit = AbortSignal.timeout(timeout);
      const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
      response = await send({ [options.keyHeader ?? 'Idempotency-Key']: quoteKey(key) }, signal);
      if (await isFinal(response)) return response;
    } catch (error) {
      options.signal?.throwIfAborted();
      failure = error; // no answer: it may have taken effect
    } finally {
      clearInterval(alive);
    }
    const delay = (retryAfter(response) ?? 0) + Math.random() * Math.min(cap, base * 2 ** (sent - 1));
    if (sent >= attempts || performance.now() + delay > end) throw new NotFinal(key, response, failure);
    await response?.body?.cancel().catch(() => {});
    await sleep(delay, options.signal);
  }
}

/** Seconds or a date, as milliseconds from now. */
function retryAfter(response: Response | null): number | null {
  const field = response?.headers.get('Retry-After');
  if (!field) return null;
  const delay = /^\d+$/.test(field) ? Number(field) * 1000 : Date.parse(field) - Date.now();
  return Number.isNaN(delay) ? null : Math.max(0, delay);
}

function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => { clearTimeout(timer); reject(signal!.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener('abort', onAbort); resolve(); }, milliseconds);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
