// Each page in a browser: empty, and with data; by keyboard and in dark mode; with hostile keys.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import pg from 'pg';
import {
    createDatabase, goTo, HOSTILE, HOSTILE_SCOPE, launch, lookUp, openPage, PAGES, run, seed, startConsole, until, useKeys as useKeysOf, visit, WITH_EXTENSION,
} from './helpers.mjs';

let browser;
let shared; // a console on the database `shop`
let stop;

before(async () => {
    browser = await launch();
    await createDatabase('empty', WITH_EXTENSION);
    await createDatabase('shop', WITH_EXTENSION);
    await seed('shop');
    shared = await startConsole({ after: (action) => { stop = action; } }, ['--every', '1', 'shop']);
});
after(async () => {
    await stop?.();
    await browser.close();
});

const text = (page) => page.locator('#content').innerText();

// ---- each page ----

const EMPTY = {
    overview: /Unknown\s+0\s+none[\s\S]*There are no records yet\./, records: /No record is like that\./,
    in_flight: /Nothing is in flight\./, outcomes: /No scope has been used/, key: /Enter a key/, decisions: /There are no decisions\./, policies: /There is no policy/, sweeper: /Backlog\s+0/,
    encryption: /There are no keys, and no policy has encrypt\./,
};

test('pages of an empty database say so', async (t) => {
    const { address } = await startConsole(t, ['--every', '1', 'empty']);
    const page = await openPage(t, browser, address);
    for (const name of PAGES) {
        await visit(page, name);
        await page.waitForFunction((wanted) => new RegExp(wanted).test(document.querySelector('#content').innerText), EMPTY[name].source);
    }
    await lookUp(page, { key: 'nothing' });
    assert.match(await text(page), /idem_begin would answer execute \(first\)/);
    assert.match(await text(page), /There is no record of this key\./);
    assert.deepEqual(page.wrong, []);
});

test('the address loses the token, and the page shows role and database', async (t) => {
    const page = await openPage(t, browser, shared.address);
    assert.equal(page.url(), shared.url);
    assert.match(await page.innerText('#where'), /Role postgres, database shop on 127\.0\.0\.1:\d+, PostgreSQL \d+.*, idempotency [\d.]+, read only/);
    // A reload keeps it; another browser has none.
    await page.reload();
    await page.waitForSelector('#where b');
    const other = await browser.newContext();
    t.after(() => other.close());
    const stranger = await other.newPage();
    await stranger.goto(shared.url);
    await stranger.waitForSelector('[data-kind=token]');
});

test('in flight: leased claims with their keys, transactions with their pids', async (t) => {
    const holder = new pg.Client({ database: 'shop', application_name: 'checkout' });
    await holder.connect();
    t.after(() => holder.end());
    await holder.query("BEGIN; SELECT idem_begin('open', scope => 'stripe')");
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'in_flight');
    const row = page.locator('#content tr', { hasText: 'order-7' });
    assert.match(await row.innerText(), /leased\s+order-7\s+payments\/charge\s+acme\s+worker-3/);
    assert.match(await page.locator('#content tr', { hasText: 'transactional' }).innerText(), /checkout/);
    await holder.query('ROLLBACK');
    await page.locator('#content tr', { hasText: 'transactional' }).waitFor({ state: 'detached' });
    await row.getByRole('link', { name: 'order-7' }).click();
    await page.waitForSelector('#answer');
    assert.match(await page.innerText('#answer'), /would answer in_progress[\s\S]*A committed claim has a live lease/);
});

test('outcomes: a chart for each scope, with a line where something happened', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'outcomes');
    const chart = page.locator('.chart', { hasText: 'stripe' });
    await chart.waitFor();
    const before = Number(await chart.locator('tr', { hasText: 'replay' }).locator('td').nth(1).innerText());
    await run('shop', "SELECT idem_once('event-1', scope => 'stripe') FROM generate_series(1, 50)");
    // The table shows them, and the picture has pixels of that line's colour.
    await page.waitForFunction((least) => {
        const row = [...document.querySelectorAll('.chart')].find((one) => one.querySelector('h2').innerText === 'stripe').querySelectorAll('tbody tr')[1];
        return Number(row.cells[2].innerText) >= least;
    }, before + 50);
    await page.waitForFunction(() => {
        const canvas = [...document.querySelectorAll('.chart')].find((one) => one.querySelector('h2').innerText === 'stripe').querySelector('canvas');
        const wanted = getComputedStyle(document.documentElement).getPropertyValue('--replayed').trim().match(/\w\w/g).map((part) => parseInt(part, 16));
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4) if (wanted.every((value, at) => Math.abs(data[i + at] - value) < 3) && data[i + 3] > 250) found++;
        return found > 60;
    });
    // As wide as the available room, also when that changes.
    for (const width of [500, 1200]) {
        await page.setViewportSize({ width, height: 800 });
        await page.waitForFunction(() => [...document.querySelectorAll('.chart')].every((one) =>
            one.querySelector('.uplot').getBoundingClientRect().width === one.querySelector('.picture').clientWidth));
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `nothing sticks out at ${width}`);
    }
    await page.fill('#filter', 'stri');
    await page.waitForFunction(() => document.querySelectorAll('.chart').length === 2);
    await page.fill('#filter', 'no such scope');
    await page.waitForSelector('text=No scope has such a name.');
    assert.deepEqual(page.wrong, []);
});

test('key: summary, timeline, policy with what says so, and the differences of a request', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await lookUp(page, { scope: 'payments/hook', key: 'evt_7' });
    assert.match(await page.innerText('#answer'), /would answer replay/);
    const order = await page.locator('#content h2').allInnerTexts();
    assert.deepEqual(order.slice(1), ['Timeline', 'Decide', 'Policy in force', 'Details']);
    assert.match(await page.innerText('.timeline'), /Attempt 1 retryable\s+by worker 1[\s\S]*connection refused <b>[\s\S]*Attempt 2 completed 200\s+by worker 2[\s\S]*in 6 d 23 h\s+Key is forgotten/);
    const policy = page.locator('[aria-label="Policy in force"]');
    assert.match(await policy.innerText(), /retention\s+7 d\s+the policy payments\/\*/);
    assert.doesNotMatch(await policy.innerText(), /max_attempts/, 'defaults are folded');
    await lookUp(page, { scope: 'refunds', key: 'r-816' });
    assert.match(await page.innerText('.timeline'), /Decision fail by postgres\s+ticket 816: the bank says no/);
    await goTo(page, 'key?scope=payments/charge&principal=acme&key=order-7');
    assert.match(await page.innerText('[aria-label=Lease]'), /length\s+1 h/);
    await page.click('#lookup > summary');
    await page.click('#compare > summary');
    await page.fill('#key-request', '{"amount": 101, "to": "acme"}');
    await page.click('#lookup button[type=submit]');
    await page.waitForSelector('[aria-label="Differences"]');
    assert.match(await page.innerText('#answer'), /would answer mismatch/);
    assert.match(await page.locator('[aria-label="Differences"]').innerText(), /\$\.amount\s+changed/);
    assert.doesNotMatch(page.url(), /101/, 'no request in the address');
    await page.fill('#key-request', '{"amount"');
    await page.click('#lookup button[type=submit]');
    await page.waitForSelector('.problem:has-text("22P02")');
});

test('policies, decisions, sweeper', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'policies');
    assert.match(await page.locator('.policy', { hasText: 'payments/*' }).innerText(), /retention\s+7 d[\s\S]*store_request\s+yes/);
    await page.fill('#policy-scope', 'payments/eu');
    await page.press('#policy-scope', 'Enter');
    await page.waitForSelector('#in-force table');
    assert.match(await page.innerText('#in-force'), /lease\s+1 h\s+the policy payments\/\*[\s\S]*\d+ options as by default/);
    await visit(page, 'decisions');
    assert.match(await page.locator('#content tr', { hasText: 'the bank cannot be asked twice' }).first().innerText(), /policy_set\s+refunds\s+keep_history yes\s+on_lease_expiry unknown/);
    assert.match(await page.locator('#content tr', { hasText: 'ticket 816' }).innerText(), /status unknown → failed/);
    await visit(page, 'sweeper');
    assert.match(await text(page), /Removed in total\s+0[\s\S]*idempotency\.record\s+(heap|sql)/);
});

// ---- encryption ----

// Sessions of the console notice a reload at their next query, one after the other.
async function counted(page, pattern) {
    await until(async () => {
        await Promise.all([page.waitForResponse(/api\/encryption/), page.click('#count')]);
        return pattern.test(await text(page));
    }, `${pattern} on the page`);
}

const useKeys = (...ids) => useKeysOf('sealed', ...ids);

const seal = (...keys) => Promise.all(keys.map((key) => run('sealed', `SELECT idem_begin($1, '{"card": 4711}', scope => 'cards', holder => 'till', lease => '1 hour')`, [key])));

test('encryption: the keys, the records that each has encrypted, and the next step', async (t) => {
    await createDatabase('sealed', 'CREATE SCHEMA "Its Own"; CREATE EXTENSION idempotency SCHEMA "Its Own"', 'ALTER DATABASE sealed SET search_path = "Its Own", public',
        "SELECT \"Its Own\".idem_policy_set('cards', store_request => true, encrypt => true)");
    t.after(() => useKeys());
    const { address } = await startConsole(t, ['--every', '1', 'sealed']);
    const page = await openPage(t, browser, address);
    await visit(page, 'encryption');
    assert.match(await page.innerText('.problem[data-kind=keys]'), /A policy has encrypt, but there are no keys[\s\S]*encryption_key_file is empty[\s\S]*SELECT pg_reload_conf\(\);/);

    await useKeys('2025-03');
    await seal('one', 'two', 'three');
    await counted(page, /2025-03\s+current\s+3/);
    assert.match(await text(page), /There is nothing to do\./);
    assert.equal(await page.locator('#content .statement').count(), 0);

    // By keyboard: counted again, and the statement copied.
    await useKeys('2026-11', '2025-03');
    await seal('four');
    await counted(page, /2026-11\s+current\s+1\s+2025-03\s+known\s+3/);
    assert.match(await text(page), /To encrypt again with the current key: 3 records or attempts of 2025-03\./);
    await seal('five');
    await page.focus('#pause');
    await tabTo(page, 'count');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#content td.number div:text-is("2")');
    assert.equal((await focused(page)).name, 'count');
    await tabTo(page, 'Copy');
    await page.keyboard.press('Enter');
    await page.waitForSelector('text=Copied');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, 'CALL "Its Own".idem_reseal();');
    await run('sealed', copied);
    await counted(page, /2026-11\s+current\s+5\s+2025-03\s+known\s+0/);
    assert.match(await text(page), /No value is encrypted any more with 2025-03\./);

    await useKeys('2025-03');
    await counted(page, /2025-03\s+current\s+0\s+–\s+2026-11\s+missing\s+5/);
    assert.match(await page.innerText('.problem[data-kind=keys]'), /Can't be decrypted: 5 records or attempts, encrypted with 2026-11\./);
    for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme });
        const { least } = await contrast(page);
        assert.ok(least.ratio >= 4.5, `${colorScheme}: "${least.text}" has a contrast of ${least.ratio}`);
    }
    assert.deepEqual(page.wrong, []);
});

test('encryption: counted on request, and too many records are reported', async (t) => {
    const page = await openPage(t, browser, shared.address);
    const asked = [];
    page.on('request', (request) => { if (/api\/encryption/.test(request.url())) asked.push(request.url()); });
    await visit(page, 'encryption');
    for (let i = 0; i < 3; i++) await page.waitForResponse(/api\/about/);
    assert.equal(asked.length, 1, 'the connection is looked at every second here, and nothing is counted');
    const answer = (keys) => page.route('**/api/encryption', (route) => route.fulfill({ json: { keys, policies: { rows: [{ encrypting: 2 }] } } }));
    await answer({ problem: { kind: 'timeout', message: 'canceling statement due to statement timeout', sqlstate: '57014' } });
    await page.click('#count');
    await page.waitForSelector('.problem[data-kind=timeout]');
    assert.match(await text(page), /SELECT \* FROM idempotency\.encryption_keys;/);
    // Of a cluster, whose nodes may differ.
    const row = { available: true, current: true, records: 1, why: null, of_all: 3 };
    await answer({ rows: [{ ...row, key_id: 'a', node: 'one:5432' }, { ...row, key_id: 'b', node: 'two:5432' },
        { ...row, key_id: null, available: false, current: false, records: 0, why: 'The file is gone.', node: 'three:5432' }] });
    await page.click('#count');
    await page.waitForSelector('[data-kind=nodes]');
    assert.match(await text(page), /2 policies have encrypt, but there are no keys[\s\S]*Node three:5432: The file is gone\.[\s\S]*Node\s+a\s+current\s+1\s+one:5432/);
});

// ---- hostile keys ----

test('input of clients stays text on every page', async (t) => {
    const page = await openPage(t, browser, shared.address);
    for (const name of PAGES) {
        await visit(page, name);
        if (name === 'outcomes') await page.locator('.chart', { hasText: 'onload' }).waitFor();
        if (['in_flight', 'records'].includes(name)) assert.ok((await text(page)).includes('<img src=x onerror=window.hit=1>\'"\\`${hit}U+202E</script>'), name);
        if (['in_flight', 'policies'].includes(name)) assert.ok((await text(page)).includes(HOSTILE_SCOPE), name);
    }
    await lookUp(page, { scope: 'refunds', key: HOSTILE });
    await page.waitForSelector('#answer');
    assert.equal(await page.locator('main img, script:not([src]), svg[onload]').count(), 0);
    assert.match(await page.inputValue('#key-key'), /\\u\{202E\}/, 'a field shows it as well');
    assert.equal(await page.evaluate(() => [...document.querySelectorAll('input')].some((one) => /[\u202a-\u202e\u2066-\u2069]/.test(one.value))), false);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(page.wrong, []);
});

test('the page\'s own rules stop scripts', async (t) => {
    const page = await openPage(t, browser, shared.address);
    // In a separate task, because code that a debugger evaluates is exempt.
    const stopped = await page.evaluate(() => new Promise((resolve) => {
        const tried = (action) => {
            try {
                action();
                return 'run';
            } catch (error) {
                return error.name;
            }
        };
        setTimeout(() => resolve([
            tried(() => { document.body.innerHTML = '<b>x</b>'; }),
            tried(() => document.body.setAttribute('onclick', 'window.hit = 3')),
            tried(() => { document.createElement('script').src = 'data:text/javascript,window.hit=4'; }),
            tried(() => { Function('window.hit = 5')(); }),
        ]));
    }));
    assert.deepEqual(stopped, ['TypeError', 'TypeError', 'TypeError', 'EvalError']);
    assert.equal(await page.evaluate(() => window.hit), undefined);
});

test('the statement that is copied decides about that key and no other', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await lookUp(page, { scope: 'refunds', key: HOSTILE });
    await page.selectOption('#decide-action', 'fail');
    await page.fill('#decide-reason', 'it\'s "ticket" \\ 817; --');
    await page.fill('#decide-status_code', '410');
    await page.click('.statement button');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.doesNotMatch(copied, /\u202e/);
    assert.match(copied, /^SELECT idem_resolve\(E'/);
    const count = async () => (await run('shop', "SELECT count(*)::int AS n FROM idempotency.records WHERE status = 'failed'"))[0].n;
    const before = await count();
    await run('shop', copied);
    assert.equal(await count(), before + 1);
    await page.click('#again');
    await page.waitForSelector('.timeline .decision');
    assert.match(await page.innerText('.timeline'), /it's "ticket" \\ 817; --/);
    assert.match(await page.innerText('#answer'), /would answer replay/);
});

// ---- by keyboard ----

const focused = (page) => page.evaluate(() => {
    const { activeElement } = document;
    const style = getComputedStyle(activeElement);
    const { width, height } = activeElement.getBoundingClientRect();
    return { tag: activeElement.tagName, name: activeElement.id || activeElement.hash || activeElement.getAttribute('aria-label') || activeElement.innerText,
        ring: style.outlineStyle !== 'none' && Number.parseFloat(style.outlineWidth) >= 2, seen: width > 0 && height > 0 };
});

async function tabTo(page, name, most = 60) {
    for (let i = 0; i < most; i++) {
        await page.keyboard.press('Tab');
        const now = await focused(page);
        if (now.tag !== 'BODY') assert.ok(now.ring && now.seen, `${now.tag} ${now.name} shows that it has the focus`);
        if (now.name === name) return;
    }
    assert.fail(`the Tab key does not come to ${name}`);
}

test('everything is reached and done by keyboard', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await page.keyboard.press('Tab');
    assert.equal((await focused(page)).name, 'skip');
    await page.keyboard.press('Enter');
    assert.equal((await focused(page)).name, 'main');
    await page.reload();
    await page.waitForSelector('#where b');
    await tabTo(page, 'pause');
    await page.keyboard.press('Space');
    assert.equal(await page.getAttribute('#pause', 'aria-pressed'), 'true');
    await page.keyboard.press('Space');
    for (const name of PAGES) await tabTo(page, `#${name}`);
    for (let i = PAGES.indexOf('key') + 1; i < PAGES.length; i++) await page.keyboard.press('Shift+Tab');
    assert.equal((await focused(page)).name, '#key');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#lookup');
    assert.equal((await focused(page)).name, 'main');
    await tabTo(page, 'key-scope');
    await page.keyboard.type('refunds');
    await tabTo(page, 'key-key');
    await page.keyboard.type('r-815');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#answer');
    await tabTo(page, 'decide-action');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    assert.equal(await page.inputValue('#decide-action'), 'complete');
    assert.equal((await focused(page)).name, 'decide-action');
    await tabTo(page, 'decide-reason');
    await page.keyboard.type('ticket 1');
    assert.equal((await focused(page)).name, 'decide-reason');
    await tabTo(page, 'Copy');
    await page.keyboard.press('Enter');
    await page.waitForSelector('text=Copied');
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()),
        "SELECT idem_resolve('r-815', 'complete', scope => 'refunds', reason => 'ticket 1');");
});

test('a refresh keeps the focus', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'in_flight');
    await page.waitForSelector('#content a.key');
    const mark = await page.evaluate(() => {
        const button = document.querySelector('#content a.key');
        button.focus();
        button.dataset.old = 'yes';
        return button.dataset.id;
    });
    await page.waitForFunction(() => !document.querySelector('[data-old]'));
    assert.equal(await page.evaluate(() => document.activeElement.dataset.id), mark);
    // Paused, it is not read.
    await page.click('#pause');
    await page.evaluate(() => { document.querySelector('#content a.key').dataset.old = 'yes'; });
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.waitForTimeout(2500);
    assert.deepEqual(asked, [], 'pages are read every second here');
});

// ---- colours ----

// The lowest contrast of any text on the page with its background.
const contrast = (page) => page.evaluate(() => {
    const luminance = (color) => {
        const [r, g, b] = color.match(/[\d.]+/g).map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (!/rgba\(.*, 0\)|transparent/.test(color)) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    let least = { ratio: 99 };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || ['SCRIPT', 'NOSCRIPT', 'CAPTION', 'OPTION'].includes(element.tagName)) continue;
        const [dark, light] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort((a, b) => a - b);
        const ratio = (light + 0.05) / (dark + 0.05);
        if (ratio < least.ratio) least = { ratio, text: texts.currentNode.textContent };
    }
    return { least, page: luminance(behind(document.body)) };
});

for (const colorScheme of ['light', 'dark']) {
    test(`every page can be read in ${colorScheme} colours`, async (t) => {
        const page = await openPage(t, browser, shared.address, { colorScheme });
        for (const name of PAGES) {
            await visit(page, name);
            if (name === 'key') await lookUp(page, { scope: 'refunds', key: 'r-815' });
            const { least, page: background } = await contrast(page);
            assert.ok(least.ratio >= 4.5, `${name}: "${least.text}" has a contrast of ${least.ratio}`);
            assert.ok(colorScheme === 'dark' ? background < 0.05 : background > 0.8, `${name}: background ${background}`);
        }
    });
}

test('charts follow when the colours change', async (t) => {
    const page = await openPage(t, browser, shared.address, { colorScheme: 'light' });
    await visit(page, 'outcomes');
    await page.waitForSelector('.chart canvas');
    const has = (hex) => page.waitForFunction((wanted) => {
        const canvas = document.querySelector('.chart canvas');
        const rgb = wanted.match(/\w\w/g).map((part) => parseInt(part, 16));
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 250 && rgb.every((value, at) => Math.abs(data[i + at] - value) < 3)) return true;
        return false;
    }, hex);
    await has('1d4ed8');
    await page.emulateMedia({ colorScheme: 'dark' });
    await has('8ab4ff');
});

// ---- a cluster ----

test('of a cluster, each row has its node', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await visit(page, 'records');
    assert.equal(await page.locator('th', { hasText: 'Node' }).count(), 0, 'none on a single server');
    await page.route('**/api/records', async (route) => {
        const response = await route.fetch();
        const answer = await response.json();
        answer.records.rows.forEach((row, at) => { row.node = `worker${at}:5432`; });
        await route.fulfill({ response, json: answer });
    });
    await page.click('#again');
    await page.waitForSelector('th:has-text("Node")');
    assert.match(await text(page), /worker0:5432/);
});
