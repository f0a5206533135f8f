// Problem documents (RFC 9457): the server's, by the word of an outcome, and those of HTTP itself.
import type { Answer } from './claim.js';
import { type Database, statement } from './database.js';
import { PROBLEM, PROBLEMS } from './contract.js';

export type Word = keyof typeof PROBLEMS;

interface Document { type: string; title: string; status: number; detail?: string; [member: string]: unknown }

function local(word: Word): Document {
  const { status, title } = PROBLEMS[word];
  return { type: `/problems/idempotency/${word.replaceAll('_', '-')}`, title, status };
}

/** A refusal that does not concern keys. */
export class HttpProblem extends Error {
  constructor(readonly word: Word, readonly detail?: string) { super(detail ?? PROBLEMS[word].title); }
  get answer(): Answer { return documentAnswer(this.detail ? { ...local(this.word), detail: this.detail } : local(this.word)); }
}

/** The document of an error of the handler, which has its own status. */
export const plainProblem = (status: number, title: string): Answer => documentAnswer({ type: 'about:blank', title, status });

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
    if (known || PROBLEMS[word].local) return known ?? local(word);
    try {
      const [row] = await statement(this.db, this.limit, PROBLEM, [word]);
      const problem = (typeof row!.problem === 'string' ? JSON.parse(row!.problem) : row!.problem) as Document;
      this.#known.set(word, problem);
      return problem;
    } catch {
      return local(word);
    }
  }
}

function documentAnswer(document: Document): Answer {
  const headers: [string, string][] = [['Content-Type', 'application/problem+json']];
  if (document.retry_after !== undefined) headers.push(['Retry-After', String(document.retry_after)]);
  return { status: document.status, headers, body: JSON.stringify(document) };
}
