// In a browser: passwords, rights, a database that disappears, other versions, a standby.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { Database } from '../server/database.mjs';
import {
    control, createDatabase, launch, lookUp, openPage, PAGES, run, seed, startConsole, until, visit, WITH_EXTENSION,
} from './helpers.mjs';

let browser;

before(async () => {
    browser = await launch();
    await createDatabase('troubled', WITH_EXTENSION);
    await seed('troubled');
    await run('postgres', "CREATE ROLE stranger LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE ROLE locked LOGIN PASSWORD 'right' IN ROLE pg_monitor");
});
after(() => browser.close());

const kinds = (page) => page.locator('#content .problem').evaluateAll((boxes) => boxes.map((box) => box.dataset.kind));

// ---- rights ----

test('the page names views that the role may not read, with the grant', async (t) => {
    const { address } = await startConsole(t, ['--every', '1', '-U', 'stranger', 'troubled']);
    const page = await openPage(t, browser, address);
    for (const name of PAGES.filter((one) => one !== 'key')) {
        await visit(page, name);
        await page.waitForSelector('#content .problem');
        for (const kind of await kinds(page)) assert.equal(kind, 'denied', name);
        assert.match(await page.innerText('#content'), /GRANT pg_monitor TO stranger;/);
    }
    await lookUp(page, { key: 'k' });
    await page.waitForSelector('#content .problem');
    assert.match(await page.innerText('#content'), /SELECT idem_grant\('stranger', operator => true\);/);
    assert.deepEqual(page.wrong, []);
});

test('a monitoring role sees a record without explanation and error', async (t) => {
    const { address } = await startConsole(t, ['-U', 'watcher', 'troubled']);
    const page = await openPage(t, browser, address);
    await lookUp(page, { scope: 'payments/hook', key: 'evt_7' });
    await page.waitForSelector('[aria-label=Summary]');
    assert.deepEqual(await kinds(page), ['denied']);
    assert.match(await page.innerText('.head'), /evt_7\s+completed/);
    assert.match(await page.innerText('.decide'), /this role may not decide/);
    const content = await page.innerText('#content');
    assert.match(content, /Role watcher may not read why attempts failed/);
    assert.doesNotMatch(content, /connection refused/);
});

// With a million decisions the view of all nodes takes seconds, and the page would query it every
// few seconds.
test('on a single server the decisions of all nodes are not asked for', async (t) => {
    await createDatabase('alone', WITH_EXTENSION);
    await seed('alone');
    await run('alone', 'REVOKE ALL ON idempotency.decisions FROM pg_monitor');
    const { address } = await startConsole(t, ['-U', 'watcher', 'alone']);
    const page = await openPage(t, browser, address);
    await visit(page, 'decisions');
    assert.match(await page.innerText('#content'), /ticket 816: the bank says no/);
    await lookUp(page, { scope: 'refunds', key: 'r-816' });
    assert.match(await page.innerText('.timeline'), /ticket 816: the bank says no/);
});

// ---- passwords ----

const refusals = () => readFileSync(process.env.SERVER_LOG, 'utf8').match(/password authentication failed for user "locked"/g)?.length ?? 0;

test('a wrong password is reported, tried once, and again on request', async (t) => {
    const before = refusals();
    const { address, ask } = await startConsole(t, ['--every', '1', '-U', 'locked', 'troubled'], { PGPASSWORD: 'wrong' });
    const context = await browser.newContext();
    t.after(() => context.close());
    const page = await context.newPage();
    await page.goto(address);
    await page.waitForSelector('#banner [data-kind=password]');
    assert.match(await page.innerText('#banner'), /does not accept the password[\s\S]*Role locked on .*password authentication failed for user "locked"/);
    for (const name of PAGES) await ask(name, { key: 'k' });
    assert.equal(refusals() - before, 1, 'once, whatever was asked since');
    await page.click('#banner button');
    await until(() => refusals() - before === 2, 'another try');
    await page.waitForSelector('#banner [data-kind=password]');
    await run('postgres', "ALTER ROLE locked PASSWORD 'wrong'");
    await page.click('#banner button');
    await page.waitForSelector('#where:has-text("Role locked")');
    await page.waitForSelector('#banner:empty', { state: 'attached' });
    await run('postgres', "ALTER ROLE locked PASSWORD 'right'");
});

test('a wrong password is tried once, however many ask at a time', async (t) => {
    const before = refusals();
    const database = new Database({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: 'locked', dbname: 'troubled', password: 'wrong' });
    t.after(() => database.end());
    const parts = await Promise.all([1, 2, 3, 4, 5].map(() => database.part('SELECT 1')));
    assert.deepEqual(parts.map((part) => part.problem?.kind), Array(5).fill('password'));
    assert.equal(refusals() - before, 1);
});

test('no password at all', async (t) => {
    const { address } = await startConsole(t, ['-U', 'locked', 'troubled'], { PGPASSFILE: '/nonexistent' });
    const context = await browser.newContext();
    t.after(() => context.close());
    const page = await context.newPage();
    await page.goto(address);
    await page.waitForSelector('#banner [data-kind=password]:has-text("the server wants a password of role")');
});

// ---- a database that goes away ----

test('a database that goes away and comes back', async (t) => {
    const { address, printed } = await startConsole(t, ['--every', '1', 'troubled']);
    const page = await openPage(t, browser, address);
    await visit(page, 'in_flight');
    await page.waitForSelector('#content tr:has-text("order-7")');
    control('stop');
    try {
        await page.waitForSelector('#banner [data-kind=away]');
        await page.waitForSelector('#content.stale tr:has-text("order-7")');
        await page.click('nav a[href="#policies"]');
        await page.waitForSelector('text=Nothing has been read yet.');
        await page.click('nav a[href="#encryption"]');
        await page.waitForSelector('text=Nothing has been read yet.');
        await page.click('nav a[href="#outcomes"]');
        await page.click('nav a[href="#in_flight"]');
    } finally {
        control('start');
    }
    await page.waitForSelector('#banner:empty', { state: 'attached' });
    await page.waitForSelector('#content:not(.stale) tr:has-text("order-7")');
    await visit(page, 'outcomes');
    await page.waitForSelector('.chart');
    await until(() => /connected/.test(printed()), 'word that it is back');
    assert.match(printed(), /idempotency console: .*(ECONNREFUSED|terminat|shutting down|closed)/i);
});

test('a connection that is cut in the middle of a question', async (t) => {
    const sockets = [];
    const proxy = createServer((socket) => {
        const server = connect(Number(process.env.PGPORT), process.env.PGHOST);
        sockets.push(socket, server);
        for (const one of [socket, server]) one.on('error', () => {});
        socket.pipe(server).pipe(socket);
    });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const database = new Database({ host: '127.0.0.1', port: proxy.address().port, user: process.env.PGUSER, dbname: 'troubled' });
    t.after(async () => {
        await database.end();
        proxy.close();
    });
    const cut = database.part('SELECT pg_sleep(4)');
    await until(async () => (await run('troubled', "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(4)' AND state = 'active'")).length > 0, 'the question');
    sockets.forEach((socket) => socket.destroy());
    assert.equal((await cut).problem.kind, 'away');
    assert.deepEqual(await database.part('SELECT 1 AS one'), { rows: [{ one: 1 }] });
});

test('a session that is ended is replaced without a word', async (t) => {
    const { ask } = await startConsole(t, ['--every', '3600', 'troubled']);
    await ask('policies');
    await run('postgres', "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'idempotency console' AND datname = 'troubled'");
    const answer = await until(async () => {
        const { policies } = await (await ask('policies')).json();
        return policies.rows;
    }, 'rows');
    assert.equal(answer.length, 3);
});

test('the console itself ends', async (t) => {
    const { address, child, ended } = await startConsole(t, ['--every', '1', 'troubled']);
    const page = await openPage(t, browser, address);
    child.kill('SIGTERM');
    await ended;
    await page.waitForSelector('#banner [data-kind=console]');
    assert.match(await page.innerText('#banner'), /Start it again/);
});

// ---- other databases ----

test('no extension, and no database', async (t) => {
    await createDatabase('bare');
    const bare = await startConsole(t, ['--every', '1', 'bare']);
    const page = await openPage(t, browser, bare.address);
    await page.waitForSelector('#banner [data-kind=no-extension]');
    assert.match(await page.innerText('#banner'), /CREATE EXTENSION idempotency;/);
    for (const name of PAGES.filter((one) => one !== 'key')) {
        await visit(page, name);
        await page.waitForSelector('#content .problem');
        for (const kind of await kinds(page)) assert.equal(kind, 'absent', name);
    }
    await lookUp(page, { key: 'k' });
    await page.waitForSelector('#content .problem');
    await run('bare', WITH_EXTENSION);
    await page.waitForSelector('#banner:empty', { state: 'attached' });
    const { address } = await startConsole(t, ['nowhere']);
    const other = await (await browser.newContext()).newPage();
    t.after(() => other.context().close());
    await other.goto(address);
    await other.waitForSelector('#banner [data-kind=away]:has-text("nowhere")');
});

test('an extension of another version: the existing views are shown', async (t) => {
    await createDatabase('older', WITH_EXTENSION);
    await run('older', `SELECT idem_policy_set('p');
        ALTER EXTENSION idempotency DROP VIEW idempotency.attempts; DROP VIEW idempotency.attempts;
        UPDATE pg_extension SET extversion = '0.9.0' WHERE extname = 'idempotency'`);
    const { address } = await startConsole(t, ['older']);
    const page = await openPage(t, browser, address);
    await page.waitForSelector('#banner [data-kind=version]');
    assert.match(await page.innerText('#banner'), /has version 0\.9\.0, this console \d/);
    await visit(page, 'policies');
    await page.waitForSelector('.policy:has-text("p")');
    await lookUp(page, { key: 'k' });
    await page.waitForSelector('#content .problem[data-kind=absent]:has-text("idempotency.attempts")');
});

test('the edition without C is shown, but for its counters', async (t) => {
    await createDatabase('managed', readFileSync(join(dirname(process.env.SCRIPT), '../managed/idempotency.sql'), 'utf8'));
    await seed('managed');
    const { address } = await startConsole(t, ['--every', '1', 'managed']);
    const page = await openPage(t, browser, address);
    assert.match(await page.innerText('#where'), /idempotency [\d.]+ \(without the module\)/);
    for (const name of PAGES.filter((one) => one !== 'key')) {
        await visit(page, name);
        await page.waitForFunction(() => document.querySelector('#content').innerText.length > 20);
        assert.deepEqual(await kinds(page), name === 'outcomes' ? ['error'] : [], name);
    }
    await lookUp(page, { scope: 'refunds', key: 'r-815' });
    assert.match(await page.innerText('#answer'), /would answer unknown/);
    await page.selectOption('#decide-action', 'fail');
    await page.fill('#decide-reason', 'ticket 1');
    await run('managed', await page.innerText('.statement pre'));
    await page.click('#databases summary');
    await page.waitForSelector('#databases a:has-text("managed")');
});

// Its views would run with the rights of the role that looks.
test('a database whose owner only pretends is not offered', async (t) => {
    await run('postgres', 'CREATE ROLE pretender');
    await createDatabase('pretended', 'CREATE SCHEMA idempotency; CREATE SCHEMA p; ALTER SCHEMA idempotency OWNER TO pretender',
        `CREATE FUNCTION idempotency.installed() RETURNS jsonb LANGUAGE sql AS $$SELECT '{"version": "1.0.0"}'::jsonb$$`,
        'CREATE FUNCTION p.idem_begin() RETURNS int LANGUAGE sql AS $$SELECT 1$$; ALTER FUNCTION p.idem_begin OWNER TO pretender');
    const { ask } = await startConsole(t, ['troubled']);
    const { databases } = await (await ask('databases')).json();
    assert.equal(databases.some((one) => one.name === 'pretended'), false);
    assert.ok(databases.some((one) => one.name === 'troubled'));
    assert.equal((await (await ask('about', { database: 'pretended' })).json()).problem.kind, 'database');
});

test('an extension in another schema', async (t) => {
    await createDatabase('elsewhere', 'CREATE SCHEMA "Its Own"; CREATE EXTENSION idempotency SCHEMA "Its Own"');
    await run('elsewhere', `SELECT "Its Own".idem_begin('k', lease => '1 hour')`);
    const { address } = await startConsole(t, ['elsewhere']);
    const page = await openPage(t, browser, address);
    await lookUp(page, { key: 'k' });
    await page.waitForSelector('#answer:has-text("in_progress")');
    await page.selectOption('#decide-action', 'complete');
    await page.check('#decide-running');
    await page.fill('#decide-reason', 'r');
    assert.match(await page.innerText('.statement pre'), /^SELECT "Its Own"\.idem_resolve\('k', 'complete', reason => 'r'\);$/);
});

// Below the range from which the kernel assigns ports to connections, which could take it before the server starts.
async function freePort() {
    for (;;) {
        const port = 12000 + Math.floor(Math.random() * 20000);
        const server = createServer();
        const free = await new Promise((resolve) => {
            server.once('error', () => resolve(false));
            server.listen(port, '127.0.0.1', () => resolve(true));
        });
        if (!free) continue;
        await new Promise((resolve) => server.close(resolve));
        return port;
    }
}

test('a standby', async (t) => {
    const port = await freePort();
    const folder = `${process.env.WORK}/standby`;
    control('standby', folder, String(port));
    t.after(() => control('stop_standby', folder));
    const { address } = await startConsole(t, ['-p', String(port), '--every', '1', 'troubled']);
    const page = await openPage(t, browser, address);
    await page.waitForSelector('#banner [data-kind=standby]');
    for (const name of PAGES.filter((one) => one !== 'key')) {
        await visit(page, name);
        await page.waitForFunction(() => document.querySelector('#content').innerText.length > 50);
        assert.deepEqual(await kinds(page), [], name);
    }
    await lookUp(page, { scope: 'payments/charge', principal: 'acme', key: 'order-7' });
    await page.waitForSelector('#answer:has-text("This is a standby")');
    assert.deepEqual(page.wrong, []);
});
