// A server's databases and roles, consoles of script/console, and a browser. PGHOST, PGPORT and PGUSER name
// a superuser on a throw-away server; SCRIPT is script/console; CONTROL starts and stops the server.
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import pg from 'pg';
import { chromium } from 'playwright-core';

export const PATIENCE = 120000; // what has not come by then hangs; a slow machine is no failure

// Keys are hostile: markup, quotes of every kind, a character that reverses the direction of the
// text.
export const HOSTILE = '<img src=x onerror=window.hit=1>\'"\\`${hit}\u202e</script>';
export const HOSTILE_SCOPE = '"><svg onload=window.hit=2>';

export async function run(database, text, values, settings = {}) {
    const client = new pg.Client({ database, ...settings });
    await client.connect();
    try {
        return (await client.query(text, values)).rows;
    } finally {
        await client.end();
    }
}

export async function createDatabase(name, ...statements) {
    await run('postgres', `CREATE DATABASE ${name}`);
    for (const statement of statements) await run(name, statement);
}

export const WITH_EXTENSION = 'CREATE EXTENSION idempotency';

const KEY_FILE = `${process.env.WORK}/console.keys`;

// A key file with these ids, the first of them current; without ids there is no file. Waits until the
// database has read it.
export async function useKeys(database, ...ids) {
    const lines = ids.map((id, at) => `('${id} ${createHash('sha256').update(id).digest('base64')}${at === 0 ? ' current' : ''}')`);
    if (ids.length > 0) await run('postgres', `COPY (VALUES ${lines.join(', ')}) TO PROGRAM 'umask 077 && cat >"${KEY_FILE}.new" && mv "${KEY_FILE}.new" "${KEY_FILE}"'`);
    await run('postgres', ids.length > 0 ? `ALTER SYSTEM SET idempotency.encryption_key_file = '${KEY_FILE}'` : 'ALTER SYSTEM RESET idempotency.encryption_key_file');
    await run('postgres', 'SELECT pg_reload_conf()');
    await until(async () => (await run(database, 'SELECT string_agg(key_id, \' \' ORDER BY current DESC, key_id) AS ids FROM idempotency.keys_here() WHERE available'))[0].ids
        === (ids.length > 0 ? [ids[0], ...ids.slice(1).sort()].join(' ') : null), `the keys ${ids}`);
}

// A new console, and its whole output.
export async function startConsole(t, args, environment = {}) {
    const child = spawn(process.env.SCRIPT, args, {
        env: { ...process.env, ...environment }, stdio: ['ignore', 'pipe', 'pipe'],
    });
    let printed = '';
    let address = '';
    child.stderr.on('data', (chunk) => { printed += chunk; });
    child.stdout.on('data', (chunk) => { address += chunk; });
    const ended = once(child, 'exit');
    t.after(async () => {
        child.kill('SIGTERM');
        await ended;
    });
    await until(() => address.endsWith('\n') || child.exitCode !== null, 'an address');
    const [url, token] = address.trim().split('#token=');
    return {
        url, token, address: address.trim(), child, ended,
        printed: () => printed,
        ask: (what, body = {}, headers = {}) => fetch(`${url}api/${what}`, {
            method: 'POST', headers: { Authorization: `Bearer ${token}`, ...headers }, body: JSON.stringify(body),
        }),
    };
}

export async function until(condition, what) {
    const deadline = Date.now() + PATIENCE;
    for (;;) {
        const value = await condition();
        if (value) return value;
        if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

export function control(...args) {
    execFileSync(process.env.CONTROL, args, { stdio: 'ignore' });
}

export async function launch() {
    return chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu'], timeout: PATIENCE });
}

// A tab with the console in it. `wrong` gets the browser's complaints.
export async function openPage(t, browser, address, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, timezoneId: 'UTC', ...options });
    t.after(() => context.close());
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    page.wrong = [];
    page.on('pageerror', (error) => page.wrong.push(String(error)));
    page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') page.wrong.push(message.text());
    });
    page.on('dialog', (dialog) => {
        page.wrong.push(`dialog: ${dialog.message()}`);
        dialog.dismiss();
    });
    await page.goto(address);
    await page.waitForSelector('#where b');
    return page;
}

export const PAGES = ['overview', 'records', 'key', 'in_flight', 'outcomes', 'decisions', 'policies', 'sweeper', 'encryption'];

// Waits for the page's queries.
async function read(page, name) {
    await page.waitForFunction((wanted) => document.querySelector('nav a[aria-current]')?.hash.split('?')[0] === `#${wanted}` &&
        document.querySelector('#content') && !/Reading…/.test(document.querySelector('#content').textContent) &&
        document.querySelector('#content').childElementCount > 0, name);
}

// Follows the link of a page.
export async function visit(page, name) {
    await page.click(`nav a[href="#${name}"]`);
    await read(page, name);
}

// Goes to an address: a page with what is looked for, such as records?status=unknown.
export async function goTo(page, address) {
    await page.evaluate((hash) => { location.hash = hash; }, `#${address}`);
    await read(page, address.split('?')[0]);
}

export async function lookUp(page, { scope = '', principal = '', key }) {
    await visit(page, 'policies');
    await visit(page, 'key');
    await page.fill('#key-scope', scope);
    await page.fill('#key-principal', principal);
    await page.fill('#key-key', key);
    await page.press('#key-key', 'Enter');
    await page.waitForSelector('#content h2:text-is("Timeline")');
}

// Rows of every kind: claims in flight and abandoned, failed tries, policies, a decision.
export async function seed(database) {
    const statements = [
        ["SELECT idem_policy_set('payments/*', store_request => true, retention => '7 days', lease => '1 hour', keep_history => true)"],
        ["SELECT idem_policy_set('refunds', on_lease_expiry => 'unknown', keep_history => true, reason => 'the bank cannot be asked twice')"],
        [`SELECT idem_policy_set($1, ttl => '2 days')`, [HOSTILE_SCOPE]],
        [`SELECT idem_begin('order-7', '{"amount": 100, "to": "acme"}', scope => 'payments/charge', principal => 'acme', holder => 'worker-3')`],
        ["SELECT idem_begin($1, scope => $2, holder => $1, lease => '1 hour')", [HOSTILE, HOSTILE_SCOPE]],
        ["SELECT idem_begin('r-815', scope => 'refunds', holder => 'worker-1', lease => '10 ms')"],
        ["SELECT idem_begin($1, scope => 'refunds', holder => 'worker-2', lease => '10 ms')", [HOSTILE]],
        ["SELECT idem_begin('r-816', scope => 'refunds', holder => 'worker-2', lease => '10 ms')"],
        ["DO $$ BEGIN PERFORM pg_sleep(0.05); PERFORM idem_resolve('r-816', 'fail', scope => 'refunds', reason => 'ticket 816: the bank says no'); END $$"],
        ["SELECT idem_once('event-1', scope => 'stripe'), idem_once('event-1', scope => 'stripe')"],
    ];
    for (const [text, values] of statements) await run(database, text, values);
    await run(database, `DO $$ DECLARE claim idem_claim; BEGIN
        claim := idem_begin('evt_7', scope => 'payments/hook', holder => 'worker 1', lease => '1 min');
        PERFORM idem_fail('evt_7', scope => 'payments/hook', token => claim.token, error => 'connection refused <b>', retryable => true, retry_after => '0');
    END $$`);
    await run(database, `DO $$ DECLARE claim idem_claim; BEGIN
        claim := idem_begin('evt_7', scope => 'payments/hook', holder => 'worker 2', lease => '1 min');
        PERFORM idem_complete('evt_7', 200, scope => 'payments/hook', token => claim.token);
    END $$`);
}
