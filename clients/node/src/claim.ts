// Answers of idem_begin as JavaScript values.
import { NOT_STORED } from './contract.js';
import { type Row, plainNames } from './database.js';

/** An answer over HTTP. Several fields of one name are several pairs. */
export interface Answer {
  readonly status: number;
  readonly headers?: Iterable<readonly [string, string]>;
  readonly body?: Uint8Array | string | null;
}

/** The identity of a claim. */
export interface Name {
  readonly key: string;
  readonly scope: string;
  readonly principal: string;
}

export type Refusal = 'in_progress' | 'mismatch' | 'expired' | 'retry_later' | 'exhausted' | 'unknown';

export interface Claim {
  readonly outcome: 'execute' | 'replay' | Refusal;
  readonly key: string;
  /** A bigint. Drivers give a string, a number or a BigInt; no code calculates with it. */
  readonly token: string | null;
  readonly attempt: number | null;
  readonly status: string | null;
  readonly statusCode: number | null;
  readonly headers: Record<string, string | string[]>;
  readonly body: Buffer | null;
  readonly bodyOmitted: boolean;
  readonly error: string | null;
  readonly recoveryPoint: string | null;
  readonly state: unknown;
  readonly retryAfter: number | null;
}

export function claimOf(raw: Row): Claim {
  const row = plainNames(raw);
  return {
    outcome: row.outcome as Claim['outcome'],
    key: String(row.key),
    token: row.token === null ? null : String(row.token),
    attempt: nullOr(Number, row.attempt),
    status: nullOr(String, row.status),
    statusCode: nullOr(Number, row.status_code),
    headers: (json(row.headers) ?? {}) as Claim['headers'],
    body: nullOr(bytes, row.body),
    bodyOmitted: row.body_omitted === true,
    error: nullOr(String, row.error),
    recoveryPoint: nullOr(String, row.recovery_point),
    state: json(row.state),
    retryAfter: nullOr(Number, row.retry_after),
  };
}

function nullOr<T>(convert: (value: any) => T, value: unknown): T | null {
  return value === null || value === undefined ? null : convert(value);
}

// Some drivers can leave JSON as text, or bytea in hexadecimal digits.
function json(value: unknown): unknown {
  return typeof value === 'string' ? JSON.parse(value) : value ?? null;
}

function bytes(value: Uint8Array | string): Buffer {
  if (typeof value !== 'string') return Buffer.from(value);
  if (value.startsWith('\\x')) return Buffer.from(value.slice(2), 'hex');
  // bytea_output = escape
  const plain = value.replace(/\\(\\|[0-7]{3})/g, (_, code: string) => (code === '\\' ? code : String.fromCharCode(parseInt(code, 8))));
  return Buffer.from(plain, 'latin1');
}

// ---- header fields ----

/** In the form of idem_complete: one member for each name; several values become an array. */
export function storedHeaders(fields: Iterable<readonly [string, string]>, except: readonly string[] = []): string {
  const left = new Set(except.map((name) => name.toLowerCase()));
  const members = new Map<string, { name: string; values: string[] }>();
  for (const [name, value] of fields) {
    const lower = name.toLowerCase();
    if (NOT_STORED.has(lower) || left.has(lower)) continue;
    const member = members.get(lower);
    if (member) member.values.push(value);
    else members.set(lower, { name, values: [value] });
  }
  // Not through an object: `__proto__` is an ordinary name here.
  const parts = [...members.values()].map(
    ({ name, values }) => `${JSON.stringify(name)}:${JSON.stringify(values.length === 1 ? values[0] : values)}`,
  );
  return `{${parts.join(',')}}`;
}

export function fieldsOf(headers: Claim['headers']): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one): [string, string] => [name, one]));
}

/** The stored answer; none if a record failed without one. */
export function replayOf(claim: Claim): Answer | null {
  if (claim.statusCode === null && claim.status !== 'completed') return null;
  const headers = fieldsOf(claim.headers);
  if (claim.bodyOmitted) headers.push(['Idempotent-Body', 'omitted']);
  return { status: claim.statusCode ?? 200, headers, body: claim.body };
}
