import type { Sql } from 'postgres';

export { BEGIN, CHECKPOINT, COMPLETE, DUE, EXTEND, FAIL, ONCE, PROBLEM, UNKNOWN } from './contract.js';

// Whatever the driver, every value goes as text,
// bytes or null, with a cast beside it: no driver has to guess a type, none encodes JSON once more.

/**
 * For a COMMIT that follows the handler's statements: if one of them has failed, PostgreSQL turns the COMMIT
 * into a ROLLBACK, and most drivers do not report that.
 */
export const CHECK = 'SELECT 1';

/** A parameter: text, or bytes where the cast is to bytea. */
export type Value = string | Buffer | null;

export const bytea = (bytes: Uint8Array | null): Value =>
  bytes === null ? null : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** For drivers without numbered parameters: a value for each place. */
export function positional(text: string, values: readonly Value[]): { text: string; values: Value[] } {
  const placed: Value[] = [];
  return {
    text: text.replace(/\$(\d+)/g, (_, n: string) => {
      placed.push(values[Number(n) - 1]!);
      return '?';
    }),
    values: placed,
  };
}

export const number = (value: number | null | undefined): Value =>
  value === null || value === undefined ? null : String(Math.round(value));

export const textArray = (items: readonly string[]): Value =>
  `{${items.map((item) => `"${item.replace(/[\\"]/g, '\\$&')}"`).join(',')}}`;

const TEXT = 25; // the type's oid

/** postgres.js would encode a string for jsonb once more, so texts declare their type. */
export const asTexts = (sql: Sql<any>, values: Value[]): any[] =>
  values.map((value) => (typeof value === 'string' ? sql.typed(value, TEXT) : value));
