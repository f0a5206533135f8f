// What the conformance suite cannot see of workers.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Rejection, worker } from 'idempotency-postgres';
import { pg } from 'idempotency-postgres/pg';
import { testDatabase } from './database.mjs';

const mute = { transaction() {}, statement() {} };

describe('options', () => {
  for (const [name, value] of Object.entries({
    scope: '', size: 0, lease: 0, poll: -1, channel: 1, mode: 'both', holder: 5, onError: 'log', concurrency: 3,
  })) test(`${name}: ${JSON.stringify(value)}`, () => assert.throws(() => worker(mute, { scope: 's', [name]: value }, () => {}), TypeError));
  test('a size above the server\'s limit', () => assert.throws(() => worker(mute, { scope: 's', size: 1001 }, () => {}), /1 to 1000/));
  test('no scope', () => assert.throws(() => worker(mute, {}, () => {}), /scope/));
  test('a channel that cannot be listened to', () => assert.throws(() => worker(mute, { scope: 's', channel: 'c' }, () => {}), /listen: pg\(pool\)\.listen/));
  test('what is right passes', () => { worker(mute, { scope: 's*', size: 2, mode: 'leased', holder: undefined }, () => {}); });
});

describe('a worker', () => {
  let db;
  before(async () => {
    db = await testDatabase('idem_node_worker');
    await db.pool.query("SELECT idem_policy_set('*', store_request => true, retry_base => '1 day', retry_cap => '1 day')");
  });
  after(() => db.drop());
  const status = async (key) => (await db.record(key))?.status;

  /** Runs until the record has this status. */
  async function worked(key, expected, handler, options = {}) {
    const errors = [];
    await db.queue(key, key, { note: key });
    const working = worker(pg(db.pool), { scope: key, poll: 20, onError: (...told) => errors.push(told), ...options }, handler);
    const ended = working.run();
    await db.until(async () => await status(key) === expected);
    await working.stop();
    await ended;
    return errors;
  }

  test('what it knows of its work', async () => {
    let seen;
    await worked('known', 'completed', async (work) => { seen = work; });
    const { client, signal, token, ...rest } = seen;
    assert.deepEqual(rest, {
      key: 'known', scope: 'known', principal: '', attempt: 2, operation: null, method: 'POST', path: '/hook',
      request: { note: 'known' }, recoveryPoint: null, state: null, error: 'queued',
    });
    assert.match(token, /^\d+$/);
    assert.equal(signal.aborted, false);
    await assert.rejects(async () => client.query('SELECT 1'), /has ended/);
  });

  test('a rejection rolls back, and its answer is stored', async () => {
    await worked('rejected', 'completed', async (work) => {
      await work.client.query("INSERT INTO effect (note) VALUES ('rejected')");
      throw new Rejection({ status: 422, body: 'no' });
    });
    const { status_code, body } = await db.record('rejected');
    assert.deepEqual([status_code, String(body), await db.effects('rejected')], [422, 'no', 0]);
  });

  test('a result that is no answer is an error', async () => {
    const [[error, work]] = await worked('arrow', 'retryable', (work) => work.client.query('SELECT 1'));
    assert.match(error.message, /answer with a status/);
    assert.equal(work.key, 'arrow');
    assert.match((await db.record('arrow')).error, /answer with a status/);
  });

  test('a hidden error is no success', async () => {
    await worked('hidden', 'retryable', (work) => work.client.query('SELECT 1/0').then(() => {}, () => {}));
  });

  test('steps, and unknown', async () => {
    const errors = await worked('stepped', 'unknown', async (work) => {
      assert.equal(await work.step('sent', () => 5), 5);
      assert.deepEqual(work.state, { sent: 5 });
      await work.unknown('no answer', 'ref');
    }, { mode: 'leased' });
    const { error, reference, recovery_point } = await db.record('stepped');
    assert.deepEqual([error, reference, recovery_point, errors], ['no answer', 'ref', 'sent', []]);
  });

  test('an abort tells the handlers; stop can be called twice', async () => {
    await db.queue('told', 'told', {});
    let begun;
    const begins = new Promise((done) => { begun = done; });
    const working = worker(pg(db.pool), { scope: 'told', onError() { throw new Error('a hook fails'); } }, (work) => new Promise((_, reject) => {
      work.signal.addEventListener('abort', () => reject(work.signal.reason));
      begun();
    }));
    const ended = working.run();
    assert.equal(working.run(), ended);
    await begins;
    const stopped = [working.stop(), working.stop()];
    assert.equal(await status('told'), 'in_progress');
    await working.abort(new Error('the machine goes down'));
    await Promise.all([ended, ...stopped]);
    assert.equal((await db.record('told')).error, 'the machine goes down');
  });

  test('stopped before it runs', async () => {
    const working = worker(pg(db.pool), { scope: 's' }, () => {});
    await working.stop();
    await working.run();
  });

  test('a mistake at the first call ends it; later it is told and tried again', async () => {
    await assert.rejects(worker(pg(db.pool), { scope: ' ' }, () => {}).run(), { code: '22023' });
    const errors = [];
    const { statement, ...rest } = pg(db.pool);
    let calls = 0;
    const failing = { ...rest, statement: (...call) => {
      calls += 1;
      return calls === 2 ? Promise.reject(Object.assign(new Error('no right'), { code: '42501', severity: 'ERROR' })) : statement(...call);
    } };
    const working = worker(failing, { scope: 's', poll: 5, onError: ({ code }) => errors.push(code) }, () => {});
    const ended = working.run();
    await db.until(async () => calls > 3);
    await working.stop();
    await ended;
    assert.deepEqual(errors, ['42501']);
  });

  test('it listens again after its connection is lost', async () => {
    const errors = [];
    const working = worker(pg(db.pool), { scope: 'again', poll: 20, channel: 'again', onError: (error) => errors.push(error.name) }, () => {});
    const ended = working.run();
    const listens = async () => (await db.pool.query("SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN \"again\"'")).rows[0]?.pid;
    const first = await db.until(listens);
    await db.pool.query('SELECT pg_terminate_backend($1)', [first]);
    await db.until(async () => ![undefined, first].includes(await listens()));
    assert.equal(errors.length, 1);
    await working.stop();
    await ended;
    assert.equal(await db.until(async () => await listens() === undefined), true);
  });
});
