// The page: which view is shown, when it refreshes, and the state of the connection.
import { href, parse, useFirst } from './address.mjs';
import { ask, keepToken, takeToken } from './ask.mjs';
import { el, none, shown } from './build.mjs';
import { decisions } from './decisions.mjs';
import { encryption } from './encryption.mjs';
import { key } from './key.mjs';
import { now } from './now.mjs';
import { outcomes } from './outcomes.mjs';
import { overview } from './overview.mjs';
import { policies } from './policies.mjs';
import { concernsAll } from './problems.mjs';
import { records } from './records.mjs';
import { copyable } from './statements.mjs';
import { sweeper } from './sweeper.mjs';

const PAGES = [overview, records, key, now, outcomes, decisions, policies, sweeper, encryption];
const MOST_SECONDS = 5;
const REST = 10; // times as long as a refresh took: a slow page is asked for less often

const at = (id) => document.getElementById(id);
// rights: what the role may do; schema: where the functions are.
const context = { role: '', schema: null, rights: {} };

let current = null; // { page, view, content }
let turn = 0; // answers of an earlier turn come too late
let timer = null;
let againMs = MOST_SECONDS * 1000;
let paused = false;

function open() {
    const { page: name, asked } = parse(location.hash);
    const page = PAGES.find((candidate) => candidate.name === name) ?? overview;
    const content = el('div', { id: 'content', class: `on-${page.name}` });
    current = { page, view: page.start?.(reload, asked) ?? null, content };
    document.title = `${page.title} – idempotency console`;
    at('main').replaceChildren(el('div', { class: 'heading' }, el('h1', {}, page.title),
        page.once ? el('button', { type: 'button', id: 'again', onclick: reload }, 'Refresh') : null), content);
    if (current.view) content.append(...current.view.content);
    else content.append(el('p', { class: 'faint' }, 'Reading…'));
    showLinks(page);
    reload();
}

// The links lead to pages of the same database.
function showLinks(page) {
    at('nav').replaceChildren(...PAGES.map((one) => el('a', { href: href(one.name), 'aria-current': one === page ? 'page' : null }, one.title)));
    closeMenus();
}

async function reload() {
    clearTimeout(timer);
    const mine = ++turn;
    const { page, view } = current;
    const body = view && 'body' in view ? view.body : { filter: view?.filter ?? '' };
    const begun = performance.now();
    const [about, answer] = await Promise.all([ask('about'), body ? ask(page.name, body) : null]);
    if (mine !== turn) return;
    const lost = showConnection(about, answer);
    if (!body) view.clear();
    else show(answer, lost);
    if (about.every) againMs = Math.max(Math.min(about.every, MOST_SECONDS) * 1000, lost ? 0 : REST * (performance.now() - begun));
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
    const { page, view, content } = current;
    content.classList.toggle('stale', lost);
    if (lost) {
        if (current.shown) return;
        if (view?.unread) view.unread();
        else content.replaceChildren(el('p', { class: 'empty' }, 'Nothing has been read yet.'));
        current.unread = true;
        return;
    }
    const focused = document.activeElement?.dataset?.id ?? current.focused;
    if (current.unread && view && !view.unread) content.replaceChildren(...view.content);
    current.unread = false;
    if (view) view.show(answer, context, content);
    else content.replaceChildren(...page.show(answer, context).filter(Boolean));
    current.shown = true;
    if (focused && !document.activeElement?.dataset?.id) focusOn(focused);
}

function focusOn(id) {
    for (const element of current.content.querySelectorAll('[data-id]')) {
        if (element.dataset.id === id) element.focus({ preventScroll: true });
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

const RIGHTS = [['decides', 'operator'], ['administers', 'administrator'], ['monitors', 'monitor']];

function describeRole(known, about) {
    context.role = known.current_user;
    context.schema = known.schema;
    context.rights = known;
    useFirst(about.first);
    const who = [el('b', {}, shown(known.current_user)),
        ...(known.current_user === known.session_user ? [] : [el('span', { class: 'faint' }, ' (connected as ', shown(known.session_user), ')')]),
        ...RIGHTS.filter(([right]) => known[right]).map(([, name]) => el('span', { class: 'word' }, name))];
    replaceChanged(at('who'), who);
    replaceChanged(at('databases'), [databaseSwitch(known)]);
    replaceChanged(at('where'), ['Role ', el('b', {}, shown(known.current_user)), ', database ', el('b', {}, shown(known.database)), ' on ', shown(about.place),
        `, PostgreSQL ${known.server.split(' ')[0]}`, known.version ? `, idempotency ${known.version}${known.managed ? ' (without the module)' : ''}` : '', known.read_only === 'on' ? ', read only' : ', NOT READ ONLY']);
}

// An element keeps its focus, and an open menu stays, while its text is the same.
function replaceChanged(element, content) {
    const text = content.map((one) => one.dataset?.of ?? one.textContent ?? one).join('');
    if (element.dataset.shown === text) return;
    element.dataset.shown = text;
    element.replaceChildren(...content);
}

// The other databases are looked for when the menu opens.
function databaseSwitch(known) {
    const list = el('div', { class: 'choices' }, el('p', { class: 'faint' }, 'Looking…'));
    const menu = el('details', { class: 'menu', 'data-of': known.database }, el('summary', {}, shown(known.database)), list);
    menu.addEventListener('toggle', async () => {
        if (!menu.open) return;
        const { databases, problem } = await ask('databases');
        list.replaceChildren(...(problem ? [el('p', {}, problem.message)] : databases.map((one) =>
            el('a', { href: href('overview', {}, one.name), 'aria-current': one.name === known.database ? 'true' : null },
                shown(one.name), el('span', { class: 'faint' }, ` ${one.version}`)))));
        if (!problem && databases.length === 0) list.replaceChildren(el('p', { class: 'faint' }, 'No database has the extension.'));
    });
    return menu;
}

const HELP = {
    away: 'The database can\'t be reached. Trying again every few seconds. The values below are the last that were read.',
    password: 'The server does not accept the password. The console does not retry automatically, because that could lock the role. Correct PGPASSWORD or the password file, and restart the console. If the password was changed on the server or in the file, try again.',
    refused: 'The server does not let this role in. The console does not retry automatically.',
    console: 'The console is not running. Start it again and open the address that it prints.',
    token: 'This tab has no token. Paste the address that the console has printed, including the part after the #. Each run has its own token.',
    database: 'The database of this address can\'t be shown.',
};

function tokenForm() {
    const input = el('input', { id: 'token', type: 'password', autocomplete: 'off', required: true });
    return el('form', { class: 'filters', onsubmit: (event) => {
        event.preventDefault();
        if (keepToken(input.value)) open();
        else input.setCustomValidity('the address ends in #token= and its letters');
        input.reportValidity();
    } }, el('label', {}, el('span', {}, 'Address or token'), input), el('div', { class: 'do' }, el('button', { type: 'submit', class: 'main' }, 'Open')));
}

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
        loss.kind === 'token' ? tokenForm() : again);
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

function closeMenus() {
    at('menu').setAttribute('aria-expanded', 'false');
    document.body.classList.remove('with-menu');
    closeDatabases();
}

function closeDatabases() {
    at('databases').querySelector('details')?.removeAttribute('open');
}

// The same page with another search keeps the focus; another page takes it.
function follow() {
    const before = current?.page;
    const focused = document.activeElement?.dataset?.id;
    open();
    current.focused = current.page === before ? focused : null;
    if (!current.focused) at('main').focus({ preventScroll: false });
}

async function start() {
    await takeToken();
    at('who').replaceChildren(none('connecting'));
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
    at('menu').addEventListener('click', () => {
        const opened = document.body.classList.toggle('with-menu');
        at('menu').setAttribute('aria-expanded', String(opened));
    });
    addEventListener('keydown', (event) => {
        if (event.key === 'Escape') closeDatabases();
    });
    addEventListener('click', (event) => {
        if (!at('databases').contains(event.target)) closeDatabases();
    });
    addEventListener('hashchange', async () => {
        await takeToken();
        follow();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => reload());
    open();
}

start();
