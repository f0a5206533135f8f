// Without a browser: access, read-only sessions, quoting, and the printed output.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { parseArguments, UsageError } from '../server/arguments.mjs';
import { Database } from '../server/database.mjs';
import { COUNTERS, Sampler } from '../server/samples.mjs';
import { actionsOf, argumentsOf } from '../page/bulk.mjs';
import { escaped, unescaped } from '../page/fields.mjs';
import { actionsFor } from '../page/key.mjs';
import { decision, decisionForAll, decisionForEach, quoteLiteral } from '../page/statements.mjs';
import { createDatabase, HOSTILE, HOSTILE_SCOPE, run, startConsole, until, WITH_EXTENSION } from './helpers.mjs';

const SELF = { host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, dbname: 'guards' };

before(async () => {
    await createDatabase('guards', WITH_EXTENSION,
        "CREATE ROLE careless LOGIN SUPERUSER; ALTER ROLE careless SET default_transaction_read_only = off; ALTER ROLE careless SET statement_timeout = 0; ALTER ROLE careless SET search_path = evil, pg_catalog");
});

// ---- who gets answers ----

const raw = (url, { method = 'POST', path = '/api/about', headers = {}, body = '{}' }) => new Promise((resolve, reject) => {
    const { port } = new URL(url);
    const asked = request({ host: '127.0.0.1', port, method, path, headers, agent: false }, (response) => {
        let text = '';
        response.on('data', (chunk) => { text += chunk; });
        response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
    });
    asked.on('error', reject);
    asked.end(method === 'POST' ? body : undefined);
});

test('answers need the token, the host, the site and the method', async (t) => {
    const { url, token } = await startConsole(t, ['guards']);
    const authorization = `Bearer ${token}`;
    const status = async (options) => (await raw(url, options)).status;
    assert.equal(await status({ headers: { authorization } }), 200, 'as the page asks');
    assert.equal(await status({}), 401, 'without a token');
    assert.equal(await status({ headers: { authorization: `${authorization}x` } }), 401, 'with another token');
    assert.equal(await status({ path: `/api/about?token=${token}` }), 401, 'with the token where others see it');
    assert.equal(await status({ headers: { cookie: `token=${token}` } }), 401, 'with the token as a cookie');
    assert.equal(await status({ headers: { authorization, host: 'rebound.example' } }), 421, 'under a foreign name');
    assert.equal(await status({ headers: { host: 'rebound.example' }, method: 'GET', path: '/' }), 421, 'the page as well');
    assert.equal(await status({ headers: { authorization, origin: 'http://other.example' } }), 403, 'from another site');
    assert.equal(await status({ headers: { authorization, 'sec-fetch-site': 'same-site' } }), 403, 'from another port');
    assert.equal(await status({ headers: { authorization }, method: 'GET' }), 405, 'as a link');
    assert.equal(await status({ headers: { authorization }, path: '/api/constructor' }), 404, 'of what there is not');
    assert.equal(await status({ headers: { authorization }, body: '[' }), 400, 'of what is no JSON');
    assert.equal(await status({ headers: { authorization }, body: `{"x": "${'x'.repeat(1 << 21)}"}` }).catch((error) => error.code), 400, 'of too much');
});

test('no path leads to a file that is not the page\'s', async (t) => {
    const { url } = await startConsole(t, ['guards']);
    for (const path of ['/server/main.mjs', '/../server/main.mjs', '/%2e%2e/server/main.mjs', '//etc/passwd', '/package.json']) {
        assert.equal((await raw(url, { method: 'GET', path })).status, 404, path);
    }
});

test('every answer forbids scripts and frames of others, and sets no cookie', async (t) => {
    const { url } = await startConsole(t, ['guards']);
    for (const path of ['/', '/main.mjs', '/nothing', '/api/about']) {
        const { headers } = await raw(url, { method: 'GET', path });
        assert.match(headers['content-security-policy'], /default-src 'none'; script-src 'self'; style-src 'self';/);
        assert.doesNotMatch(headers['content-security-policy'], /unsafe/);
        assert.match(headers['content-security-policy'], /frame-ancestors 'none'/);
        assert.equal(headers['x-content-type-options'], 'nosniff');
        assert.equal(headers['set-cookie'], undefined);
        assert.equal(headers['access-control-allow-origin'], undefined);
    }
});

test('a start leaves the files of another start alone', async (t) => {
    const first = await startConsole(t, ['guards']);
    const program = readFileSync(`/proc/${first.child.pid}/cmdline`, 'utf8').split('\0')[1];
    const before = statSync(program).ctimeMs;
    await startConsole(t, ['guards']);
    assert.equal(statSync(program).ctimeMs, before, 'it was not copied anew');
});

test('only the loopback is listened to', async (t) => {
    const { url } = await startConsole(t, ['guards']);
    // All of 127/8 reaches a server that listens on every address.
    const code = await new Promise((resolve) => {
        const socket = createConnection({ host: '127.0.0.2', port: Number(new URL(url).port) });
        socket.on('connect', () => resolve('connected'));
        socket.on('error', (error) => resolve(error.code));
    });
    assert.equal(code, 'ECONNREFUSED');
});

// ---- nothing can be written ----

test('sessions only read, whatever the role, PGOPTIONS and the database say', async (t) => {
    await run('guards', 'ALTER DATABASE guards SET default_transaction_read_only = off');
    const connection = { ...SELF, user: 'careless', options: '-c default_transaction_read_only=off -c statement_timeout=0' };
    const database = new Database(connection);
    t.after(() => database.end());
    for (const statement of [
        "SELECT idem_begin('written')", "SELECT public.idem_begin('written')", "SELECT public.idem_resolve('a', 'release')",
        "SELECT public.idem_policy_set('s')", "SELECT public.idem_forget('a')", 'CREATE TABLE public.t ()',
        'DELETE FROM idempotency.record', "SELECT pg_catalog.nextval('pg_catalog.pg_class')", 'TRUNCATE idempotency.policy',
    ]) {
        const failure = await database.rows(statement).then(() => null, (error) => error.code);
        // Without a search_path, and of what is no sequence, the name comes first.
        const wanted = /SELECT idem_begin/.test(statement) ? '42883' : /nextval/.test(statement) ? '42809' : '25006';
        assert.equal(failure, wanted, statement);
    }
    const [settings] = await database.rows(`SELECT current_setting('default_transaction_read_only') AS session,
        current_setting('transaction_read_only') AS transaction, current_setting('statement_timeout') AS timeout,
        current_setting('search_path') AS path, current_setting('application_name') AS name`);
    assert.deepEqual(settings, { session: 'on', transaction: 'on', timeout: '5s', path: 'pg_catalog', name: 'idempotency console' });
});

test('it looks with the rights of another role', async (t) => {
    await run('guards', 'CREATE ROLE looker');
    const console = await startConsole(t, ['--role', 'looker', 'guards']);
    const { about } = await (await console.ask('about')).json();
    assert.equal(about.rows[0].current_user, 'looker');
    assert.equal(about.rows[0].session_user, process.env.PGUSER);
    assert.match(console.printed(), /role looker, database guards on .*; it only reads/);
});

// ---- statements ----

const NASTY = ['', '\'', '\\', '\\\'', '\'\'; DROP TABLE x; --', '$$', '$1', '%s', ':name', '\u202eabc', 'a\u00a0b',
    '\u{e0041}', 'Ω漢字🙂', ' a  b ', HOSTILE, HOSTILE_SCOPE];

test('literals come back unchanged, and show invisible characters', async () => {
    for (const conforming of ['on', 'off']) {
        for (const text of NASTY) {
            const literal = quoteLiteral(text);
            const [{ it }] = await run('guards', `SELECT ${literal}::text AS it`, [], { options: `-c standard_conforming_strings=${conforming}` });
            assert.equal(it, text, `${literal} with standard_conforming_strings = ${conforming}`);
            assert.doesNotMatch(literal, /[\u202e\u00a0\u{e0041}]/u);
        }
    }
});

test('a decision names only the arguments it needs', () => {
    const asked = { key: 'k', scope: 's', principal: '' };
    assert.equal(decision({ schema: 'public', ...asked, action: 'release', given: { body: 'left over', reason: 'ticket 1' } }),
        "SELECT idem_resolve('k', 'release', scope => 's', reason => 'ticket 1');");
    assert.equal(decision({ schema: 'my Schema', ...asked, action: 'forget', given: {} }),
        "SELECT \"my Schema\".idem_forget('k', scope => 's');");
    assert.equal(decision({ schema: 'public', key: 'k', scope: '', principal: 'p\'', action: 'complete', given: { status_code: '200; DROP', body: 'b' } }),
        "SELECT idem_resolve('k', 'complete', principal => 'p''', status_code => 200, body => 'b');");
});

test('a record that has failed can be given back, one with an answer can only be forgotten', () => {
    const offered = (status) => actionsFor({ status }, null, {});
    assert.deepEqual(offered('failed'), ['reopen', 'forget']);
    assert.deepEqual(offered('exhausted'), ['reopen', 'complete', 'fail', 'forget']);
    assert.deepEqual(offered('unknown'), ['release', 'complete', 'fail', 'forget']);
    assert.deepEqual(offered('completed'), ['forget']);
    assert.equal(decision({ schema: 'public', key: 'k', scope: 's', principal: '', action: 'reopen', given: { error: 'was down', reason: 'ticket 1' } }),
        "SELECT idem_resolve('k', 'reopen', scope => 's', error => 'was down', reason => 'ticket 1');");
});

test('a decision about many names what chooses them, and passes what has changed', () => {
    assert.deepEqual(argumentsOf({ scope: 'pay/*', status: 'abandoned', claimed: 'over-1 hour' }), { matched: { scope: 'pay/*', status: 'in_progress', older_than: '1 hour' } });
    for (const filters of [{ key: 'a', status: 'unknown' }, { status: 'unknown', claimed: 'last-1 hour' }, { scope: 's' }, { status: 'waiting' }, { status: 'running' }, { status: 'completed' }]) {
        assert.equal(argumentsOf(filters).matched, undefined, JSON.stringify(filters));
    }
    assert.deepEqual(actionsOf(['unknown', 'exhausted']), ['complete', 'fail']);
    assert.deepEqual(actionsOf(['unknown', 'failed']), []);
    assert.equal(decisionForAll({ schema: 'my Schema', action: 'fail', given: { reason: 'it\'s', status_code: '410', body: '' }, matched: { scope: 's', status: 'unknown' } }),
        "CALL \"my Schema\".idem_resolve_all('fail', scope => 's', status => 'unknown', status_code => 410, reason => 'it''s');");
    assert.match(decisionForEach({ schema: 'public', action: 'release', given: { reason: 'r' }, rows: [{ key: 'k\'', scope: 's', principal: '', claimed_at: '2026-01-01 00:00:00.123456+00' }] }),
        /idem_resolve_idle\(key, 'release', scope => scope, principal => principal, claimed_at => claimed_at, reason => 'r'\)\s+FROM \(VALUES\s+\('k''', 's', '', '2026-01-01 00:00:00\.123456\+00'::timestamptz\)/);
});

test('a release of what may be running says so', () => {
    const asked = { schema: 'public', key: 'k', scope: '', principal: '', action: 'release', given: { reason: 'r' } };
    assert.equal(decision({ ...asked, evenIfRunning: true }), "SELECT idem_resolve('k', 'release', even_if_running => true, reason => 'r');");
    assert.equal(decision(asked), "SELECT idem_resolve('k', 'release', reason => 'r');");
});

test('fields escape what can\'t be seen, and give it back unchanged', () => {
    for (const text of [...NASTY, '\\u{202e}', 'C:\\u{5c}', '\\\\u{41}']) {
        assert.equal(unescaped(escaped(text)), text);
        assert.doesNotMatch(escaped(text), /[\u202e\u00a0\u{e0041}]/u);
    }
    assert.equal(escaped('a\u202eb\\c'), 'a\\u{202E}b\\c');
});

// ---- arguments ----

test('a server is named as for psql', () => {
    const of = (argv, environment = {}) => parseArguments(argv, environment).connection;
    assert.deepEqual(of(['-h', 'db', '-p', '6', '-U', 'anna', 'shop']), { host: 'db', port: 6, user: 'anna', dbname: 'shop' });
    assert.deepEqual(of(["host=db user='an''na' dbname=shop"].map((text) => text.replace("an''na", "an\\'na"))), { host: 'db', port: 5432, user: 'an\'na', dbname: 'shop' });
    assert.deepEqual(of(['postgresql://anna:s%20t@db:6/shop?sslmode=require']), { host: 'db', port: 6, user: 'anna', password: 's t', dbname: 'shop', sslmode: 'require' });
    assert.deepEqual(of([], { PGHOST: '/run/x', PGUSER: 'anna', PGPASSWORD: 'p' }), { host: '/run/x', port: 5432, user: 'anna', password: 'p', dbname: 'anna' });
    assert.equal(of(['-U', 'bert'], { PGHOST: 'h', PGUSER: 'anna' }).user, 'bert');
    const folder = mkdtempSync(join(tmpdir(), 'service-'));
    writeFileSync(join(folder, 'services'), '[shop]\n# the shop\nhost=db\ndbname = shop\n[other]\nhost=no\n');
    assert.deepEqual(of([], { PGSERVICE: 'shop', PGSERVICEFILE: join(folder, 'services'), PGUSER: 'anna' }), { host: 'db', port: 5432, user: 'anna', dbname: 'shop', service: 'shop' });
    rmSync(folder, { recursive: true });
    for (const wrong of [['a', 'b'], ['--listen', '99999'], ['-d', 'colour=red'], ['-d', 'host=a host'], ['-h', 'a,b'], ['--nothing']]) {
        assert.throws(() => of(wrong, { PGUSER: 'anna' }), UsageError, wrong.join(' '));
    }
});

test('--help, a wrong option, and a machine without Node.js', () => {
    assert.match(execFileSync(process.env.SCRIPT, ['--help'], { encoding: 'utf8' }), /^Usage: script\/console /);
    const wrong = spawnSync(process.env.SCRIPT, ['--nothing'], { encoding: 'utf8' });
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /see --help/);
    const folder = mkdtempSync(join(tmpdir(), 'without-'));
    for (const tool of ['bash', 'env', 'dirname', 'cat', 'mkdir']) {
        symlinkSync(execFileSync('which', [tool], { encoding: 'utf8' }).trim(), join(folder, tool));
    }
    const without = spawnSync(process.env.SCRIPT, [], { encoding: 'utf8', env: { PATH: folder, HOME: folder } });
    rmSync(folder, { recursive: true });
    assert.equal(without.status, 1);
    assert.match(without.stderr, /script\/console needs Node\.js 18\.20 or newer with npm/);
});

test('at a terminal the password is asked for, without an echo, and again when it is wrong', async () => {
    await run('guards', "CREATE ROLE locked LOGIN PASSWORD 'the right one'");
    // util-linux's program gives it a terminal.
    const terminal = spawn('script', ['-qec', `exec ${process.env.SCRIPT} -U locked guards`, '/dev/null'], { detached: true });
    let printed = '';
    const give = { 1: 'a wrong one\n', 2: 'the right one\n' };
    terminal.stdout.on('data', (chunk) => {
        printed += chunk;
        const asked = printed.match(/Password for role locked: /g)?.length;
        if (give[asked]) terminal.stdin.write(give[asked]);
        delete give[asked];
    });
    try {
        await until(() => /#token=/.test(printed), 'an address');
    } finally {
        process.kill(-terminal.pid);
        await run('postgres', 'DROP ROLE locked');
    }
    assert.equal(printed.match(/Password for role locked: /g).length, 2);
    assert.match(printed, /password authentication failed for user "locked"/);
    assert.doesNotMatch(printed, /right one|wrong one/);
});

// ---- samples ----

test('rates are those of the counters; where they were reset or unknown is a gap', async () => {
    const row = (scope, total, executed) => ({ scope, total, ...Object.fromEntries(COUNTERS.map((name) => [name, 0])), executed });
    const read = [
        { rows: [row(null, true, 10), row('a', false, 10)] },
        { rows: [row(null, true, 30), row('a', false, 20), row('b', false, 10)] },
        { rows: [row(null, true, 2), row('a', false, 1), row('b', false, 1)] },
        { problem: { kind: 'away' } },
        { rows: [row(null, true, 4), row('a', false, 3), row('b', false, 1)] },
        { rows: [row(null, true, 5), row('a', false, 4), row('b', false, 1)] },
    ];
    const clock = Date.now;
    const sampler = new Sampler({ part: async () => read.shift() }, 2);
    try {
        for (let second = 0; second < 12; second += 2) {
            Date.now = () => second * 1000;
            await sampler.sample();
        }
    } finally {
        Date.now = clock;
    }
    const { times, series, scopes } = sampler.answer({});
    assert.deepEqual(times, [2, 4, 6, 8, 10]);
    assert.equal(scopes, 2);
    assert.deepEqual(series.map((one) => [one.total, one.scope, one.rates.executed]), [
        [true, null, [10, null, null, null, 0.5]],
        [false, 'a', [5, null, null, null, 0.5]],
        [false, 'b', [5, null, null, null, 0]],
    ]);
    assert.deepEqual(sampler.answer({ filter: 'b' }).series.map((one) => one.scope), [null, 'b']);
});

// ---- what is printed ----

test('requests are not printed, and the server gets no useless query', async (t) => {
    const console = await startConsole(t, ['guards']);
    const asked = { key: 'secret-key', scope: 'secret-scope', principal: 'secret-principal', request: '{"secret": "request"' };
    const answer = await (await console.ask('key', asked)).json();
    assert.equal(answer.explanation.problem.sqlstate, '22P02');
    await console.ask('outcomes', { filter: 'secret-filter' });
    await until(async () => (await (await console.ask('outcomes')).json()).series.length > 0, 'a sample');
    assert.doesNotMatch(console.printed(), /secret/);
    assert.doesNotMatch(console.printed(), new RegExp(console.token));
});
