// What is asked of every driver of Node.js, and how it is told.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import pg from 'pg';

const COLUMNS = ['outcome', 'key', 'scope', 'principal', 'token', 'attempt', 'status', 'status_code', 'headers', 'body',
  'body_omitted', 'error', 'recovery_point', 'state', 'holder', 'retry_after', 'created_at', 'finished_at', 'lease_until', 'expires_at'];
const PATH = String.raw`{"path":"C:\\dir"}`; // JSON with a backslash

/** Looks at what the driver has done, with another connection. */
const admin = new pg.Client();

async function look(text, values = []) {
  return (await admin.query(text, values)).rows[0];
}

/**
 * A driver: `version`; `sql`, a tag that runs a statement by itself and gives its rows; `transaction(work)`,
 * which gives `work` such a tag; `pay`, the code on the page; `place`, how the page writes a parameter;
 * `sqlstate`, where its errors have the SQLSTATE, as a path; `array`, how it passes an array, and how the
 * page writes that; `more(tries)`, what only it meets; `end`.
 */
export async function report(name, driver) {
  await admin.connect();
  await admin.query("SELECT idem_policy_set('tried', store_request => true)");
  await checkPay(driver.pay);
  const tries = new Tries(driver);
  await commonTries(tries);
  await tries.add('pool', 'an idle connection of the pool is lost', () => outlives(name));
  await driver.more?.(tries);
  console.log(JSON.stringify({ driver: `node/${name}`, version: driver.version, columns: await columns(driver.sql), tries: tries.rows }));
  await admin.end();
  await driver.end();
}

/** The statement that counts is none of them. */
export const prepared = (n) => `${n} prepared ${n === 1 ? 'statement stays' : 'statements stay'} in the session`;

/** What becomes of a process when an idle connection of its pool is lost. */
export function outlives(name) {
  const { stdout } = spawnSync(process.execPath, [fileURLToPath(new URL('lost.mjs', import.meta.url)), name], { encoding: 'utf8', timeout: 60_000 });
  return /works$|the next statement fails$/.exec(stdout)?.[0] ?? 'the process ends';
}

export const version = (name, installed) => `${name} ${installed.version}`;

// ---- the code on the page ----

async function checkPay(pay) {
  const request = { amount: 5, path: 'C:\\dir "ä"' };
  const first = await pay('pay', 'acme', request);
  assert.equal(first.status, 201);
  const again = await pay('pay', 'acme', { path: request.path, amount: 5.0 });
  assert.equal(again.status, 201);
  assert.deepEqual(again.headers, { 'Content-Type': 'application/json' });
  assert.deepEqual(Buffer.from(again.body), Buffer.from(first.body));
  assert.deepEqual(JSON.parse(Buffer.from(again.body)), { id: 1 });
  assert.equal((await pay('pay', 'acme', { ...request, amount: 6 })).status, 422);
  assert.equal((await pay('pay', 'other', request)).status, 201);
  await assert.rejects(pay('fails', 'acme', { amount: null }));
  assert.equal((await pay('fails', 'acme', request)).status, 201);
  assert.equal((await look('SELECT count(*)::int FROM payment')).count, 3);
}

// ---- what arrives ----

async function columns(sql) {
  const found = {};
  const begin = async () => {
    const [claim] = await sql`
      SELECT * FROM idem_begin('k', scope => 'columns', principal => 'acme', lease => '1 minute', holder => 'me')`;
    for (const [column, value] of Object.entries(claim)) if (value !== null) found[column] ??= typeOf(value);
    return claim;
  };
  const { token } = await begin();
  await begin();
  await sql`SELECT idem_checkpoint('k', 'charged', '{"charge": 1}', scope => 'columns', principal => 'acme', token => ${token})`;
  await sql`SELECT idem_fail('k', 'no', retryable => true, retry_after => '0', scope => 'columns', principal => 'acme', token => ${token})`;
  const second = await begin();
  await sql`SELECT idem_complete('k', 201, '{"id": 1}', '{"X-A": ["1", "2"]}', scope => 'columns', principal => 'acme',
                                 token => ${second.token})`;
  assert.equal((await begin()).outcome, 'replay');
  assert.deepEqual(Object.keys(found).sort(), [...COLUMNS].sort());
  return found;
}

function typeOf(value) {
  const kind = typeof value === 'object' ? value.constructor.name : typeof value;
  return kind === 'Object' ? 'object' : kind;
}

// ---- what is passed ----

/** Where `pooled` listens. */
export const pooler = { host: '127.0.0.1', port: Number(process.env.POOLER_PORT) };

class Tries {
  rows = [];
  #keys = 0;
  constructor(driver) { this.driver = driver; }

  key() { return `tried ${(this.#keys += 1)}`; }

  /** `{}` in `write` stands for a parameter; `work` returns what comes of it. */
  async add(about, write, work) {
    let gives;
    try {
      gives = await work(this.key(), this.driver.sql);
    } catch (error) {
      gives = this.nameOf(error);
    }
    this.rows.push({ about, write: write.replaceAll('{}', this.driver.place), gives });
  }

  /** The SQLSTATE of an error, or what the driver calls it. */
  nameOf(error) {
    const code = at(error, this.driver.sqlstate);
    if (/^[0-9A-Z]{5}$/.test(code ?? '')) return code;
    return error.code ? `\`${error.name}\`, \`${error.code}\`` : `\`${error.name}\``;
  }

  /**
   * Through a pooler in transaction mode; the other client takes the server's connection that was used last.
   * `connect` gives a client: `run` for BEGIN and COMMIT, `claim(scope)`, and `end`.
   */
  pooled(write, connect) {
    return this.add('pooler', `behind a pooler in transaction mode${write && `, ${write}`}`, async () => {
      const clients = { mine: await connect(), yours: await connect() };
      const begin = async (scope) => {
        await clients[scope].run('BEGIN');
        const claimed = await clients[scope].claim(scope);
        if (claimed !== scope) throw new AnotherStatement(`${claimed} was claimed for ${scope}`);
      };
      try {
        for (let i = 0; i < 10; i += 1) {
          for (const scope of ['mine', 'yours']) {
            await begin(scope);
            await clients[scope].run('COMMIT');
          }
          await begin('yours');
          await begin('mine');
          await clients.mine.run('COMMIT');
          await clients.yours.run('COMMIT');
        }
        return 'works';
      } catch (error) {
        if (error instanceof AnotherStatement) return `silently another's statement: ${error.message}`;
        throw error;
      } finally {
        await clients.mine.end();
        await clients.yours.end();
      }
    });
  }

  /** `run` is idem_once_each with keys: its rows. */
  keys(write, wanted, run) {
    return this.add('keys', write, async (key) => {
      const found = (await run(key)).map((row) => row.idem_once_each);
      return JSON.stringify(found) === JSON.stringify(wanted) ? 'works' : `\`${JSON.stringify(found)}\``;
    });
  }

  /** `run` begins a claim with a request: what arrived at the server. */
  request(write, wanted, run) {
    return this.add('request', write, async (key, sql) => {
      await run(key, sql);
      const { request, same } = await look(
        "SELECT request::text, fingerprint = idem_fingerprint($2::jsonb) AS same FROM idempotency.records WHERE scope = 'tried' AND key = $1",
        [key, wanted]);
      return same ? 'works' : `the request is \`${request}\``;
    });
  }

  /** `run` completes a claim with a body: what the record holds. */
  body(write, wanted, run) {
    return this.add('body', write, async (key, sql) => {
      const [{ token }] = await sql`SELECT token FROM idem_begin(${key}, scope => 'tried', lease => '1 minute')`;
      await run(key, token, sql);
      const { body } = await look("SELECT body FROM idem_get($1, 'tried')", [key]);
      return body.equals(Buffer.from(wanted)) ? 'works' : `the body is \`${body}\``;
    });
  }

  headers(write, run) {
    return this.add('headers', write, async (key, sql) => {
      const [{ token }] = await sql`SELECT token FROM idem_begin(${key}, scope => 'tried', lease => '1 minute')`;
      await run(key, token, sql);
      const { headers } = await look("SELECT headers FROM idem_get($1, 'tried')", [key]);
      return JSON.stringify(headers) === '{"X-A":["1","2"]}' ? 'works' : `the headers are \`${JSON.stringify(headers)}\``;
    });
  }

  lease(write, run) {
    return this.add('lease', write, async (key, sql) => {
      await run(key, sql);
      const { seconds } = await look(
        "SELECT round(extract(epoch FROM lease_until - created_at))::int AS seconds FROM idempotency.records WHERE scope = 'tried' AND key = $1", [key]);
      return `${seconds} seconds`;
    });
  }
}

class AnotherStatement extends Error {}

const at = (value, path) => path.split(/\W+/).slice(1).reduce((inner, name) => inner?.[name], value);

async function commonTries(tries) {
  const { transaction, sqlstate } = tries.driver;
  const uuid = randomUUID();
  const object = { amount: 5, path: 'C:\\dir' };
  const json = JSON.stringify(object);

  await tries.add('key', '`{}` with `crypto.randomUUID()`', async (key, sql) => {
    const [claim] = await sql`SELECT outcome, key FROM idem_begin(${uuid}, scope => 'tried')`;
    return claim.outcome === 'execute' && claim.key === uuid ? 'works' : claim.outcome;
  });

  const { sql: tag, array = { write: '`{}` with an array', of: (keys) => keys } } = tries.driver;
  const each = (keys) => (scope) => tag`SELECT idem_once_each(${array.of(keys)}, scope => ${scope})`;
  await tries.keys(array.write, ['b', 'a'], each(['b', 'a', 'b']));
  await tries.keys('the same, empty', [], each([]));
  await tries.keys('the same, with a `null` in it', ['b'], each(['b', null]));

  const begin = (value) => (key, sql) => sql`SELECT outcome FROM idem_begin(${key}, request => ${value}, scope => 'tried')`;
  const beginJsonb = (value) => (key, sql) => sql`SELECT outcome FROM idem_begin(${key}, request => ${value}::jsonb, scope => 'tried')`;
  await tries.request('`{}::jsonb` with `JSON.stringify(object)`', json, beginJsonb(json));
  await tries.request('`{}` with `JSON.stringify(object)`', json, begin(json));
  await tries.request('`{}::jsonb` with an object', json, beginJsonb(object));
  await tries.request('`{}::jsonb` with an array', '[1,2]', beginJsonb([1, 2]));
  await tries.request('`{}::jsonb` with a `Buffer`', json, beginJsonb(Buffer.from(json)));

  await tries.request('`{}::jsonb` with `JSON.stringify(undefined)`', json, beginJsonb(JSON.stringify(undefined)));
  // A number of 27 digits, and the next.
  const numbers = ['{"n": 123456789012345678901234567}', '{"n": 123456789012345678901234568}'];
  const other = (convert) => async (key, sql) => {
    const claims = numbers.map((text) => () =>
      sql`SELECT outcome, token FROM idem_begin(${key}, request => ${convert(text)}::text::jsonb, scope => 'tried')`);
    const [{ token }] = await claims[0]();
    await sql`SELECT idem_complete(${key}, 201, scope => 'tried', token => ${token})`;
    const [{ outcome }] = await claims[1]();
    return `\`${outcome}\` for the other number`;
  };
  await tries.add('request', 'numbers of 27 digits that have been through `JSON.parse`', other((text) => JSON.stringify(JSON.parse(text))));
  await tries.add('request', 'numbers of 27 digits in the text of the body as it came', other((text) => text));

  const complete = (value) => (key, token, sql) => sql`SELECT idem_complete(${key}, 201, ${value}, scope => 'tried', token => ${token})`;
  const completeBytea = (value) => (key, token, sql) => sql`SELECT idem_complete(${key}, 201, ${value}::bytea, scope => 'tried', token => ${token})`;
  const completeJsonb = (value) => (key, token, sql) => sql`SELECT idem_complete(${key}, 201, ${value}::jsonb, scope => 'tried', token => ${token})`;
  const completeText = (value) => (key, token, sql) => sql`SELECT idem_complete(${key}, 201, ${value}::text, scope => 'tried', token => ${token})`;
  const bytes = Buffer.from([0, 255, 92, 39]);
  await tries.body('`{}::bytea` with a `Buffer`', bytes, completeBytea(bytes));
  await tries.body('`{}` with a `Buffer`', bytes, complete(bytes));
  await tries.body('`{}::text` with a string', PATH, completeText(PATH));
  await tries.body(`\`{}::bytea\` with the string \`${PATH}\``, PATH, completeBytea(PATH));
  await tries.body(`\`{}::jsonb\` with the string \`${PATH}\``, PATH, completeJsonb(PATH));

  const headers = (value) => (key, token, sql) =>
    sql`SELECT idem_complete(${key}, 201, NULL::text, ${value}::jsonb, scope => 'tried', token => ${token})`;
  await tries.headers("`{}::jsonb` with `{ 'X-A': ['1', '2'] }`", headers({ 'X-A': ['1', '2'] }));
  await tries.headers("`{}::jsonb` with `JSON.stringify({ 'X-A': ['1', '2'] })`", headers('{"X-A":["1","2"]}'));
  await tries.headers("`{}::jsonb` with `{ 'Content-Length': 12 }`", headers({ 'Content-Length': 12 }));

  const lease = (value) => (key, sql) => sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried', lease => ${value})`;
  await tries.lease("`lease => {} * interval '1 ms'` with `30000`", (key, sql) =>
    sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried', lease => ${30000} * interval '1 ms')`);
  await tries.lease("`lease => {}` with `'30 s'`", lease('30 s'));
  await tries.lease('`lease => {}` with `30000`', lease(30000));

  const principal = (value) => (key, sql) =>
    sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried', principal => ${value})`.then(([claim]) => claim.outcome);
  await tries.add('principal', '`{}` with `null`', principal(null));
  await tries.add('principal', '`{}` with `undefined`', principal(undefined));

  const token = (convert) => async (key, sql) => {
    const [claim] = await sql`SELECT token FROM idem_begin(${key}, scope => 'tried', lease => '1 minute')`;
    const [row] = await sql`SELECT idem_complete(${key}, 201, scope => 'tried', token => ${convert(claim.token)}) AS done`;
    return row.done === true ? 'works' : `returns ${row.done}`;
  };
  await tries.add('token', '`{}` as it arrived', token((t) => t));
  await tries.add('token', '`{}` with `Number(token)`', token(Number));

  await tries.add('record', '`SELECT idem_begin(...) AS claim`', async (key, sql) => {
    const [{ claim }] = await sql`SELECT idem_begin(${key}, scope => 'tried') AS claim`;
    return `a \`${typeOf(claim)}\``;
  });

  await tries.add('autocommit', '`idem_begin`, then `idem_complete` without a token, each by itself', async (key, sql) => {
    await sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried')`;
    const error = await sql`SELECT idem_complete(${key}, 201, scope => 'tried')`.then(() => undefined, (e) => e);
    const { status } = await look("SELECT status FROM idem_get($1, 'tried')", [key]);
    return `${error ? tries.nameOf(error) : 'works'}, and the key stays \`${status}\``;
  });

  await tries.add('commit', 'an error that is caught inside of the transaction, which then ends well', async (key) => {
    await transaction(async (sql) => {
      await sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried')`;
      await sql`SELECT 1 / 0`.catch(() => {});
    });
    const record = await look("SELECT status FROM idem_get($1, 'tried')", [key]);
    return `no error, and ${record.status ? 'it is committed' : 'nothing is committed'}`;
  });

  await tries.add('error', `\`${sqlstate}\` with a wrong token`, async (key, sql) => {
    await sql`SELECT outcome FROM idem_begin(${key}, scope => 'tried', lease => '1 minute')`;
    const error = await sql`SELECT idem_complete(${key}, 201, scope => 'tried', token => 1)`.then(() => undefined, (e) => e);
    return `\`${at(error, sqlstate)}\``;
  });

  await tries.add('prepared', 'the same statement ten times', async () => transaction(async (sql) => {
    for (let i = 0; i < 10; i += 1) await sql`SELECT outcome FROM idem_begin(${`prepared ${i}`}, scope => 'ten times')`;
    const [row] = await sql`SELECT count(*)::int AS n FROM pg_prepared_statements WHERE statement LIKE 'SELECT outcome%''ten times''%'`;
    return prepared(row.n);
  }));
}
