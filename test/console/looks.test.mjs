// How the pages look: axe-core on each, nothing sideways, nothing from outside, and a picture of each in
// SCREENS, at both widths and in both colour schemes.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createDatabase, goTo, launch, openPage, PAGES, run, seed, startConsole, WITH_EXTENSION } from './helpers.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SCREENS = process.env.SCREENS ?? join(process.env.WORK, 'screens');

const ADDRESSES = PAGES.map((name) => ({
    records: 'records?status=waiting', key: 'key?scope=refunds&key=r-815', policies: 'policies?scope=payments/eu',
}[name] ?? name));

let browser;
let shared;
let stop;

before(async () => {
    mkdirSync(SCREENS, { recursive: true });
    browser = await launch();
    await createDatabase('looks', WITH_EXTENSION);
    await seed('looks');
    await run('looks', "SELECT idem_once('m' || n % 40000, scope => 'webhooks') FROM generate_series(1, 60000) n");
    shared = await startConsole({ after: (action) => { stop = action; } }, ['--every', '1', 'looks']);
});
after(async () => {
    await stop?.();
    await browser.close();
});

// Axe's rules that its authors hold to be certain. The source is evaluated by the debugger, which the
// page's own rules exempt.
async function violations(page) {
    await page.evaluate(AXE);
    const { violations: found } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    return found.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(' | ')}`);
}

for (const width of [1280, 390]) {
    for (const colorScheme of ['light', 'dark']) {
        test(`every page at ${width} pixels in ${colorScheme} colours`, async (t) => {
            const page = await openPage(t, browser, shared.address, { colorScheme, viewport: { width, height: 850 }, reducedMotion: 'reduce' });
            const hosts = new Set();
            page.on('request', (request) => hosts.add(new URL(request.url()).host));
            for (const address of ADDRESSES) {
                const name = address.split('?')[0];
                await goTo(page, address);
                if (name === 'overview') await page.waitForSelector('.shares');
                if (name === 'outcomes') await page.waitForSelector('.chart canvas');
                if (name === 'key') await page.selectOption('#decide-action', 'release').then(() => page.fill('#decide-reason', 'ticket 815: the bank never got it'));
                assert.deepEqual(await violations(page), [], name);
                const { scrollWidth } = await page.evaluate(() => document.documentElement);
                assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `${name} scrolls sideways: ${scrollWidth}`);
                await page.screenshot({ path: join(SCREENS, `${name}-${width}-${colorScheme}.png`), fullPage: true });
            }
            assert.deepEqual([...hosts], [new URL(shared.url).host], 'nothing comes from outside');
            assert.deepEqual(page.wrong, []);
        });
    }
}

test('on a narrow screen the pages are in a menu, and each row is a card', async (t) => {
    const page = await openPage(t, browser, shared.address, { viewport: { width: 390, height: 850 } });
    assert.equal(await page.isVisible('nav'), false);
    await page.click('#menu');
    await page.click('nav a[href="#in_flight"]');
    await page.waitForSelector('#content tbody tr');
    assert.equal(await page.isVisible('nav'), false);
    const titles = await page.locator('#content tbody tr').first().locator('td').evaluateAll((cells) => cells.map((cell) => getComputedStyle(cell, '::before').content));
    assert.ok(titles.includes('"Scope"') && titles.includes('"Lease left"'), titles.join());
    assert.equal(await page.getByRole('columnheader', { name: 'Scope' }).count(), 1, 'it is still a table');
});

// "10,000" did not fit beside the chart.
test('numbers have separators, and those of the axis fit', async (t) => {
    const page = await openPage(t, browser, shared.address);
    await page.route('**/api/outcomes', async (route) => {
        const response = await route.fetch();
        const answer = await response.json();
        for (const one of answer.series) one.rates.executed = answer.times.map((time, at) => 1234567 + at);
        await route.fulfill({ response, json: answer });
    });
    await goTo(page, 'outcomes');
    await page.waitForSelector('.chart canvas');
    await page.waitForFunction(() => /1,234,\d\d\d/.test(document.querySelector('.chart').innerText));
    const cut = await page.evaluate(() => {
        const canvas = document.querySelector('.chart canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, 1, canvas.height);
        return data.some((value, at) => at % 4 === 3 && value > 0);
    });
    assert.equal(cut, false, 'nothing is drawn at the very edge');
    await goTo(page, 'overview');
    await page.waitForSelector('.shares');
    assert.match(await page.innerText('#records'), /completed\s+40,00\d/);
});
