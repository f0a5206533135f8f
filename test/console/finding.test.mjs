// Finding records, deciding about several, links, other databases, and the figures on a million records.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { question } from '../server/records.mjs';
import { createDatabase, goTo, launch, openPage, run, startConsole, until, useKeys, visit, WITH_EXTENSION } from './helpers.mjs';

const MILLION = 1000000;

let browser;
let shared; // a console on the database `million`
let stop;

// Records as the module writes them, but for the way: a million claims would take minutes.
const FILL = `
INSERT INTO idempotency.record (scope, principal, key, status, if_silent, status_code, attempt, token, lease_us, created_at, claimed_at,
       expires_at, retained_until, lease_until, finished_at, holder)
SELECT 'scope/' || n % 40, CASE WHEN n % 3 = 0 THEN '' ELSE 'tenant-' || n % 5000 END, 'order-' || md5(n::text), s, 't',
       CASE s WHEN 'c' THEN 200 WHEN 'f' THEN 422 END, 1, n, 60000000, at, at, at + '30 days', at + '30 days',
       CASE WHEN s = 'i' THEN at + '1 min' END, CASE WHEN s <> 'i' THEN at + '1 s' END, 'worker-' || n % 17
  FROM (SELECT n, (CASE WHEN n % 1000 < 5 THEN 'u' WHEN n % 1000 < 8 THEN 'x' WHEN n % 1000 < 12 THEN 'i' WHEN n % 1000 < 40 THEN 'f'
                        WHEN n % 1000 < 60 THEN 'r' ELSE 'c' END)::"char" AS s, now() - n * interval '1.5 s' AS at
          FROM generate_series(1, ${MILLION}) n) AS made`;

before(async () => {
    browser = await launch();
    await createDatabase('million', WITH_EXTENSION, 'ALTER TABLE idempotency.record SET (autovacuum_enabled = off)', FILL, 'VACUUM ANALYZE idempotency.record');
    shared = await startConsole({ after: (action) => { stop = action; } }, ['million']);
});
after(async () => {
    await stop?.();
    await browser.close();
});

const found = async (asked) => (await (await shared.ask('records', asked)).json());
const keys = (answer) => answer.records.rows.map((row) => row.key);

// ---- figures ----
//
// Pages that a search reads, which no other work on the machine changes.

async function pagesOf(asked) {
    const { text, values } = question(asked);
    const [{ 'QUERY PLAN': [{ Plan: plan }] }] = await run('million', `EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT JSON) ${text}`, values);
    assert.equal(plan['Temp Written Blocks'], 0, `${JSON.stringify(asked)} sorts on disk`);
    return plan['Shared Hit Blocks'] + plan['Shared Read Blocks'];
}

test('of a million records a search by key reads a few pages, any other the table once at most', async (t) => {
    const [{ whole }] = await run('million', "SELECT (pg_relation_size('idempotency.record') / 8192)::int AS whole");
    const few = 500;
    const searches = [
        [few, { key: 'order-abc' }], [few, { key: 'order-' }], [few, { key: 'order-', order: 'desc' }], [few, {}],
        [few, { key: 'order-', after: ['order-8', '', ''] }], [few, { key: 'no such key' }],
        [whole + few, { principal: 'tenant-77' }], [whole + few, { scope: 'scope/5' }], [whole + few, { scope: 'scope/*', sort: 'claimed_at', order: 'desc' }],
        [whole + few, { status: 'failed', sort: 'claimed_at', order: 'desc' }], [whole + few, { status: 'unknown' }], [whole + few, { status: 'waiting' }],
        [whole + few, { holder: 'no such holder' }], [whole + few, { newer_than: '1 hour', sort: 'claimed_at' }], [whole + few, { older_than: '16 days' }],
    ];
    for (const [most, asked] of searches) {
        const { records } = await found(asked);
        assert.equal(records.problem, undefined);
        const pages = await pagesOf(asked);
        t.diagnostic(`${JSON.stringify(asked)}: ${pages} of ${whole} pages`);
        assert.ok(pages <= most, `${JSON.stringify(asked)} reads ${pages} pages`);
    }
});

test('an index of one\'s own does not change the store, and serves the search', async () => {
    await run('million', 'CREATE INDEX of_principal ON idempotency.record (principal, claimed_at)');
    assert.ok(await pagesOf({ principal: 'tenant-77' }) < 1000);
    assert.deepEqual(await run('million', 'SELECT store, why FROM idempotency.stores'), [{ store: process.env.IDEM_STORE === 'sql' ? 'sql' : 'heap', why: null }]);
    await run('million', 'DROP INDEX idempotency.of_principal');
});

// ---- pages ----

for (const sort of ['key', 'scope', 'claimed_at']) {
    test(`pages in the order of ${sort} have each record once, forwards and backwards`, async () => {
        const question = { scope: 'scope/1*', key: 'order-0f', sort, order: sort === 'claimed_at' ? 'desc' : 'asc' };
        const [{ n }] = await run('million', "SELECT count(*)::int AS n FROM idempotency.records WHERE key ^@ 'order-0f' AND scope ^@ 'scope/1'");
        const pages = [await found(question)];
        while (pages.at(-1).after) pages.push(await found({ ...question, after: pages.at(-1).after }));
        assert.equal(new Set(pages.flatMap(keys)).size, n);
        assert.equal(pages.flatMap(keys).length, n);
        assert.ok(pages.length > 5);
        assert.equal(pages[0].before, null);
        const back = await found({ ...question, before: pages[3].before });
        assert.deepEqual(keys(back), keys(pages[2]));
    });
}

test('the search is in the address, and other pages and orders keep it', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'records');
    await page.fill('#find-key', 'order-0');
    await page.fill('#find-scope', 'scope/7');
    await page.press('#find-scope', 'Enter');
    await page.waitForFunction(() => location.hash === '#records?key=order-0&scope=scope%2F7');
    await page.waitForSelector('#page-after');
    const first = await page.locator('td.key').first().innerText();
    await page.click('#page-after');
    await page.waitForFunction((wanted) => /after=/.test(location.hash) && document.querySelector('td.key') && document.querySelector('td.key').innerText !== wanted, first);
    await page.click('#page-before');
    await page.waitForFunction((wanted) => document.querySelector('td.key')?.innerText === wanted, first);
    await page.click('thead a:has-text("Claimed")');
    await page.waitForSelector('th[aria-sort=descending]:has-text("Claimed")');
    assert.match(page.url(), /#records\?key=order-0&scope=scope%2F7&sort=claimed_at&order=desc$/);
    await page.goBack();
    await page.waitForFunction(() => /before=/.test(location.hash));
    assert.equal(await page.inputValue('#find-key'), 'order-0');
    assert.deepEqual(page.wrong, []);
});

test('cards of the first page lead to the records that they count', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'overview');
    await page.waitForSelector('.shares');
    assert.match(await page.innerText('#records'), /completed\s+940,000\s+94\.0 %[\s\S]*failed\s+28,000/);
    assert.match(await page.innerText('#card-unknown'), /5,000/);
    assert.match(await page.innerText('#card-abandoned'), /(3,99\d|4,000)/);
    for (const [id, status] of [['unknown', 'unknown'], ['exhausted', 'exhausted'], ['abandoned', 'abandoned']]) {
        await visit(page, 'overview');
        await page.click(`#card-${id}`);
        await page.waitForSelector('td.key');
        assert.deepEqual([...new Set(await page.locator('td .word').allInnerTexts())], [status]);
    }
});

// ---- deciding about several ----

test('selected records get one statement, which passes what runs or has changed', async (t) => {
    await createDatabase('bulk', WITH_EXTENSION, "SELECT idem_policy_set('refunds', on_lease_expiry => 'unknown')",
        "SELECT idem_begin('r' || n, scope => 'refunds', principal => 'it''s', holder => 'worker-1', lease => '10 ms') FROM generate_series(1, 5) n");
    const { address } = await startConsole(t, ['bulk']);
    const page = await openPage(t, browser, address);
    await goTo(page, 'records?status=unknown');
    for (const key of ['r1', 'r2', 'r3']) await page.check(`[aria-label="Select ${key}"]`);
    assert.equal(await page.inputValue('#bulk-action'), '', 'nothing is chosen beforehand');
    assert.equal(await page.locator('#bulk .statement').count(), 0);
    await page.selectOption('#bulk-action', 'fail');
    assert.equal(await page.locator('#bulk .statement').count(), 0, 'without a reason');
    await page.fill('#bulk-reason', 'ticket 1');
    const statement = await page.innerText('#bulk pre');
    await run('bulk', "SELECT idem_resolve('r3', 'release', scope => 'refunds', principal => 'it''s'); SELECT idem_begin('r3', scope => 'refunds', principal => 'it''s', lease => '1 hour')");
    const rows = await run('bulk', statement);
    assert.deepEqual(rows.map((row) => [row.key, row.idem_resolve_idle]).sort(), [['r1', 'done'], ['r2', 'done'], ['r3', 'passed']]);
    // All that match the search.
    await page.click('#again');
    await page.waitForFunction(() => document.querySelectorAll('td.key').length === 2);
    if (!await page.isVisible('#bulk-all')) await page.click('#bulk > summary');
    await page.check('#bulk-all');
    await page.selectOption('#bulk-action', 'complete');
    await page.fill('#bulk-status_code', '200');
    await page.fill('#bulk-reason', 'ticket 2');
    const all = await page.innerText('#bulk pre');
    assert.equal(all, "CALL idem_resolve_all('complete', status => 'unknown', status_code => 200, reason => 'ticket 2');");
    assert.equal((await run('bulk', all))[0].resolved, '2');
    await goTo(page, 'records?key=r&status=unknown');
    assert.deepEqual(page.wrong, []);
});

test('a live holder is warned of, and confirmed before there is a statement', async (t) => {
    await createDatabase('living', WITH_EXTENSION, "SELECT idem_begin('k', holder => 'worker-3', lease => '1 hour')");
    const { address } = await startConsole(t, ['living']);
    const page = await openPage(t, browser, address);
    await goTo(page, 'key?key=k');
    assert.match(await page.innerText('.decide [data-kind=running]'), /worker-3 has a live lease for another 5\d min/);
    assert.equal(await page.inputValue('#decide-action'), '');
    await page.selectOption('#decide-action', 'release');
    await page.fill('#decide-reason', 'the machine is gone');
    assert.equal(await page.locator('.decide .statement').count(), 0);
    await page.check('#decide-running');
    const statement = await page.innerText('.decide pre');
    assert.match(statement, /^SELECT idem_resolve\('k', 'release', even_if_running => true, reason => 'the machine is gone'\);$/);
    await run('living', statement);
    await goTo(page, 'decisions');
    assert.match(await page.innerText('#content tbody'), /its holder was alive\s+status in_progress → retryable/);
    assert.deepEqual(await run('living', "SELECT status FROM idempotency.records WHERE key = 'k'"), [{ status: 'retryable' }]);
});

// ---- sealed holders ----

test('a sealed holder is not shown as none', async (t) => {
    await createDatabase('sealing', WITH_EXTENSION, "SELECT idem_policy_set('cards', encrypt => true)");
    await useKeys('sealing', 'console');
    t.after(() => useKeys('sealing'));
    await run('sealing', "SELECT idem_begin('c1', scope => 'cards', holder => 'till-4', lease => '1 hour'), idem_begin('c2', scope => 'cards', holder => 'till-4', lease => '10 ms')");
    const { address } = await startConsole(t, ['--role', 'pg_monitor', 'sealing']);
    const page = await openPage(t, browser, address);
    for (const where of ['in_flight', 'records', 'records?status=abandoned']) {
        await goTo(page, where);
        assert.match(await page.innerText('#content tbody'), /cards\s+sealed/, where);
        assert.doesNotMatch(await page.innerText('#content tbody'), /none/);
    }
    await goTo(page, 'key?scope=cards&key=c1');
    assert.match(await page.innerText('[aria-label=Summary]'), /Holder\s+sealed/);
});

// ---- links and databases ----

test('a link opens in another tab, and carries no token', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await goTo(page, 'records?status=unknown');
    const link = await page.evaluate(() => document.querySelector('a.key').href);
    assert.doesNotMatch(link, new RegExp(shared.token));
    const other = await page.context().newPage();
    await other.goto(link);
    await other.waitForSelector('#answer');
    // In another browser the token is asked for.
    const stranger = await openStranger(t, link);
    await stranger.fill('#token', shared.address);
    await stranger.click('#banner button');
    await stranger.waitForSelector('#answer');
    assert.equal(stranger.url(), link);
});

async function openStranger(t, link) {
    const context = await browser.newContext();
    t.after(() => context.close());
    const page = await context.newPage();
    await page.goto(link);
    await page.waitForSelector('#banner [data-kind=token]');
    return page;
}

test('the databases that have the extension can be switched between', async (t) => {
    await createDatabase('other_shop', WITH_EXTENSION, "SELECT idem_begin('only-here', lease => '1 hour')");
    await createDatabase('no_shop');
    const page = await openPage(t, browser, shared.address);
    await page.click('#databases summary');
    await page.waitForSelector('#databases a:has-text("other_shop")');
    assert.equal(await page.locator('#databases a:has-text("no_shop")').count(), 0);
    await page.click('#databases a:has-text("other_shop")');
    await page.waitForSelector('#where b:has-text("other_shop")');
    assert.equal(await page.locator('#databases details[open]').count(), 0, 'the menu closes');
    await page.click('nav a[href="#records?database=other_shop"]');
    await page.waitForSelector('a.key:has-text("only-here")');
    await page.click('a.key:has-text("only-here")');
    await page.waitForSelector('#answer');
    assert.match(page.url(), /#key\?database=other_shop&key=only-here$/);
    await page.evaluate(() => { location.hash = '#records?database=no_shop'; });
    await page.waitForSelector('#banner [data-kind=database]');
    await page.evaluate(() => { location.hash = '#records'; });
    await page.waitForSelector('#where b:has-text("million")');
    await until(async () => page.wrong.length === 0, 'nothing wrong');
});

// ---- roles ----

test('the rights of a role are named, and an administrator may not decide', async (t) => {
    await run('postgres', 'CREATE ROLE decider LOGIN IN ROLE pg_monitor; CREATE ROLE ruler LOGIN IN ROLE pg_monitor');
    await run('living', "SELECT idem_grant('decider', operator => true), idem_grant('ruler', administrator => true)");
    for (const [role, rights, hint] of [['decider', ['operator', 'monitor'], /Run the statement with psql/], ['ruler', ['administrator', 'monitor'], /this role may not decide/]]) {
        const { address } = await startConsole(t, ['-U', role, 'living']);
        const page = await openPage(t, browser, address);
        assert.deepEqual(await page.locator('#who .word').allInnerTexts(), rights);
        await goTo(page, 'key?key=k');
        assert.match(await page.innerText('.decide'), hint);
        await goTo(page, 'policies?scope=any');
        await page.waitForSelector('#in-force details');
    }
});
