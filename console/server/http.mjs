// The page and its answers, on the loopback. The access rules:
//  - The address is bound to 127.0.0.1, so no other machine reaches it.
//  - Every answer from the database needs the token of this run. It is in the part of the address that
//    browsers send nowhere: other users of the machine reach the port, but do not have it. It is no
//    cookie, because browsers send cookies to every port of the host, also to other users' programs.
//  - A Host other than ours is refused, so a foreign name that points here (DNS rebinding) is not served.
//    Scripts of other sites can't ask: they neither know the token nor can send the header.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { about } from './about.mjs';
import { overview } from './overview.mjs';
import * as questions from './questions.mjs';
import { records } from './records.mjs';

const MOST_BYTES = 1 << 20; // of what the page sends

const HEADERS = {
    'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
        "require-trusted-types-for 'script'; trusted-types 'none'",
    'X-Content-Type-Options': 'nosniff',
    'X-Frame-Options': 'DENY',
    'Referrer-Policy': 'no-referrer',
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Cache-Control': 'no-store',
};

const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', mjs: 'text/javascript; charset=utf-8', js: 'text/javascript; charset=utf-8', svg: 'image/svg+xml' };

const PAGE = join(dirname(fileURLToPath(import.meta.url)), '..', 'page');
const UPLOT = dirname(createRequire(import.meta.url).resolve('uplot'));
// Read once at the start: the list of files is fixed, and no path of a request ever names a file.
function loadFiles() {
    const files = new Map(readdirSync(PAGE).map((name) => [`/${name}`, load(join(PAGE, name))]));
    files.set('/', files.get('/index.html'));
    files.set('/uPlot.js', load(join(UPLOT, 'uPlot.esm.js')));
    files.set('/uPlot.css', load(join(UPLOT, 'uPlot.min.css')));
    return files;
}

function load(path) {
    return { type: TYPES[path.split('.').pop()], content: readFileSync(path) };
}

const digest = (text) => createHash('sha256').update(text).digest();

// Of each database: { database, sampler, counts, first }.
const ANSWERS = {
    '/api/about': async ({ database, sampler, first }) => ({ ...(await about(database)), every: sampler.every, first }),
    '/api/overview': ({ database }) => overview(database),
    '/api/counts': ({ counts }, asked) => counts.answer(asked),
    '/api/records': ({ database }, asked) => records(database, asked),
    '/api/in_flight': ({ database }) => questions.inFlight(database),
    '/api/sweeper': ({ database }) => questions.sweeper(database),
    '/api/policies': ({ database }, asked) => questions.policies(database, asked),
    '/api/decisions': ({ database }) => questions.decisions(database),
    '/api/encryption': ({ database }) => questions.encryption(database),
    '/api/key': ({ database }, asked) => questions.key(database, asked),
    '/api/outcomes': ({ sampler }, asked) => sampler.answer(asked),
    '/api/retry': ({ database }) => database.retry().then(() => about(database)),
};

// { address, close }
export async function serve({ databases, port, token = randomBytes(32).toString('base64url') }) {
    const files = loadFiles();
    const expected = digest(`Bearer ${token}`);
    const server = createServer((request, response) => {
        handle(request, response).catch(() => refuse(response, 500, 'the console has failed'));
    });
    server.maxConnections = 100;

    async function handle(request, response) {
        const own = server.address().port;
        if (![`127.0.0.1:${own}`, `localhost:${own}`].includes(request.headers.host)) {
            return refuse(response, 421, 'not a name of this console');
        }
        const path = request.url.split('?')[0];
        if (!path.startsWith('/api/')) return sendFile(request, response, files.get(path));
        if (!timingSafeEqual(digest(request.headers.authorization ?? ''), expected)) {
            return refuse(response, 401, 'the token is missing or of another run');
        }
        if (isForeign(request.headers)) return refuse(response, 403, 'asked by another site');
        if (path !== '/api/databases' && !Object.hasOwn(ANSWERS, path)) return refuse(response, 404, 'no such answer');
        if (request.method !== 'POST') return refuse(response, 405, 'POST is wanted');
        const asked = await readJson(request);
        if (!asked) return refuse(response, 400, 'a JSON object of a megabyte at most is wanted');
        return send(response, 200, 'application/json; charset=utf-8', JSON.stringify(await answer(path, asked)));
    }

    async function answer(path, asked) {
        if (path === '/api/databases') return databases.list();
        const named = typeof asked.database === 'string' && asked.database !== '' ? asked.database : null;
        const of = await databases.of(named);
        if (!of) return { problem: { kind: 'database', message: 'the server has no such database with the extension, or this role may not connect to it' } };
        return ANSWERS[path](of, asked);
    }

    await new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, '127.0.0.1', resolve);
    });
    return {
        address: `http://127.0.0.1:${server.address().port}/#token=${token}`,
        close() {
            server.close();
            server.closeAllConnections();
        },
    };
}

function isForeign(headers) {
    const site = headers['sec-fetch-site'];
    return (site !== undefined && site !== 'same-origin') ||
        (headers.origin !== undefined && headers.origin !== `http://${headers.host}`);
}

function sendFile(request, response, file) {
    if (request.method !== 'GET') return refuse(response, 405, 'GET is wanted');
    if (!file) return refuse(response, 404, 'no such page');
    return send(response, 200, file.type, file.content);
}

function refuse(response, status, why) {
    if (response.headersSent) response.destroy();
    else send(response, status, 'text/plain; charset=utf-8', `${why}\n`);
}

function send(response, status, type, content) {
    response.writeHead(status, { ...HEADERS, 'Content-Type': type });
    response.end(content);
}

// An object, or null.
async function readJson(request) {
    const chunks = [];
    let bytes = 0;
    for await (const chunk of request) {
        bytes += chunk.length;
        if (bytes <= MOST_BYTES) chunks.push(chunk);
    }
    if (bytes > MOST_BYTES) return null; // read to its end, so that the answer is heard
    try {
        const value = JSON.parse(Buffer.concat(chunks).toString('utf8') || '{}');
        return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null;
    } catch {
        return null;
    }
}
