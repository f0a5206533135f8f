// Starts idempotency-console with libpq's environment, and reads its page as a browser does.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';

const PAGES = ['about', 'overview', 'counts', 'records', 'in_flight', 'sweeper', 'policies', 'decisions', 'encryption', 'outcomes'];
const program = spawn('idempotency-console', { stdio: ['ignore', 'pipe', 'inherit'] });
const limit = setTimeout(() => program.kill('SIGKILL'), 60000);

async function firstLine(stream) {
    let text = '';
    for await (const chunk of stream) {
        text += chunk;
        if (text.includes('\n')) break;
    }
    return text.trim();
}

async function get(address) {
    const response = await fetch(address);
    assert.equal(response.status, 200, address);
    return response.text();
}

async function ask(page) {
    const response = await fetch(new URL(`/api/${page}`, base), {
        method: 'POST', headers: { authorization: `Bearer ${token}` }, body: '{}',
    });
    assert.equal(response.status, 200, page);
    return response.json();
}

// The page, and each file that it or another one names.
async function readFiles() {
    const left = ['/'];
    const seen = new Set(left);
    while (left.length > 0) {
        const text = await get(new URL(left.pop(), base));
        for (const [, name] of text.matchAll(/(?:src|href|from )=?["']\.?\/?([\w.]+\.(?:mjs|js|css|svg))["']/g)) {
            if (!seen.has(name)) left.push(name);
            seen.add(name);
        }
    }
    return seen.size;
}

const address = new URL(await firstLine(program.stdout));
const base = address.origin;
const token = address.hash.replace('#token=', '');
try {
    const files = await readFiles();
    assert.ok(files > 15, `${files} files`);
    for (const page of PAGES) {
        const answer = await ask(page);
        assert.ok(!answer.problem, `${page}: ${answer.problem?.message}`);
    }
    assert.match(JSON.stringify(await ask('records')), /"shown"/);
    console.log(`node ${process.version}: ${files} files, ${PAGES.length} answers`);
} finally {
    program.kill();
    clearTimeout(limit);
}
