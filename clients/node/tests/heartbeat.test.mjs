// The lease by our clock, which the tests move. In a process without other timers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Heartbeat } from '../dist/esm/heartbeat.js';

const LEASE = 300;

/** Time that passes from timer to timer until the lease is lost, or `until`, and while `extend` takes as long as it says. */
async function passes(t, until, extend, isLost = () => false) {
  let clock = 0;
  const timers = [];
  t.mock.method(performance, 'now', () => clock);
  t.mock.method(globalThis, 'setTimeout', (call, pause) => timers[timers.push({ at: clock + pause, call }) - 1]);
  t.mock.method(globalThis, 'clearTimeout', (timer) => timers.includes(timer) && timers.splice(timers.indexOf(timer), 1));
  const beats = [];
  let after;
  const h = new Heartbeat(LEASE, 0, async (limit) => {
    assert.equal(limit, LEASE / 6);
    beats.push(clock);
    clock += await extend(beats.length, h) ?? 0;
  }, isLost, () => { after = clock; }, (message) => new Error(message));
  while (timers.length > 0 && after === undefined && clock < until) {
    timers.sort((one, other) => one.at - other.at);
    const { at, call } = timers.shift();
    clock = at;
    call();
    await new Promise((done) => { setImmediate(done); });
  }
  return { h, beats, after };
}

const fails = async () => { throw new Error('network'); };

test('the lease ends when it may have ended, and not before', async (t) => {
  const { beats, after } = await passes(t, 10 * LEASE, fails);
  assert.deepEqual([beats[0], after], [100, LEASE]);
});

test('a failed beat is tried again after a tenth', async (t) => {
  const { beats } = await passes(t, 10 * LEASE, async (n, h) => {
    if (n === 1) await fails();
    h.stop();
  });
  assert.deepEqual(beats, [100, 130]);
});

test('a beat that succeeded counts from when it was sent', async (t) => {
  const { beats, after } = await passes(t, 10 * LEASE, async (n) => (n > 1 ? fails() : 20));
  assert.deepEqual([...beats.slice(0, 3), after], [100, 200, 230, 100 + LEASE]);
});

test('while beats succeed, it does not end', async (t) => {
  const { beats, after } = await passes(t, 10 * LEASE, async () => {});
  assert.deepEqual([beats.length, after], [30, undefined]);
});

test('what the server says of the owner counts at once', async (t) => {
  const { h, beats, after } = await passes(t, 10 * LEASE, fails, () => true);
  assert.deepEqual([beats, after], [[100], 100]);
  assert.ok(h.signal.aborted);
});
