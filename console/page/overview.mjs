// The first page: what needs a person, whether the parts work, how many records there are.
import { href } from './address.mjs';
import { ask } from './ask.mjs';
import { counted, el, moment, none, number, shown, size, span, word } from './build.mjs';
import { decisionColumns } from './decisions.mjs';
import { concernsAll, part, problem } from './problems.mjs';
import { table } from './tables.mjs';

const COUNTS_MS = 60000;
const ORDER = ['completed', 'failed', 'retryable', 'in_progress', 'abandoned', 'unknown', 'exhausted'];

const NEEDS = [
    { status: 'unknown', title: 'Unknown', what: 'outcome to find out and decide', tone: 'bad' },
    { status: 'exhausted', title: 'Exhausted', what: 'attempts used up', tone: 'bad' },
    { status: 'abandoned', title: 'Abandoned', what: 'lease expired without a result', tone: 'warn' },
];

function card({ id, title, value, tone, link, detail }) {
    const open = value !== '0';
    return el('a', { class: `card ${open ? tone : 'calm'}`, href: link, 'data-id': `card ${id}`, id: `card-${id}` },
        el('span', { class: 'title' }, title), el('span', { class: 'value' }, value), el('span', { class: 'detail' }, detail));
}

function waiting(rows) {
    return NEEDS.map(({ status, title, what, tone }) => {
        const row = rows.find((one) => one.status === status);
        return card({ id: status, title, tone, link: href('records', { status }), value: number(row?.records ?? 0),
            detail: row ? `${what}; the oldest ${span(row.oldest)}` : 'none' });
    });
}

function backlog(rows) {
    const rest = rows.reduce((sum, row) => sum + (row.backlog ?? 0), 0);
    const behind = Math.max(0, ...rows.map((row) => row.behind ?? 0));
    return card({ id: 'backlog', title: 'Backlog', tone: 'warn', link: href('sweeper'), value: number(rest) + (rows.some((row) => row.backlog >= 10000) ? '+' : ''),
        detail: rest > 0 ? `expired records, the oldest ${span(behind)} late` : 'no expired record is left' });
}

function missingKeys(keys) {
    const rows = keys.rows ?? [];
    const ids = new Set(rows.filter((row) => row.key_id !== null && !row.available).map((row) => row.key_id));
    const sealed = rows.filter((row) => row.key_id !== null && !row.available).reduce((sum, row) => sum + row.records, 0);
    return card({ id: 'keys', title: 'Missing keys', tone: 'bad', link: href('encryption'), value: number(ids.size),
        detail: ids.size > 0 ? `${counted(sealed, 'record')} can't be opened` : 'every sealed record can be opened' });
}

function closedScopes(row) {
    if (!row || row.closed === 0) return null;
    return card({ id: 'closed', title: 'Closed scopes', tone: 'bad', link: href('policies'), value: number(row.closed),
        detail: 'their role does not exist' });
}

// ---- health ----

const light = (tone, title, ...said) => el('div', { class: `light ${tone}` }, el('dt', {}, el('i', { 'aria-hidden': 'true' }), title,
    el('span', { class: 'hidden' }, tone === 'good' ? ' (in order)' : tone === 'off' ? '' : ' (needs attention)')), el('dd', {}, ...said));

const onNode = (row) => (row.node ? [' of ', shown(row.node)] : []);

function sweeperLight(row, managed) {
    if (managed && row.failures === 0) return light('off', 'Sweeper', 'Calls remove expired records beside their work, or pg_cron does');
    if (row.failures > 0) return light('bad', 'Sweeper', el('a', { href: href('sweeper') }, `The last ${row.failures} visits failed`), ...onNode(row));
    if (row.launcher_pid === null) return light('warn', 'Sweeper', 'No launcher runs: expired records are not removed by themselves', ...onNode(row));
    if (!row.last_run) return light('good', 'Sweeper', 'Runs; it has had no work yet', ...onNode(row));
    return light('good', 'Sweeper', 'Last visit ', moment(row.last_run), `, ${counted(row.last_rows ?? 0, 'row')} removed`, ...onNode(row));
}

function storeLights(rows, managed) {
    if (managed) return [light('off', 'Edition', 'without the module, on any server')];
    const slow = rows.filter((row) => row.store !== 'heap');
    if (slow.length === 0) return [light('good', 'Store', rows.length === 1 ? 'heap' : `heap, ${counted(rows.length, 'table')}`)];
    return slow.slice(0, 3).map((row) => light('warn', 'Store', 'sql: ', row.why ? shown(row.why) : none()));
}

function keysLight(keys, policies) {
    if (!keys) return light('off', 'Encryption', 'Not counted yet');
    if (keys.problem) return light('warn', 'Encryption', keys.problem.message);
    const encrypting = policies?.encrypting ?? 0;
    const without = keys.rows.filter((row) => row.key_id === null);
    const current = [...new Set(keys.rows.filter((row) => row.current).map((row) => row.key_id))];
    if (keys.rows.some((row) => row.key_id !== null && !row.available)) return light('bad', 'Encryption', el('a', { href: href('encryption') }, 'A key of sealed records is missing'));
    if (without.length > 0 && encrypting > 0) return light('bad', 'Encryption', `${counted(encrypting, 'policy', 'policies')} with encrypt, but no keys: requests are refused`);
    if (current.length === 0) return light('off', 'Encryption', 'Not used');
    return light('good', 'Encryption', 'The current key is ', ...current.flatMap((id, at) => [at > 0 ? ', ' : '', shown(id)]));
}

function runningLight(row) {
    const parts = [row.leased > 0 ? counted(row.leased, 'lease') : '', row.transactions > 0 ? counted(row.transactions, 'transaction') : ''].filter(Boolean);
    return light(parts.length > 0 ? 'good' : 'off', 'In flight', parts.length === 0 ? 'Nothing'
        : el('a', { href: href('in_flight') }, parts.join(', ')), row.oldest ? `, the oldest for ${span(row.oldest)}` : '');
}

// ---- records ----

// A bar of all statuses. Their shares are also the table below it.
function bar(rows, all) {
    const svg = (tag, properties, ...children) => {
        const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
        for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
        element.append(...children);
        return element;
    };
    let x = 0;
    return svg('svg', { class: 'bar', viewBox: '0 0 1000 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, ...rows.map((row) => {
        const width = Math.max(4, (row.records / all) * 1000);
        const rect = svg('rect', { class: `share ${row.status}`, x, y: 0, width, height: 10 });
        x += width;
        return rect;
    }));
}

const percent = (share) => (share < 0.0001 ? '< 0.01 %' : `${(share * 100).toFixed(share < 0.1 ? 2 : 1)} %`);

function byStatus(found) {
    const rows = ORDER.map((status) => found.find((row) => row.status === status)).filter(Boolean);
    if (rows.length === 0) return el('p', { class: 'empty' }, 'There are no records yet.');
    const all = rows.reduce((sum, row) => sum + row.records, 0);
    return el('div', {}, bar(rows, all),
        el('ul', { class: 'shares' }, ...rows.map((row) => el('li', {},
            el('a', { href: href('records', { status: row.status === 'in_progress' ? 'running' : row.status }), 'data-id': `share ${row.status}` },
                el('i', { class: `dot ${row.status}`, 'aria-hidden': 'true' }), el('span', { class: 'name' }, row.status),
                el('span', { class: 'count' }, number(row.records)),
                el('span', { class: 'share' }, percent(row.records / all)))))));
}

class Overview {
    #counts = null;
    #askedAt = 0;
    #reload;

    constructor(reload) {
        this.#reload = reload;
        this.content = [el('p', { class: 'faint' }, 'Reading…')];
    }

    #count(again) {
        if (!again && Date.now() - this.#askedAt < COUNTS_MS) return;
        this.#askedAt = Date.now();
        ask('counts', { again }).then((answer) => {
            this.#counts = answer;
            this.#reload();
        });
    }

    show(answer, context, into) {
        this.#count(false);
        const row = (found) => found.rows?.[0];
        const keys = this.#counts?.keys;
        const views = ['waiting', 'running', 'sweeper', 'stores', 'policies'].map((name) => answer[name].problem)
            .filter((found) => found && !concernsAll(found));
        into.replaceChildren(...[
            views.length > 0 ? problem('the views of idempotency', views[0], context) : null,
            el('section', {}, el('h2', {}, 'Needs a person'),
                el('div', { class: 'deck' }, ...[
                    ...(answer.waiting.rows ? waiting(answer.waiting.rows) : []),
                    answer.sweeper.rows ? backlog(answer.sweeper.rows) : null,
                    keys?.rows ? missingKeys(keys) : null,
                    closedScopes(row(answer.policies)),
                ].filter(Boolean))),
            el('div', { class: 'columns' },
                el('section', { class: 'panel', id: 'health' }, el('h2', {}, 'Health'), el('dl', { class: 'lights' }, ...[
                    ...(answer.sweeper.rows ?? []).map((one) => sweeperLight(one, context.rights.managed)),
                    ...(answer.stores.rows ? storeLights(answer.stores.rows, context.rights.managed) : []),
                    keysLight(keys, row(answer.policies)),
                    row(answer.running) ? runningLight(row(answer.running)) : null,
                    row(answer.policies) ? light('off', 'Policies', el('a', { href: href('policies') }, counted(row(answer.policies).policies, 'policy', 'policies'))) : null,
                ].filter(Boolean))),
                el('section', { class: 'panel', id: 'records' }, el('h2', {}, 'Records'), this.#records(row(answer.size), context))),
            el('section', {}, el('h2', {}, 'Latest decisions'), part('idempotency.decisions', answer.decisions, context,
                (rows) => table('Latest decisions', decisionColumns, rows, 'There are no decisions.'))),
        ].filter(Boolean));
    }

    #records(stored, context) {
        const disk = stored ? el('p', { class: 'faint' }, `${size(stored.bytes)} on disk, ${size(stored.index_bytes)} of indexes.`) : null;
        const answer = this.#counts;
        if (!answer) return el('div', {}, el('p', { class: 'faint' }, 'Counting…'), disk);
        if (answer.tooMany) {
            return el('div', {}, el('p', {}, `About ${number(Math.round(stored?.estimate ?? 0))} records. Counting them by status reads the whole table.`),
                el('button', { type: 'button', id: 'count', 'data-id': 'count', onclick: () => this.#count(true) }, 'Count now'), disk);
        }
        if (answer.problem) return concernsAll(answer.problem) ? null : problem('idempotency.records', answer.problem, context);
        return el('div', {}, part('idempotency.records', answer.counts, context, byStatus), disk);
    }
}

export const overview = {
    title: 'Overview',
    name: 'overview',
    start: (reload) => new Overview(reload),
};
