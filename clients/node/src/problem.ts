// Problem documents (RFC 9457): the server's, by the word of an outcome, and those of HTTP itself.
import type { Answer } from './claim.js';
import { type Database, statement } from './database.js';
import { PROBLEM } from './statements.js';

export type Word =
  | 'in_progress' | 'mismatch' | 'expired' | 'retry_later' | 'exhausted' | 'unknown'
  | 'missing_key' | 'bad_key' | 'failed' | 'unavailable';

interface Document { type: string; title: string; status: number; detail?: string; [member: string]: unknown }

// For when the server does not answer.
const WITHOUT_SERVER: Record<Word, Document> = {
  in_progress: { type: '/problems/idempotency/in-progress', title: 'A request is outstanding for this Idempotency-Key', status: 409 },
  mismatch: { type: '/problems/idempotency/mismatch', title: 'Idempotency-Key is already used', status: 422 },
  expired: { type: '/problems/idempotency/expired', title: 'Idempotency-Key has expired', status: 412 },
  retry_later: { type: '/problems/idempotency/retry-later', title: 'The request failed and may be retried later', status: 503 },
  exhausted: { type: '/problems/idempotency/exhausted', title: 'All attempts of the request have failed', status: 500 },
  unknown: { type: '/problems/idempotency/unknown', title: 'The result of the request is not known', status: 409 },
  missing_key: { type: '/problems/idempotency/missing-key', title: 'Idempotency-Key is missing', status: 400 },
  bad_key: { type: '/problems/idempotency/bad-key', title: 'Idempotency-Key is malformed', status: 400 },
  failed: { type: '/problems/idempotency/failed', title: 'The request has failed', status: 500 },
  unavailable: {
    type: '/problems/idempotency/unavailable', title: 'The service is not available', status: 503,
    detail: 'Nothing is known of this request at the moment; repeat it with the same key.',
  },
};

/** A refusal that does not concern keys. */
export class HttpProblem extends Error {
  constructor(readonly status: number, message: string) { super(message); }
  get answer(): Answer { return documentAnswer({ type: 'about:blank', title: this.message, status: this.status }); }
}

export type Statuses = Partial<Record<Word, number>>;

/** The documents of one database, each requested once. */
export class Problems {
  readonly #known = new Map<Word, Document>();
  constructor(readonly db: Database<any>, readonly statuses: Statuses, readonly limit: number) {}

  async answer(word: Word, retryAfter: number | null = null): Promise<Answer> {
    const document: Document = { ...await this.#document(word) };
    document.status = this.statuses[word] ?? document.status;
    const seconds = retryAfter ?? (word === 'in_progress' ? 1 : null);
    if (seconds !== null) document.retry_after = Math.max(1, Math.ceil(seconds));
    return documentAnswer(document);
  }

  async #document(word: Word): Promise<Document> {
    const known = this.#known.get(word);
    if (known || word === 'unavailable') return known ?? WITHOUT_SERVER[word];
    try {
      const [row] = await statement(this.db, this.limit, PROBLEM, [word]);
      const problem = (typeof row!.problem === 'string' ? JSON.parse(row!.problem) : row!.problem) as Document;
      this.#known.set(word, problem);
      return problem;
    } catch {
      return WITHOUT_SERVER[word];
    }
  }
}

function documentAnswer(document: Document): Answer {
  const headers: [string, string][] = [['Content-Type', 'application/problem+json']];
  if (document.retry_after !== undefined) headers.push(['Retry-After', String(document.retry_after)]);
  return { status: document.status, headers, body: JSON.stringify(document) };
}
