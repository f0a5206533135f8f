// Makes the pictures of docs/console.md on request: PICTURES=docs/console script/test console. Not
// a test: nothing is compared.
import { mkdirSync, writeFileSync } from 'node:fs';
import pg from 'pg';
import { createDatabase, goTo, launch, openPage, run, startConsole, visit, WITH_EXTENSION } from './helpers.mjs';

const SECONDS = 40; // of traffic, for the charts

const cleanUp = [];
const t = { after: (action) => cleanUp.unshift(action) };

async function populate() {
    await createDatabase('pictures', WITH_EXTENSION);
    for (const statement of [
        "SELECT idem_policy_set('payments/*', store_request => true, retention => '7 days', lease => '5 minutes')",
        "SELECT idem_policy_set('refunds', on_lease_expiry => 'unknown', keep_history => true)",
        "SELECT idem_policy_set('webhooks', keep_history => true, retry_base => '1 s', retry_cap => '5 min')",
        `SELECT idem_begin('order-7', '{"amount": 100}', scope => 'payments/charge', principal => 'acme', holder => 'worker-3')`,
        `SELECT idem_begin('order-9', '{"amount": 35}', scope => 'payments/charge', principal => 'zenith', holder => 'worker-1')`,
        "SELECT idem_begin('evt_1042', scope => 'webhooks', holder => 'sender-2', lease => '1 min')",
        "SELECT idem_begin('r-814', scope => 'refunds', holder => 'worker-3', lease => '10 ms')",
        "SELECT idem_begin('mail-55', scope => 'newsletter', holder => 'mailer', lease => '10 ms')",
    ]) await run('pictures', statement);
    for (const error of ['the bank did not answer within 10 s', 'the bank says 503', null]) {
        await run('pictures', `DO $$ DECLARE claim idem_claim; BEGIN
            claim := idem_begin('r-815', scope => 'refunds', principal => 'acme', holder => 'worker-3', lease => '${error ? '1 min' : '10 ms'}');
            ${error ? `PERFORM idem_fail('r-815', scope => 'refunds', principal => 'acme', token => claim.token, error => '${error}', retryable => true, retry_after => '0');` : ''}
        END $$`);
    }
    await run('pictures', "SELECT idem_policy_set('parcels', max_attempts => 1)");
    await run('pictures', `DO $$ DECLARE claim idem_claim; BEGIN FOR n IN 1..3 LOOP
            claim := idem_begin('parcel-' || 4710 + n, scope => 'parcels', principal => 'zenith', holder => 'carrier-1');
            PERFORM idem_fail('parcel-' || 4710 + n, scope => 'parcels', principal => 'zenith', token => claim.token, error => 'no such address', retryable => true);
        END LOOP; END $$`);
    await run('pictures', "SELECT idem_resolve('r-814', 'fail', scope => 'refunds', reason => 'ticket 814: refunded by hand')");
    await run('pictures', "SELECT idem_begin('r-816', scope => 'refunds', holder => 'worker-1', lease => '10 ms')");
}

// Requests in waves, some of them sent twice, a few with another body.
async function traffic(client, second) {
    const many = Math.round(30 + 20 * Math.sin(second / 5));
    await client.query(`SELECT idem_once('m' || $1::int || '-' || (i / 2), scope => 'webhooks') FROM generate_series(1, $2::int) i`, [second, many]);
    await client.query(`SELECT idem_once('n' || $1::int || '-' || (i / 4), scope => 'stripe') FROM generate_series(1, $2::int / 2) i`, [second, many]);
    if (second % 7 < 2) await client.query("SELECT idem_begin('order-7', '{\"amount\": 999}', scope => 'payments/charge', principal => 'acme') FROM generate_series(1, 6)");
    await client.query("SELECT idem_begin('order-9', '{\"amount\": 35}', scope => 'payments/charge', principal => 'zenith') FROM generate_series(1, 3)");
}

async function shoot(page, name) {
    const session = await page.context().newCDPSession(page);
    const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 66 });
    writeFileSync(`${process.env.PICTURES}/${name}.webp`, Buffer.from(data, 'base64'));
}

async function main() {
    mkdirSync(process.env.PICTURES, { recursive: true });
    await populate();
    const browser = await launch();
    t.after(() => browser.close());
    const { address } = await startConsole(t, ['--every', '1', 'pictures']);
    const connect = async () => {
        const client = new pg.Client({ database: 'pictures', application_name: 'checkout' });
        await client.connect();
        t.after(() => client.end());
        return client;
    };
    const busy = await connect();
    let goesOn = true;
    const waves = (async () => {
        for (let second = 0; goesOn; second++) {
            await traffic(busy, second);
            await new Promise((resolve) => setTimeout(resolve, 1000));
        }
    })();
    t.after(() => {
        goesOn = false;
        return waves;
    });
    await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
    const client = await connect();
    await client.query("BEGIN; SELECT idem_begin('order-8', scope => 'stripe')");
    for (const colorScheme of ['light', 'dark']) {
        const page = await openPage(t, browser, address, { colorScheme, viewport: { width: 1180, height: 760 } });
        await goTo(page, 'overview');
        await page.waitForSelector('.shares');
        await shoot(page, `overview-${colorScheme}`);
        await visit(page, 'outcomes');
        await page.waitForSelector('.chart canvas');
        await shoot(page, `outcomes-${colorScheme}`);
        await page.setViewportSize({ width: 1180, height: 900 });
        await goTo(page, 'records?status=waiting');
        for (const key of ['r-815', 'r-816']) await page.check(`[aria-label="Select ${key}"]`);
        await shoot(page, `records-${colorScheme}`);
        await page.setViewportSize({ width: 1180, height: 1000 });
        await goTo(page, 'key?scope=refunds&principal=acme&key=r-815');
        await page.selectOption('#decide-action', 'complete');
        await page.fill('#decide-status_code', '200');
        await page.fill('#decide-reason', 'ticket 815: the bank has refunded it');
        await page.evaluate(() => document.activeElement.blur());
        await shoot(page, `key-${colorScheme}`);
    }
}

try {
    await main();
    console.log('ok 1 - pictures are made');
} finally {
    for (const action of cleanUp) await action();
}
