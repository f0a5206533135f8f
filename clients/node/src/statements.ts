// The statements of clients/README.md, and no others. Whatever the driver, every value goes as text,
// bytes or null, with a cast beside it: no driver has to guess a type, none encodes JSON once more.

export const BEGIN = `
  SELECT outcome, key, token, attempt, status, status_code, headers, body, body_omitted, error, recovery_point,
         state, retry_after
    FROM idem_begin($1::text, request => $2::jsonb,
                    fingerprint => $3::bytea, method => $4::text, path => $5::text, exclude => $6::text[],
                    scope => $7::text, principal => $8::text,
                    ttl => $9::bigint * interval '1 ms', lease => $10::bigint * interval '1 ms',
                    wait => $11::bigint * interval '1 ms', holder => $12::text, transactional => $13::boolean,
                    derive => $14::bigint * interval '1 ms')`;

export const COMPLETE = `
  SELECT idem_complete($1::text, $2::integer, $3::bytea, $4::jsonb, scope => $5::text,
                       principal => $6::text, token => $7::bigint)`;

export const FAIL = `
  SELECT idem_fail($1::text, $2::text, retryable => true, scope => $3::text, principal => $4::text,
                   token => $5::bigint, uncertain => $6::boolean)`;

export const UNKNOWN = `
  SELECT idem_unknown($1::text, $2::text, $3::text, scope => $4::text, principal => $5::text, token => $6::bigint)`;

export const EXTEND = 'SELECT idem_extend($1::text, $2::bigint, scope => $3::text, principal => $4::text)';

export const CHECKPOINT = `
  SELECT idem_checkpoint($1::text, $2::text, $3::jsonb, scope => $4::text, principal => $5::text,
                         token => $6::bigint)`;

export const ONCE = 'SELECT idem_once($1::text, scope => $2::text, principal => $3::text) AS first';

/**
 * For a COMMIT that follows the handler's statements: if one of them has failed, PostgreSQL turns the COMMIT
 * into a ROLLBACK, and most drivers do not report that.
 */
export const CHECK = 'SELECT 1';

export const PROBLEM = 'SELECT idem_problem($1::text) AS problem';

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
