// The page: which view is shown, when it refreshes, and the state of the connection.
import { abandoned } from './abandoned.mjs';
import { ask, takeToken } from './ask.mjs';
import { el, none, shown } from './build.mjs';
import { decisions } from './decisions.mjs';
import { encryption } from './encryption.mjs';
import { key } from './key.mjs';
import { now } from './now.mjs';
import { outcomes } from './outcomes.mjs';
import { policies } from './policies.mjs';
import { concernsAll } from './problems.mjs';
import { copyable } from './statements.mjs';
import { sweeper } from './sweeper.mjs';

const PAGES = [now, outcomes, abandoned, key, decisions, policies, sweeper, encryption];
const MOST_SECONDS = 5;

const at = (id) => document.getElementById(id);
const context = { role: '', schema: null, explain };

let current = null; // { page, view, content }
let turn = 0; // answers of an earlier turn come too late
let timer = null;
let againMs = MOST_SECONDS * 1000;
let paused = false;
let asked = null; // the key that another page wants to be explained

function explain({ scope, principal, key: name }) {
    asked = { scope, principal, key: name };
    if (location.hash === '#key') open();
    else location.hash = '#key';
}

function open() {
    const page = PAGES.find((candidate) => `#${candidate.name}` === location.hash) ?? now;
    const content = el('div', { id: 'content' });
    current = { page, view: page.start?.(reload, asked) ?? null, content };
    asked = null;
    document.title = `${page.title} – idempotency console`;
    at('main').replaceChildren(el('h1', {}, page.title), content);
    if (current.view) content.append(...current.view.content);
    else content.append(el('p', { class: 'faint' }, 'Reading…'));
    for (const link of at('nav').children) {
        if (link.hash === `#${page.name}`) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
    }
    reload();
}

async function reload() {
    clearTimeout(timer);
    const mine = ++turn;
    const { page, view } = current;
    const body = view ? view.body ?? (page.once ? null : { filter: view.filter ?? '' }) : {};
    const [about, answer] = await Promise.all([ask('about'), body ? ask(page.name, body) : null]);
    if (mine !== turn) return;
    const lost = showConnection(about, answer);
    if (!body) view.clear();
    else show(answer, lost);
    if (about.every) againMs = Math.min(about.every, MOST_SECONDS) * 1000;
    timer = setTimeout(tick, againMs);
}

// A refresh spares a selection, a paused view, and data that is read only on request.
async function tick() {
    const marks = !getSelection().isCollapsed && at('content').contains(getSelection().anchorNode);
    if (paused || document.hidden || marks) {
        timer = setTimeout(tick, 1000);
        return;
    }
    if (!current.page.once) {
        reload();
        return;
    }
    const mine = turn;
    const about = await ask('about');
    if (mine !== turn) return;
    showConnection(about, null);
    timer = setTimeout(tick, againMs);
}

function show(answer, lost) {
    current.content.classList.toggle('stale', lost);
    if (lost) {
        if (current.shown) return;
        if (!current.view) current.content.replaceChildren(el('p', { class: 'empty' }, 'Nothing has been read yet.'));
        else current.view.unread?.();
        return;
    }
    const focused = document.activeElement?.dataset?.id;
    if (current.view) current.view.show(answer, context);
    else current.content.replaceChildren(...current.page.show(answer, context).filter(Boolean));
    current.shown = true;
    if (focused && !document.activeElement?.dataset?.id) {
        for (const element of current.content.querySelectorAll('[data-id]')) {
            if (element.dataset.id === focused) element.focus({ preventScroll: true });
        }
    }
}

// ---- the connection ----

const firstLoss = (about, answer) => [about.problem, about.about?.problem, answer?.problem,
    ...Object.values(answer ?? {}).map((part) => part?.problem)].find(concernsAll);

// Shows a problem of the connection above every view. Returns whether it is lost.
function showConnection(about, answer) {
    const loss = firstLoss(about, answer);
    const known = about.about?.rows?.[0];
    if (known) describeRole(known, about);
    const said = loss ? [lossBox(loss, about)] : known ? notes(known, about) : [];
    const text = said.map((box) => box.textContent).join('\n');
    // Announced once to screen readers, not at every refresh; an element there keeps the focus.
    if (at('banner').textContent !== text) at('banner').replaceChildren(...said);
    return Boolean(loss);
}

function describeRole(known, about) {
    context.role = known.current_user;
    context.schema = known.schema;
    at('where').replaceChildren('Role ', el('b', {}, shown(known.current_user)),
        ...(known.current_user === known.session_user ? [] : [' (connected as ', shown(known.session_user), ')']),
        ', database ', el('b', {}, shown(known.database)), ' on ', shown(about.place), `, PostgreSQL ${known.server.split(' ')[0]}`,
        known.version ? `, idempotency ${known.version}` : '', known.read_only === 'on' ? ', read only' : ', NOT READ ONLY');
}

const HELP = {
    away: 'The database can\'t be reached. Trying again every few seconds. The values below are the last that were read.',
    password: 'The server does not accept the password. The console does not retry automatically, because that could lock the role. Correct PGPASSWORD or the password file, and restart script/console. If the password was changed on the server or in the file, try again.',
    refused: 'The server does not let this role in. The console does not retry automatically.',
    console: 'The console is not running. Start script/console again and open the address that it prints.',
    token: 'Open the address that script/console has printed, including the part after the #. Each run has its own token.',
};

function lossBox(loss, about) {
    const again = ['password', 'refused'].includes(loss.kind)
        ? el('button', { type: 'button', onclick: async (event) => {
            event.target.disabled = true;
            await ask('retry');
            event.target.disabled = false;
            reload();
        } }, 'Try again') : null;
    return el('div', { class: 'problem bad', 'data-kind': loss.kind },
        el('p', {}, HELP[loss.kind]),
        ['console', 'token'].includes(loss.kind) ? null
            : el('p', { class: 'faint' }, about.role ? `Role ${about.role} on ${about.place}: ${loss.message}` : loss.message),
        again);
}

function notes(known, about) {
    const said = [];
    if (!known.version) {
        said.push(el('div', { class: 'problem', 'data-kind': 'no-extension' },
            el('p', {}, 'The extension idempotency is not in the database ', shown(known.database), '. A superuser creates it:'),
            copyable('Create', 'CREATE EXTENSION idempotency;')));
    } else if (about.expected && known.version !== about.expected) {
        said.push(el('div', { class: 'note', 'data-kind': 'version' },
            `The extension has version ${known.version}, this console ${about.expected}. Pages show which views or columns are missing.`));
    }
    if (known.standby) {
        said.push(el('div', { class: 'note', 'data-kind': 'standby' },
            'This is a standby: records are as they have arrived here. Transactions that hold keys, counters and sweepers of the primary can\'t be seen here. Decide on the primary.'));
    }
    return said;
}

// ---- the frame ----

function start() {
    takeToken();
    at('nav').replaceChildren(...PAGES.map((page) => el('a', { href: `#${page.name}` }, page.title)));
    at('where').replaceChildren(none('connecting'));
    at('skip').addEventListener('click', (event) => {
        event.preventDefault();
        at('main').focus();
    });
    at('pause').addEventListener('click', () => {
        paused = !paused;
        at('pause').setAttribute('aria-pressed', String(paused));
        at('pause').textContent = paused ? 'Paused' : 'Pause';
        if (!paused) reload();
    });
    addEventListener('hashchange', () => {
        takeToken();
        open();
        at('main').focus({ preventScroll: false });
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => reload());
    open();
}

start();
