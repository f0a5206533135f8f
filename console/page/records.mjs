// Finding records. What is looked for stands in the address, so a search can be kept and passed on.
import { href } from './address.mjs';
import { Selection } from './bulk.mjs';
import { counted, dateOf, el, holder, moment, number, span, word } from './build.mjs';
import { choice, field, labelled, valueOf } from './fields.mjs';
import { part } from './problems.mjs';
import { keyColumns } from './rows.mjs';
import { copyable } from './statements.mjs';
import { nodeColumn, table } from './tables.mjs';

const STATUSES = [['', 'any'], ['waiting', 'needs a person'], ['unknown', 'unknown'], ['exhausted', 'exhausted'], ['abandoned', 'abandoned'],
    ['running', 'running'], ['retryable', 'retryable'], ['failed', 'failed'], ['completed', 'completed']];

// Spans of time by their name in the address.
const CLAIMED = [['', 'at any time'], ['last-15 minutes', 'in the last 15 minutes'], ['last-1 hour', 'in the last hour'], ['last-1 day', 'in the last day'],
    ['over-1 hour', 'over an hour ago'], ['over-1 day', 'over a day ago'], ['over-7 days', 'over a week ago'], ['between', 'between…']];

const FILTERS = ['key', 'scope', 'principal', 'holder', 'status', 'claimed', 'from', 'until'];

// The question to the server.
function questionOf(asked) {
    const [which, amount] = (asked.claimed ?? '').split(/-(.*)/s);
    const at = (text) => (text && asked.claimed === 'between' && !Number.isNaN(Date.parse(text)) ? new Date(text).toISOString() : '');
    const rowOf = (text) => {
        try {
            return JSON.parse(text);
        } catch {
            return null;
        }
    };
    return {
        key: asked.key, scope: asked.scope, principal: asked.principal, holder: asked.holder, status: asked.status,
        newer_than: which === 'last' ? amount : '', older_than: which === 'over' ? amount : '',
        from: at(asked.from), until: at(asked.until),
        sort: asked.sort, order: asked.order,
        ...(asked.after ? { after: rowOf(asked.after) } : {}), ...(asked.before ? { before: rowOf(asked.before) } : {}),
    };
}

const filtersOf = (asked) => Object.fromEntries(FILTERS.map((name) => [name, asked[name]]).filter(([, value]) => value));

// A column's title that sorts by it, and the other way when it does already.
function sorting(title, name, asked) {
    const [sort, order] = [asked.sort ?? 'key', asked.order ?? 'asc'];
    const next = sort === name ? (order === 'asc' ? 'desc' : 'asc') : name === 'claimed_at' ? 'desc' : 'asc';
    const mark = sort === name ? (order === 'asc' ? ' ↑' : ' ↓') : '';
    return {
        sorted: sort === name ? `${order}ending` : null,
        head: el('a', { href: href('records', { ...filtersOf(asked), sort: name, order: next }), 'data-id': `sort ${name}` }, title, el('span', { 'aria-hidden': 'true' }, mark)),
    };
}

const note = (...text) => el('div', { class: 'faint' }, ...text);

// A claim in progress whose lease has expired is abandoned, as in the filter and on the first page.
function status(row) {
    const unended = row.left !== null && !row.finished_at;
    return el('div', {}, word(row.status === 'in_progress' && row.left <= 0 ? 'abandoned' : row.status), row.status_code ? ` ${row.status_code}` : '',
        unended ? note(row.left > 0 ? `lease: ${span(row.left)}` : `expired ${span(-row.left)} ago`) : null);
}

function claimed(row) {
    const took = row.finished_at ? (dateOf(row.finished_at) - dateOf(row.claimed_at)) / 1000 : null;
    return el('div', {}, moment(row.claimed_at), took === null ? null : note('ended after ', span(took)));
}

function columns(asked, selection) {
    return [
        { title: 'Select', head: selection.all(), of: (row) => selection.box(row), kind: 'box' },
        { title: 'Status', of: status },
        { ...keyColumns[0], ...sorting('Key', 'key', asked) },
        { ...keyColumns[1], ...sorting('Scope', 'scope', asked) },
        keyColumns[2],
        { title: 'Attempt', of: (row) => number(row.attempt), kind: 'number', if: (row) => row.attempt > 1 },
        { title: 'Holder', of: holder, kind: 'text', if: (row) => row.holder !== null || row.sealed_by },
        { title: 'Claimed', of: claimed, ...sorting('Claimed', 'claimed_at', asked) },
        nodeColumn,
    ];
}

const ADVICE = 'Begin with the key: the beginning of a key is found at once, however many records there are. A search by principal, holder or time reads the table; an index helps where it is often wanted. It makes each write a little slower:';

class Records {
    constructor(reload, asked) {
        this.asked = asked;
        this.body = questionOf(asked);
        this.form = this.#form();
        this.found = el('div', { id: 'found' }, el('p', { class: 'faint' }, 'Reading…'));
        this.content = [this.form, this.found];
    }

    #form() {
        const { asked } = this;
        const fields = Object.fromEntries(['key', 'scope', 'principal', 'holder'].map((name) => [name,
            field(`find-${name}`, asked[name], { maxlength: 2000, placeholder: { scope: 'exact, or payments/*', key: 'begins with' }[name] })]));
        fields.status = choice('find-status', STATUSES, asked.status ?? '');
        fields.claimed = choice('find-claimed', CLAIMED, asked.claimed ?? '');
        for (const name of ['from', 'until']) fields[name] = el('input', { id: `find-${name}`, type: 'datetime-local', value: asked[name] ?? '' });
        const between = el('div', { class: 'between' }, labelled('From', fields.from), labelled('Until', fields.until));
        const showBetween = () => { between.hidden = fields.claimed.value !== 'between'; };
        const go = () => {
            const wanted = Object.fromEntries(Object.entries(fields).map(([name, input]) => [name, ['from', 'until', 'status', 'claimed'].includes(name) ? input.value : valueOf(input)]));
            if (wanted.claimed !== 'between') wanted.from = wanted.until = '';
            location.hash = href('records', { ...wanted, sort: asked.sort, order: asked.order });
        };
        fields.claimed.addEventListener('change', () => {
            showBetween();
            if (fields.claimed.value !== 'between') go();
        });
        fields.status.addEventListener('change', go);
        showBetween();
        return el('form', { id: 'find', class: 'filters', onsubmit: (event) => {
            event.preventDefault();
            go();
        } },
        labelled('Key', fields.key), labelled('Scope', fields.scope), labelled('Principal', fields.principal), labelled('Holder', fields.holder),
        labelled('Status', fields.status), labelled('Claimed', fields.claimed), between,
        el('div', { class: 'do' }, el('button', { type: 'submit', class: 'main', id: 'find-go' }, 'Find'),
            el('a', { href: href('records'), class: 'button' }, 'Clear')));
    }

    show(answer, context) {
        this.found.replaceChildren(...[part('idempotency.records', answer.records, context, (rows) => this.#rows(rows, answer, context)),
            answer.records.problem?.kind === 'timeout' ? this.#advice() : null].flat().filter(Boolean));
    }

    #rows(rows, answer, context) {
        if (rows.length === 0) return this.#nothing();
        const selection = new Selection(filtersOf(this.asked), rows, context);
        return [
            table('Records', columns(this.asked, selection), rows, ''),
            this.#pages(rows, answer),
            selection.panel,
        ];
    }

    #nothing() {
        const { key, scope, principal } = this.asked;
        return el('div', { class: 'empty' }, el('p', {}, 'No record is like that.'),
            key ? el('p', {}, el('a', { href: href('key', { key, scope: scope?.endsWith('*') ? '' : scope, principal }) }, 'Explain what a request with this key would get')) : null);
    }

    #pages(rows, { before, after }) {
        const to = (title, place, name) => (place ? el('a', { class: 'button', 'data-id': name, id: `page-${name}`, rel: name === 'after' ? 'next' : 'prev',
            href: href('records', { ...filtersOf(this.asked), sort: this.asked.sort, order: this.asked.order, [name]: JSON.stringify(place) }) }, title)
            : el('span', { class: 'button off' }, title));
        return el('p', { class: 'pages' }, to('← Previous', before, 'before'), to('Next →', after, 'after'),
            el('span', { class: 'faint' }, counted(rows.length, 'record'), ' on this page'));
    }

    #advice() {
        return el('div', { class: 'note' }, el('p', {}, ADVICE),
            copyable('Index', 'CREATE INDEX CONCURRENTLY ON idempotency.record (principal, claimed_at);'),
            copyable('Index of claims', 'CREATE INDEX CONCURRENTLY ON idempotency.record (claimed_at);'));
    }
}

export const records = {
    title: 'Records',
    name: 'records',
    once: true, // a search is not repeated by itself
    start: (reload, asked) => new Records(reload, asked),
};
