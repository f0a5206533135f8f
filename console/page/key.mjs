// One key: a summary, its timeline, the statement that decides it, then the details.
import { href } from './address.mjs';
import { el, holder, moment, none, number, shown, span, word } from './build.mjs';
import { decideForm } from './decide.mjs';
import { field, labelled, valueOf } from './fields.mjs';
import { inForce } from './options.mjs';
import { concernsAll, part, problem } from './problems.mjs';
import { decision } from './statements.mjs';
import { facts, table } from './tables.mjs';
import { timeline } from './timeline.mjs';

const SPANS = new Set(['seconds', 'left', 'overdue', 'age', 'query_age']);
const isMoment = (value) => typeof value === 'string' && /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d/.test(value);
const iso = (text) => (text ? text.replace('T', ' ') : text);

// A member of one of the explanation's objects.
function value(name, member) {
    if (SPANS.has(name) && typeof member === 'number') return span(member);
    if (name !== 'holder' && name !== 'error' && isMoment(member)) return moment(iso(member));
    if (typeof member === 'boolean') return member ? 'yes' : 'no';
    if (typeof member === 'number') return name === 'pid' ? String(member) : number(member);
    return shown(typeof member === 'string' ? member : JSON.stringify(member));
}

const TITLES = { seconds: 'length' };

// The most wanted members first. The server's order is another.
const FIRST = ['kind', 'status', 'attempt', 'pid', 'holder', 'application_name', 'user', 'state', 'error', 'created_at', 'claimed_at',
    'finished_at', 'until', 'left', 'overdue'];
const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

function object(title, members, without = []) {
    if (!members) return null;
    const pairs = Object.entries(members).filter(([name]) => !without.includes(name))
        .sort(([one], [other]) => place(one) - place(other));
    return el('section', { class: 'panel' }, el('h3', {}, title), facts(title, pairs.map(([name, member]) => [TITLES[name] ?? name.replaceAll('_', ' '), value(name, member)])));
}

const differenceColumns = [
    { title: 'Where', of: (row) => shown(row.path), kind: 'text' },
    { title: 'How', of: (row) => row.how },
];

function requestParts(request) {
    if (!request) return null;
    return el('div', {}, object('Request', request, ['differ', 'more']),
        request.differ ? el('section', {}, el('h3', {}, 'Differences'),
            table('Differences', differenceColumns, request.differ, 'No field that counts differs.'),
            request.more ? el('p', { class: 'faint' }, 'There are more.') : null) : null);
}

// ---- the summary ----

function head(asked, record, node) {
    return el('div', { class: 'head' },
        el('h2', { class: 'key' }, shown(asked.key), record ? word(record.status) : el('span', { class: 'word' }, 'no record')),
        el('p', { class: 'faint' }, 'scope ', el('b', {}, asked.scope ? shown(asked.scope) : none('(empty)')),
            ', principal ', el('b', {}, asked.principal ? shown(asked.principal) : none('(empty)')), ...(node ? [', node ', shown(node)] : [])));
}

function answer(e) {
    return el('div', { class: 'answer', id: 'answer' },
        el('p', { class: 'outcome' }, 'idem_begin would answer ', word(e.outcome), e.execution ? el('span', { class: 'faint' }, ` (${e.execution})`) : null),
        el('p', {}, e.why, ' ', e.next),
        e.retry_at ? el('p', {}, 'Retry at ', moment(iso(e.retry_at)), `, in ${span(e.retry_after)}.`) : null,
        ...(e.notes ?? []).map((note) => el('p', { class: 'note' }, note)),
        el('p', { class: 'faint' }, 'As of ', moment(iso(e.explained_at)), '.'));
}

function summary(record, lease) {
    if (!record) return null;
    const left = lease?.left ?? null;
    return facts('Summary', [
        ['Attempt', number(record.attempt)],
        ['Holder', record.holder || record.sealed_by ? holder({ holder: null, ...record }) : none()],
        ['Claimed', moment(iso(record.claimed_at))],
        ['Ended', record.finished_at ? moment(iso(record.finished_at)) : null],
        ['Result', record.status_code ? String(record.status_code) : null],
        ['Error', record.error ? shown(record.error) : null],
        ['Reference', record.reference ? shown(record.reference) : null],
        ['Lease', lease && !record.finished_at ? (left > 0 ? `${span(left)} left` : `expired ${span(lease.overdue)} ago`) : null],
    ]);
}

// ---- deciding ----

const OF_STATUS = { completed: [], failed: ['reopen'], exhausted: ['reopen', 'complete', 'fail'] };

const isRunning = (lease, explained) => ['leased', 'held'].includes(explained?.reason) || ((lease?.left ?? 0) > 0 && lease?.session_lives !== false);

// The decisions possible in the record's current state.
export function actionsFor(record, lease, explained) {
    if (!record) return [];
    const actions = OF_STATUS[record.status] ?? ['release', 'complete', 'fail'];
    return isRunning(lease, explained) && actions.length > 0 ? actions : [...actions, 'forget'];
}

// Who may still be at work, as elements; null if no session or lease is seen.
function atWork(record, lease, explained) {
    if (!record || !isRunning(lease, explained)) return null;
    const who = record.holder || record.sealed_by ? [holder({ holder: null, ...record })] : ['An unnamed holder'];
    if ((lease?.left ?? 0) > 0) return [...who, ` has a live lease for another ${span(lease.left)}. Its attempt may take effect after the decision, and a second one beside it.`];
    return ['A transaction holds this key now. The statement waits until it has ended.'];
}

function decide(asked, found, context, given) {
    const { record, lease, explained } = found;
    const actions = actionsFor(record, lease, explained);
    if (actions.length === 0) return el('p', { class: 'empty' }, 'There is no record of this key.');
    const live = atWork(record, lease, explained);
    return decideForm({ actions, given, live, may: context.rights.decides,
        write: () => decision({ schema: context.schema, ...asked, action: given.action, given,
            evenIfRunning: given.action === 'release' && live !== null && context.rights.asks_if_running }) });
}

// ---- the page ----

let carried = null; // a request to compare with, for the page of another key

class Key {
    constructor(reload, asked) {
        this.asked = asked.key ? { scope: asked.scope ?? '', principal: asked.principal ?? '', key: asked.key } : null;
        this.given = {};
        this.request = el('textarea', { id: 'key-request', spellcheck: 'false' });
        this.method = el('input', { id: 'key-method', type: 'text', autocomplete: 'off', spellcheck: 'false' });
        this.path = field('key-path', '');
        if (carried) [this.request.value, this.method.value, this.path.value] = carried;
        carried = null;
        this.results = el('div', {});
        this.content = [this.results, this.#form(reload)];
    }

    #form(reload) {
        const { asked } = this;
        const fields = { scope: field('key-scope', asked?.scope, { maxlength: 2000 }), principal: field('key-principal', asked?.principal, { maxlength: 2000 }),
            key: field('key-key', asked?.key, { maxlength: 2000, required: true }) };
        const submit = (event) => {
            event.preventDefault();
            const wanted = { scope: valueOf(fields.scope), principal: valueOf(fields.principal), key: valueOf(fields.key) };
            if (asked && Object.keys(wanted).every((name) => wanted[name] === asked[name])) {
                reload();
                return;
            }
            carried = [this.request.value, this.method.value, this.path.value];
            location.hash = href('key', wanted);
        };
        return el('details', { class: 'fold', id: 'lookup', open: !asked }, el('summary', {}, asked ? 'Another key, or compare with a request' : 'Look up a key'),
            el('form', { class: 'filters', onsubmit: submit },
                labelled('Scope', fields.scope), labelled('Principal', fields.principal), labelled('Key', fields.key),
                el('details', { class: 'wide', id: 'compare' }, el('summary', {}, 'Compare with a request'),
                    el('div', { class: 'filters' }, labelled('Method', this.method), labelled('Path', this.path),
                        labelled('JSON as the client sends it. It goes to the database as a parameter, is not stored, and is not in the address.', this.request, { class: 'wide' }))),
                el('div', { class: 'do' }, el('button', { type: 'submit', class: 'main' }, 'Explain'))));
    }

    get body() {
        return this.asked ? { ...this.asked, request: this.request.value, method: this.method.value, path: valueOf(this.path) } : null;
    }

    clear() {
        this.results.replaceChildren(el('p', { class: 'empty' }, 'Enter a key, with its scope and principal. '), el('p', {}, el('a', { href: href('records') }, 'Records'), ' finds keys by their beginning.'));
    }

    show(said, context) {
        const explained = said.explanation.rows?.[0]?.explanation;
        const stored = said.record.rows?.[0];
        const record = explained ? explained.record && { sealed_by: stored?.sealed_by, ...explained.record } : stored;
        const lease = explained?.lease ?? (stored?.lease_until && !stored.finished_at ? { left: stored.left, overdue: -stored.left } : null);
        const found = { record, lease, explained };
        this.results.replaceChildren(...[
            head(this.asked, record, explained?.node ?? stored?.node),
            explained ? answer(explained) : this.#withoutExplanation(said, context),
            summary(record, lease),
            el('div', { class: 'columns' },
                el('section', {}, el('h2', {}, 'Timeline'), this.#timeline(said, found, context)),
                el('section', {}, el('h2', {}, 'Decide'), decide(this.asked, found, context, this.given))),
            explained ? this.#details(explained, said, stored) : null,
        ].filter(Boolean));
    }

    #timeline(said, { record, lease, explained }, context) {
        return el('div', {},
            part('idempotency.attempts', { rows: [], ...said.attempts }, context, () => null),
            part('idempotency.decisions', { rows: [], ...said.decisions }, context, () => null) ?? '',
            timeline({ record, lease, attempts: said.attempts.rows ?? [], decisions: said.decisions.rows ?? [] }),
            said.attempts.rows?.length === 0 && record && explained?.policy?.keep_history?.value !== true ? el('p', { class: 'faint' }, 'Earlier attempts are kept where the policy has keep_history.') : null,
            said.attempts.without ? el('p', { class: 'faint' }, `Role ${context.role} may not read why attempts failed.`) : null);
    }

    #details(e, said, stored) {
        const options = Object.entries(e.policy ?? {}).map(([option, one]) => ({ option, value: one.value, source: one.source, origin: one.origin }));
        return el('div', {},
            e.request?.differ || this.request.value.trim() ? requestParts(e.request) : null,
            el('h2', {}, 'Policy in force'), inForce(options, said.changed),
            el('h2', {}, 'Details'),
            el('div', { class: 'grid' }, ...[object('Record', { ...e.record, ...(stored?.sealed_by ? { sealed_by: stored.sealed_by } : {}) }), object('Lease', e.lease), object('Holder', e.holder),
                e.request?.differ || this.request.value.trim() ? null : requestParts(e.request)].filter(Boolean)));
    }

    #withoutExplanation(said, context) {
        const { problem: why } = said.explanation;
        return el('div', {},
            concernsAll(why) ? null : problem('idem_explain', why, context),
            part('idempotency.records', said.record, context, (rows) => (rows.length === 0
                ? el('p', { class: 'empty' }, 'There is no record of this key.') : null)) ?? '');
    }
}

export const key = {
    title: 'Key',
    name: 'key',
    once: true, // not refreshed automatically
    start: (reload, asked) => new Key(reload, asked),
};
