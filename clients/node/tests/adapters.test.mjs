// The same behaviour with every driver.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { createRequire } from 'node:module';
import { PrismaPg } from '@prisma/adapter-pg';
import { drizzle as drizzleOnPg } from 'drizzle-orm/node-postgres';
import { drizzle as drizzleOnPostgres } from 'drizzle-orm/postgres-js';
import { sql as drizzleSql } from 'drizzle-orm';
import knexLibrary from 'knex';
import { CamelCasePlugin, Kysely, PostgresDialect, sql as kyselySql } from 'kysely';
import pgLibrary from 'pg';
import postgresLibrary from 'postgres';
import { DataSource } from 'typeorm';
import { HandlerLate, NothingHappened, Rejection, leased, once, transactionally, worker } from 'idempotency-postgres';
import { drizzle } from 'idempotency-postgres/drizzle';
import { knex } from 'idempotency-postgres/knex';
import { kysely, tolerant } from 'idempotency-postgres/kysely';
import { pg } from 'idempotency-postgres/pg';
import { postgres } from 'idempotency-postgres/postgres';
import { prisma } from 'idempotency-postgres/prisma';
import { typeorm } from 'idempotency-postgres/typeorm';
import { Counter } from './counter.mjs';
import { testDatabase } from './database.mjs';

const require = createRequire(import.meta.url);
let db;
let counter;
let at; // where the libraries connect to
before(async () => {
  db = await testDatabase('idem_node_adapters');
  counter = new Counter(db.host, db.port);
  at = { host: '127.0.0.1', port: await counter.listen(), user: db.user, database: db.name };
});
after(async () => { counter.close(); await db.drop(); });

const INSERT = 'INSERT INTO effect (note) VALUES ';
const quoted = (note) => `('${note}')`;

// Each: a database, how its transaction inserts, and its end.
const drivers = {
  pg: () => {
    const pool = new pgLibrary.Pool(at);
    return { database: pg(pool), insert: (tx, note) => tx.query(`${INSERT}($1)`, [note]), end: () => pool.end() };
  },
  'pg with its pipeline': () => {
    const pool = new pgLibrary.Pool({ ...at, pipeline: true });
    return { database: pg(pool), insert: (tx, note) => tx.query(`${INSERT}($1)`, [note]), end: () => pool.end() };
  },
  'postgres.js': () => {
    const sql = postgresLibrary({ ...at, max: 5 });
    return { database: postgres(sql), insert: (tx, note) => tx`INSERT INTO effect (note) VALUES (${note})`, end: () => sql.end() };
  },
  'postgres.js in camel case': () => {
    const sql = postgresLibrary({ ...at, max: 5, transform: postgresLibrary.camel });
    return { database: postgres(sql), insert: (tx, note) => tx`INSERT INTO effect (note) VALUES (${note})`, end: () => sql.end() };
  },
  knex: () => {
    const k = knexLibrary({ client: 'pg', connection: at });
    return { database: knex(k), insert: (trx, note) => trx('effect').insert({ note }), end: () => k.destroy() };
  },
  kysely: () => {
    const k = new Kysely({ dialect: new PostgresDialect({ pool: tolerant(new pgLibrary.Pool(at)) }), plugins: [new CamelCasePlugin()] });
    return { database: kysely(k), insert: (trx, note) => kyselySql`INSERT INTO effect (note) VALUES (${note})`.execute(trx), end: () => k.destroy() };
  },
  'drizzle on pg': () => {
    const pool = new pgLibrary.Pool(at);
    return {
      database: drizzle(drizzleOnPg(pool)),
      insert: (tx, note) => tx.execute(drizzleSql`INSERT INTO effect (note) VALUES (${note})`), end: () => pool.end(),
    };
  },
  'drizzle on postgres.js': () => {
    const sql = postgresLibrary({ ...at, max: 5 });
    return {
      database: drizzle(drizzleOnPostgres(sql)),
      insert: (tx, note) => tx.execute(drizzleSql`INSERT INTO effect (note) VALUES (${note})`), end: () => sql.end(),
    };
  },
  typeorm: async () => {
    const source = new DataSource({ type: 'postgres', ...at, username: at.user });
    await source.initialize();
    return { database: typeorm(source), insert: (manager, note) => manager.query(`${INSERT}($1)`, [note]), end: () => source.destroy() };
  },
  prisma: () => {
    const { PrismaClient } = require('../node_modules/.prisma-test/index.js');
    const client = new PrismaClient({ adapter: new PrismaPg(at) });
    const patience = { timeout: 60_000, maxWait: 60_000 }; // by default it ends a transaction after 5 s
    return { database: prisma(client, patience), insert: (tx, note) => tx.effect.create({ data: { note } }), end: () => client.$disconnect() };
  },
};

/** A statement without parameters, by whatever the library calls that. */
const raw = async (tx, text) => {
  if (tx.$executeRawUnsafe) return tx.$executeRawUnsafe(text);
  if (tx.unsafe) return tx.unsafe(text);
  if (tx.raw) return tx.raw(text);
  if (tx.executeQuery) return kyselySql.raw(text).execute(tx);
  if (tx.execute) return tx.execute(drizzleSql.raw(text));
  return tx.query(text);
};

// For the database, of an execution with one statement of the handler, and of a replay: README.md says why.
const WAITS = { pg: [3, 1], 'pg with its pipeline': [3, 1], 'postgres.js': [4, 2], 'postgres.js in camel case': [4, 2], 'drizzle on postgres.js': [6, 2] };

const BODY = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
const ANSWER = { status: 201, headers: [['X-Several', 'a'], ['X-Several', 'b, "c"\\'], ['X-One', 'ä']], body: BODY };
const JSON_TEXT = '{"b": 1.50, "a": "C:\\\\dir \\"ä\\"", "n": 9007199254740993}';

for (const [name, make] of Object.entries(drivers)) {
  describe(name, () => {
    let driver;
    const run = (key, work, more = {}, settings = {}) =>
      transactionally(driver.database, { key, scope: 's', principal: 'p', json: JSON_TEXT, ...more }, work, settings);
    before(async () => { driver = await make(); });
    after(() => driver.end?.());
    const key = (word) => `${name} ${word}`;

    test('the first call executes, and a repeat gets its answer', async () => {
      const k = key('first');
      const first = await run(k, async (tx, claim) => {
        assert.equal(claim.attempt, 1);
        await driver.insert(tx, k);
        return ANSWER;
      });
      assert.equal(first.outcome, 'executed');
      const again = await run(k, () => assert.fail('executed twice'), { json: '{"n":9007199254740993,"a":"C:\\\\dir \\u0022\\u00e4\\u0022","b":15e-1}' });
      assert.equal(again.outcome, 'replay');
      assert.equal(again.answer.status, 201);
      assert.deepEqual(again.answer.body, BODY);
      assert.deepEqual([...again.answer.headers].sort(), [['X-One', 'ä'], ['X-Several', 'a'], ['X-Several', 'b, "c"\\']]);
      assert.equal(await db.effects(k), 1);
    });

    test('another payload is a mismatch', async () => {
      const k = key('mismatch');
      await run(k, async () => ANSWER);
      assert.equal((await run(k, () => assert.fail(), { json: '{"n": 9007199254740992}' })).outcome, 'mismatch');
    });

    test('a digest, and excluded fields', async () => {
      const k = key('digest');
      const fingerprint = Buffer.from([0, 92, 255, 39]);
      await run(k, async () => ANSWER, { json: null, fingerprint });
      assert.equal((await run(k, () => assert.fail(), { json: null, fingerprint })).outcome, 'replay');
      assert.equal((await run(k, () => assert.fail(), { json: null, fingerprint: Buffer.from([0]) })).outcome, 'mismatch');
      const exclude = ['ts', JSON.stringify('odd " \\ , {name}')];
      await run(`${k} 2`, async () => ANSWER, { json: '{"ts": 1}', exclude });
      assert.equal((await run(`${k} 2`, () => assert.fail(), { json: '{"ts": 2}', exclude })).outcome, 'replay');
    });

    test('what is thrown rolls back and comes out as it is', async () => {
      const k = key('thrown');
      class Mine extends Error {}
      await assert.rejects(run(k, async (tx) => {
        await driver.insert(tx, k);
        throw new Mine('no');
      }), Mine);
      assert.equal(await db.effects(k), 0);
      assert.equal(await db.record(k), undefined);
    });

    test('a handler that commits is refused', async () => {
      const k = key('commits');
      await assert.rejects(run(k, async (tx) => {
        await driver.insert(tx, k);
        await raw(tx, 'COMMIT');
        return ANSWER;
      }));
      assert.deepEqual([await db.effects(k), await db.record(k)], [0, undefined]);
    });

    test('waits for the database', async () => {
      const k = key('waits');
      const count = async (call) => {
        await counter.idle(); // ROLLBACKs of before
        counter.waits = 0;
        await call();
        return counter.waits;
      };
      const execute = (n) => run(`${k} ${n}`, async (tx) => { await driver.insert(tx, k); return ANSWER; });
      for (let n = 0; n < 5; n += 1) await execute(n); // statements are prepared
      const counted = [await count(() => execute(5)), await count(() => execute(5))];
      assert.deepEqual(counted, WAITS[name] ?? [5, 2]);
      const step = (n) => leased(driver.database, { key: `${k} ${n}`, scope: 's', principal: 'p' }, async (claim) => {
        await claim.step('one', () => 1);
        return ANSWER;
      });
      for (let n = 10; n < 15; n += 1) await step(n);
      assert.equal(await count(() => step(15)), 3);
    });

    test('a rejection rolls back, and its answer is replayed', async () => {
      const k = key('rejection');
      const result = await run(k, async (tx) => {
        await driver.insert(tx, k);
        throw new Rejection({ status: 409, headers: [['X-Why', 'empty']], body: 'no' });
      });
      assert.deepEqual([result.outcome, result.answer.status, await db.effects(k)], ['executed', 409, 0]);
      const again = await run(k, () => assert.fail());
      assert.deepEqual([again.outcome, again.answer.status, String(again.answer.body)], ['replay', 409, 'no']);
    });

    test('the transaction cannot be used when it is over', async () => {
      const k = key('late');
      let kept;
      await run(k, async (tx) => { kept = tx; return ANSWER; });
      await assert.rejects(async () => driver.insert(kept, k), /has ended|already closed/);
      assert.equal(await db.effects(k), 0);
    });

    test('work that does not end is given up', async () => {
      const k = key('never');
      const never = run(k, async (tx) => { await driver.insert(tx, k); return new Promise(() => {}); }, {}, { handlerTimeout: 200 });
      await assert.rejects(never, HandlerLate);
      assert.equal((await run(k, async () => ANSWER, { wait: 60_000 })).outcome, 'executed');
      assert.equal(await db.effects(k), 0);
    });

    test('an answer that is not kept rolls back', async () => {
      const k = key('not kept');
      const result = await run(k, async (tx) => {
        await driver.insert(tx, k);
        return { status: 503 };
      });
      assert.equal(result.outcome, 'not_kept');
      assert.equal(await db.effects(k), 0);
      assert.equal(await db.record(k), undefined);
    });

    test('a serialization failure is tried again', async () => {
      const k = key('serialization');
      let runs = 0;
      const result = await run(k, async (tx) => {
        runs += 1;
        await driver.insert(tx, k);
        if (runs < 3) await raw(tx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
        return ANSWER;
      });
      assert.deepEqual([result.outcome, runs, await db.effects(k)], ['executed', 3, 1]);
    });

    // postgres.js 3.4.9 writes to a lost connection, in a timer whose exception cannot be caught:
    // porsager/postgres#1208
    const skip = name.includes('postgres.js') && 'the driver ends the process';
    test('a killed connection is tried again', { skip }, async () => {
      const k = key('killed');
      let runs = 0;
      const result = await run(k, async (tx) => {
        runs += 1;
        await driver.insert(tx, k);
        if (runs === 1) await raw(tx, 'SELECT pg_terminate_backend(pg_backend_pid())');
        return ANSWER;
      }, { wait: 60_000 }); // the client notices before the server has freed the key
      assert.deepEqual([result.outcome, runs, await db.effects(k)], ['executed', 2, 1]);
    });

    test('a worker: the effect with the end of the claim, the request parsed', async () => {
      const k = key('worked');
      const scope = `worked ${name}`;
      await db.pool.query("SELECT idem_policy_set($1, store_request => true, retry_base => '0')", [scope]);
      await db.queue(k, scope, { a: ['"', 1.5] });
      const channel = driver.database.listen && `"${name}"`;
      const seen = [];
      const working = worker(driver.database, { scope, poll: channel ? 600_000 : 20, channel, onError: ({ message }) => seen.push(message) }, async (work) => {
        seen.push(work.request, work.attempt);
        await driver.insert(work.client, k);
        if (work.attempt === 2) throw new Error('the first time');
        return work.key === k ? ANSWER : undefined;
      });
      const ended = working.run();
      await db.until(async () => (await db.record(k)).status === 'completed');
      await db.queue(`${k} 2`, scope, null);
      if (channel) await db.pool.query('SELECT pg_notify($1, $2)', [channel, '']);
      await db.until(async () => (await db.record(`${k} 2`)).status === 'completed');
      await working.stop();
      await ended;
      assert.deepEqual(seen.slice(0, 5), [{ a: ['"', 1.5] }, 2, 'the first time', { a: ['"', 1.5] }, 3]);
      assert.deepEqual([await db.effects(k), (await db.record(k)).status_code], [2, 201]);
    });

    test('leased: steps, failure, recovery, answer', async () => {
      const k = key('leased');
      const request = { key: k, scope: 's', principal: 'p', json: '{}' };
      let charges = 0;
      const work = (fails) => async (claim) => {
        const charge = await claim.step('charged', async () => {
          charges += 1;
          return { id: 'ch_"1"\\', bytes: null };
        });
        assert.deepEqual(charge, { id: 'ch_"1"\\', bytes: null });
        if (fails) throw new Error("mail server's down");
        return ANSWER;
      };
      await assert.rejects(leased(driver.database, request, work(true)), /mail server/);
      assert.equal((await db.record(k)).error, "mail server's down");
      await db.pool.query("SELECT idem_resolve($1, 'release', scope => 's', principal => 'p', even_if_running => true)", [k]);
      const result = await leased(driver.database, request, async (claim) => {
        assert.deepEqual([claim.attempt, claim.recoveryPoint], [2, 'charged']);
        return work(false)(claim);
      });
      assert.deepEqual([result.outcome, charges], ['executed', 1]);
      assert.deepEqual((await leased(driver.database, request, () => assert.fail())).answer.body, BODY);
    });

    test('leased: steps that are done at once are all remembered', async () => {
      const k = key('at-once');
      const names = ['a', 'b', 'c', 'd'];
      const work = (result) => (claim) => Promise.all(names.map((name) => claim.step(name, () => result(name))));
      await assert.rejects(leased(driver.database, { key: k, scope: 's', principal: 'p' }, async (claim) => {
        await work((name) => `${name} is done`)(claim);
        throw new Error('after the steps');
      }), /after the steps/);
      await db.pool.query("SELECT idem_resolve($1, 'release', scope => 's', principal => 'p', even_if_running => true)", [k]);
      await leased(driver.database, { key: k, scope: 's', principal: 'p' }, async (claim) => {
        assert.deepEqual(await work(() => 'again')(claim), names.map((name) => `${name} is done`));
        return ANSWER;
      });
    });

    test('leased: unknown keeps error and reference, and the answer is not stored', async () => {
      const k = key('unknown');
      const request = { key: k, scope: 's', principal: 'p' };
      const result = await leased(driver.database, request, async (claim) => {
        await claim.unknown('time\0out', 'ch_"1"\\');
        await claim.unknown('a second call', null);
        await assert.rejects(claim.step('late', () => assert.fail()), /ended as unknown/);
        return ANSWER;
      });
      assert.deepEqual([result.outcome, result.answer], ['not_kept', ANSWER]);
      const { status, error, reference } = await db.record(k);
      assert.deepEqual({ status, error, reference }, { status: 'unknown', error: 'timeout', reference: 'ch_"1"\\' });
      const again = await leased(driver.database, request, () => assert.fail());
      assert.deepEqual([again.outcome, again.claim.retryAfter], ['unknown', 60]);
    });

    test('leased: unknown without a wait for it, and an exception after it', async () => {
      const k = key('unknown, thrown');
      await assert.rejects(leased(driver.database, { key: k, scope: 's', principal: 'p' }, async (claim) => {
        claim.unknown();
        throw new NothingHappened('too late to say');
      }), NothingHappened);
      const { status, error } = await db.record(k);
      assert.deepEqual({ status, error }, { status: 'unknown', error: null });
    });

    test('leased: a failure is uncertain, unless nothing has happened', async () => {
      const scope = `uncertain ${name}`;
      await db.pool.query("SELECT idem_policy_set($1, on_lease_expiry => 'unknown')", [scope]);
      const fail = async (k, work) => {
        await leased(driver.database, { key: k, scope, principal: 'p' }, work).catch(() => {});
        return (await db.record(k)).status;
      };
      assert.equal(await fail(key('raised'), () => { throw new Error('timeout'); }), 'unknown');
      assert.equal(await fail(key('5xx'), () => ({ status: 502 })), 'unknown');
      assert.equal(await fail(key('nothing'), () => { throw new NothingHappened('no connection'); }), 'retryable');
    });

    test('a derived key', async () => {
      const scope = `derived ${name}`;
      await db.pool.query("SELECT idem_policy_set($1, retention => '1 day')", [scope]);
      const run = (json, more) => transactionally(driver.database, { key: null, scope, principal: 'p', json, derive: 60_000, ...more }, async () => ANSWER);
      const first = await run('{"a": 1, "b": 2}');
      assert.equal(first.outcome, 'executed');
      const again = await run('{"b": 2.0, "a": 1}');
      assert.deepEqual([again.outcome, again.claim.key], ['replay', first.claim.key]);
      assert.equal((await run('{"a": 2}')).outcome, 'executed');
      const digest = { json: null, fingerprint: Buffer.from([0, 255]) };
      assert.equal((await leased(driver.database, { key: null, scope, principal: 'p', derive: 60_000, ...digest }, async () => ANSWER)).outcome, 'executed');
      assert.equal((await run(null, digest)).outcome, 'replay');
      await assert.rejects(run('{}', { derive: null }), /needs `key` or `derive`/);
    });

    test('leased: heartbeats keep it', async (t) => {
      const k = key('heartbeat');
      // A beat that is due after 20 s comes sooner, so that the lease may be long.
      const { setTimeout: after } = globalThis;
      t.mock.method(globalThis, 'setTimeout', (call, pause, ...more) => after(call, pause > 19_000 && pause <= 20_000 ? 200 : pause, ...more));
      const result = await leased(driver.database, { key: k, scope: 's', principal: 'p' }, async (claim) => {
        const { rows: [{ lease_until: first }] } = await db.pool.query('SELECT lease_until FROM idempotency.records WHERE key = $1', [k]);
        for (;;) {
          const { lease_until: now } = await db.record(k);
          if (now > first) break;
          claim.signal.throwIfAborted();
          await new Promise((done) => { setTimeout(done, 20); });
        }
        return ANSWER;
      }, { lease: 60_000 });
      assert.equal(result.outcome, 'executed');
    });

    test('once', async () => {
      const k = key('once');
      const take = () => once(driver.database, { key: k, scope: 's', principal: 'p' }, (tx) => driver.insert(tx, k));
      assert.deepEqual([await take(), await take(), await db.effects(k)], [true, false, 1]);
    });

    test('once: where an error was hidden, nothing is done, and it says so', async () => {
      const k = key('hidden');
      const take = (hides) => once(driver.database, { key: k, scope: 's', principal: 'p' }, async (tx) => {
        await driver.insert(tx, k);
        if (hides) await raw(tx, 'SELECT 1/0').catch(() => {});
      });
      await assert.rejects(take(true));
      assert.deepEqual([await take(false), await db.effects(k)], [true, 1]);
    });
  });
}

describe('prepared statements of pg', () => {
  const ours = () => counter.parsed.filter((name) => name.startsWith('idempotency_')).length;
  const unnamed = () => counter.parsed.filter((name) => name === '').length;
  let pool;
  let database;
  const run = (key, work = async () => ANSWER) => transactionally(database, { key, scope: 's', principal: 'p', json: '{}' }, work);
  const step = (key) => leased(database, { key, scope: 's', principal: 'p' }, async (claim) => { await claim.step('one', () => 1); return ANSWER; });
  const make = (max) => {
    pool = new pgLibrary.Pool({ ...at, max });
    database = pg(pool);
    counter.parsed = [];
  };
  afterEach(() => pool.end());

  test('each is parsed once for a connection', async () => {
    make(1);
    for (let n = 0; n < 4; n += 1) {
      await run(`parsed ${n}`);
      await step(`parsed, leased ${n}`);
    }
    assert.deepEqual([ours(), unnamed()], [5, 0]); // BEGIN, idem_begin, idem_complete, COMMIT, idem_checkpoint
    const { rows } = await pool.query("SELECT statement FROM pg_prepared_statements WHERE name LIKE 'idempotency_%'");
    assert.equal(rows.length, 5);
  });

  test('one that fails at first does not count as unknown', async () => {
    make(1);
    await assert.rejects(transactionally(database, { key: 'bad json', scope: 's', principal: 'p', json: '{' }, async () => ANSWER), { code: '22P02' });
    await assert.rejects(leased(database, { key: 'bad json', scope: 's', principal: 'p', json: '{' }, async () => ANSWER), { code: '22P02' });
    await run('good json');
    assert.deepEqual([ours(), unnamed()], [4, 0]);
  });

  test('a session that has lost them: then none is prepared', async () => {
    make(1);
    await run('discarded 1');
    await pool.query('DISCARD ALL');
    assert.equal((await run('discarded 2')).outcome, 'executed');
    counter.parsed = [];
    assert.equal((await run('discarded 3')).outcome, 'executed');
    assert.deepEqual([ours(), unnamed()], [0, 4]);
    make(1);
    await step('discarded 4');
    await pool.query('DISCARD ALL');
    assert.equal((await step('discarded 5')).outcome, 'executed');
  });

  test('a session that has them from elsewhere: then none is prepared', async () => {
    make(1);
    await run('taken 1');
    const client = await pool.connect();
    const { rows } = await client.query("SELECT name, statement FROM pg_prepared_statements WHERE statement LIKE '%idem_begin%'");
    client.release(true);
    await pool.query(`PREPARE "${rows[0].name}" AS SELECT 1`);
    assert.equal((await run('taken 2')).outcome, 'executed');
    assert.equal((await step('taken 3')).outcome, 'executed');
  });

  test('a handler that deallocates them runs again, once', async () => {
    make(1);
    let runs = 0;
    const result = await run('deallocated', async (client) => {
      runs += 1;
      await client.query(`${INSERT}('deallocated')`);
      await client.query('DEALLOCATE ALL');
      return ANSWER;
    });
    assert.deepEqual([result.outcome, runs, await db.effects('deallocated')], ['executed', 2, 1]);
    assert.equal((await run('deallocated', () => assert.fail())).outcome, 'replay');
  });

  test('only one attempt is allowed: it is none of these', async () => {
    make(1);
    await run('attempts 1');
    await pool.query('DISCARD ALL');
    const once = transactionally(database, { key: 'attempts 2', scope: 's', principal: 'p', json: '{}' }, async () => ANSWER, { attempts: 1 });
    assert.equal((await once).outcome, 'executed');
  });
});

test('bytes in the older format', async () => {
  const pool = new pgLibrary.Pool({ ...at, options: '-c bytea_output=escape' });
  const run = () => transactionally(pg(pool), { key: 'escape', scope: 's', principal: 'p', json: '{}' }, async () => ANSWER);
  await run();
  assert.deepEqual((await run()).answer.body, BODY);
  await pool.end();
});
