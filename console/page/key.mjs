// One key: look-up, explanation, its attempts and decisions, and the statement that decides it.
import { el, moment, none, shown, span, word } from './build.mjs';
import { decisionColumns } from './decisions.mjs';
import { concernsAll, part, problem } from './problems.mjs';
import { ARGUMENTS, copyable, decision } from './statements.mjs';
import { facts, nodeColumn, table } from './tables.mjs';

const SPANS = new Set(['seconds', 'left', 'overdue', 'age', 'query_age']);
const isMoment = (value) => typeof value === 'string' && /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d/.test(value);

// A member of one of the explanation's objects.
function value(name, member) {
    if (SPANS.has(name) && typeof member === 'number') return span(member);
    if (name !== 'holder' && name !== 'error' && isMoment(member)) return moment(member.replace('T', ' '));
    if (typeof member === 'boolean') return member ? 'yes' : 'no';
    return shown(typeof member === 'string' ? member : JSON.stringify(member));
}

// The most wanted members first. The server's order is another.
const FIRST = ['kind', 'status', 'attempt', 'pid', 'holder', 'application_name', 'user', 'state', 'error', 'created_at', 'claimed_at',
    'finished_at', 'until', 'left', 'overdue'];
const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

function object(title, members, without = []) {
    if (!members) return null;
    const pairs = Object.entries(members).filter(([name]) => !without.includes(name))
        .sort(([one], [other]) => place(one) - place(other));
    return el('section', {}, el('h2', {}, title), facts(title, pairs.map(([name, member]) => [name.replaceAll('_', ' '), value(name, member)])));
}

function requestParts(request) {
    if (!request) return null;
    const columns = [
        { title: 'Where', of: (row) => shown(row.path), kind: 'text' },
        { title: 'How', of: (row) => row.how },
    ];
    return el('div', {}, object('Request', request, ['differ', 'more']),
        request.differ ? el('section', {}, el('h2', {}, 'Differences'),
            table('Differences', columns, request.differ, 'No field that counts differs.'),
            request.more ? el('p', { class: 'faint' }, 'There are more.') : null) : null);
}

function policy(options) {
    if (!options) return null;
    const rows = Object.entries(options).map(([name, said]) => ({ name, ...said }));
    const columns = [
        { title: 'Option', of: (row) => el('code', {}, row.name) },
        { title: 'In force', of: (row) => ('value' in row ? shown(typeof row.value === 'string' ? row.value : JSON.stringify(row.value)) : null), kind: 'text' },
        { title: 'Who says so', of: (row) => el('span', {}, row.source, ...(row.origin ? [': ', shown(row.origin)] : [])), kind: 'text' },
    ];
    return el('section', {}, el('h2', {}, 'Policy in force'), table('Policy in force', columns, rows, 'None.'));
}

function explanation(e) {
    return [
        el('div', { class: 'answer', id: 'answer' },
            el('div', { class: 'outcome' }, 'idem_begin would answer ', word(e.outcome), e.execution ? el('span', { class: 'faint' }, ` (${e.execution})`) : null),
            el('p', {}, e.why), el('p', {}, e.next),
            e.retry_at ? el('p', {}, 'Retry at ', moment(e.retry_at.replace('T', ' ')), `, in ${span(e.retry_after)}.`) : null,
            el('p', { class: 'faint' }, 'Scope ', shown(e.scope), ', principal ', shown(e.principal), ', key ', shown(e.key),
                ...(e.node ? [', node ', shown(e.node)] : []), '. Said for ', moment(e.explained_at.replace('T', ' ')), '.'),
            ...(e.notes ?? []).map((note) => el('p', { class: 'note' }, note))),
        el('div', { class: 'facts' }, object('Record', e.record), object('Lease', e.lease), object('Holder', e.holder), requestParts(e.request)),
    ];
}

const attemptColumns = [
    { title: 'Attempt', of: (row) => row.attempt, kind: 'number' },
    { title: 'How it ended', of: (row) => word(row.how) },
    { title: 'Holder', of: (row) => shown(row.holder), kind: 'text' },
    { title: 'Begun', of: (row) => moment(row.begun) },
    { title: 'Ended', of: (row) => moment(row.ended) },
    { title: 'Status', of: (row) => row.status_code, kind: 'number' },
    { title: 'Error', of: (row) => (row.error ? shown(row.error) : null), kind: 'text', if: (row) => row.error },
    { title: 'Decided by', of: (row) => (row.resolved_by ? shown(row.resolved_by) : null), kind: 'text', if: (row) => row.resolved_by },
    nodeColumn,
];

const LABELS = { error: 'Error', status_code: 'Status code', body: 'Body', reason: 'Reason, for the audit' };
const WHAT = {
    release: 'release: the next caller executes it again',
    reopen: 'reopen: the next caller executes the failed request; give a reason',
    complete: 'complete: record a result, which every repeat gets',
    fail: 'fail: record a failure, which every repeat gets',
    forget: 'forget: the key is new again',
};

const OF_STATUS = { completed: [], failed: ['reopen'], exhausted: ['reopen', 'complete', 'fail'] };

// The decisions possible in the record's current state.
export function actionsFor(record, lease, explained) {
    if (!record) return [];
    const actions = OF_STATUS[record.status] ?? ['release', 'complete', 'fail'];
    const runs = ['leased', 'held'].includes(explained?.reason) || (lease?.left ?? 0) > 0 && lease?.session_lives !== false;
    return runs && actions.length > 0 ? actions : [...actions, 'forget'];
}

// Shows the statement; runs nothing.
function decide(asked, actions, schema, given) {
    if (actions.length === 0) return el('p', { class: 'empty' }, 'There is no record of this key.');
    const box = el('div', {});
    const statement = el('div', {});
    const select = el('select', { id: 'action' }, ...actions.map((action) => el('option', { value: action }, WHAT[action])));
    if (actions.includes(given.action)) select.value = given.action;
    const fields = el('form', { onsubmit: (event) => event.preventDefault() });
    const write = () => {
        given.action = select.value;
        statement.replaceChildren(copyable('Decision', decision({ schema, ...asked, action: select.value, given })));
    };
    const showFields = () => {
        fields.replaceChildren(el('label', { class: 'wide' }, 'What to do', select), ...[...ARGUMENTS[select.value], 'reason'].map((name) => {
            const field = el('input', { id: `decide-${name}`, value: given[name] ?? '', maxlength: name === 'reason' ? 1000 : null,
                ...(name === 'status_code' ? { type: 'number', min: 100, max: 599 } : { type: 'text' }), autocomplete: 'off', spellcheck: 'false' });
            field.addEventListener('input', () => {
                given[name] = field.value;
                write();
            });
            return el('label', {}, LABELS[name], field);
        }));
    };
    select.addEventListener('change', () => {
        showFields();
        write();
        select.focus();
    });
    showFields();
    write();
    box.append(el('p', { class: 'faint' }, 'This page only reads. To decide, run the statement as an operator, with psql for example. It waits for a transaction that holds the key.'), fields, statement);
    return box;
}

class Key {
    constructor(reload, asked) {
        this.asked = asked;
        this.given = {};
        this.searched = Boolean(asked);
        const field = (name, title, attributes = {}) => el('label', {}, title,
            el('input', { id: `key-${name}`, name, type: 'text', value: asked?.[name] ?? '', maxlength: 255, autocomplete: 'off', spellcheck: 'false', ...attributes }));
        this.request = el('textarea', { id: 'key-request', spellcheck: 'false' });
        const part = (name) => el('input', { id: `key-${name}`, type: 'text', autocomplete: 'off', spellcheck: 'false' });
        this.method = part('method');
        this.path = part('path');
        this.form = el('form', { id: 'lookup', onsubmit: (event) => {
            event.preventDefault();
            const of = (name) => this.form.elements[name].value;
            this.asked = { scope: of('scope'), principal: of('principal'), key: of('key') };
            this.given = {};
            this.searched = true;
            reload();
        } },
        field('scope', 'Scope'), field('principal', 'Principal'), field('key', 'Key', { required: true }),
        el('div', {}, el('button', { type: 'submit', class: 'main' }, 'Explain')),
        el('details', { class: 'wide' }, el('summary', {}, 'Compare with a request'),
            el('label', {}, 'Method', this.method),
            el('label', {}, 'Path', this.path),
            el('label', {}, el('span', { class: 'hint' }, 'JSON as the client sends it. It goes to the database as a parameter and is not stored.'), this.request)));
        this.results = el('div', {});
        this.content = [this.form, this.results];
    }

    get body() {
        return this.searched ? { ...this.asked, request: this.request.value, method: this.method.value, path: this.path.value } : null;
    }

    clear() {
        this.results.replaceChildren(el('p', { class: 'empty' }, 'Enter a key. It does not appear in the address, the history or a log of the console.'));
    }

    show(answer, context) {
        const found = answer.explanation.rows?.[0]?.explanation;
        const record = found ? found.record : answer.record.rows?.[0];
        this.results.replaceChildren(...[
            ...(found ? explanation(found) : this.#withoutExplanation(answer, context)),
            el('h2', {}, 'Decide'),
            decide(this.asked, actionsFor(record, found?.lease, found), context.schema, this.given),
            el('h2', {}, 'Attempts'),
            part('idempotency.attempts', answer.attempts, context.role, (rows) => el('div', {},
                table('Attempts', attemptColumns, rows, 'No attempts are kept: the policy has no keep_history, or none has ended.'),
                answer.attempts.without ? el('p', { class: 'faint' }, `Role ${context.role} may not read why attempts failed.`) : null)),
            el('h2', {}, 'Decisions'),
            part('idempotency.decisions', answer.decisions, context.role,
                (rows) => table('Decisions', decisionColumns, rows, 'There are no decisions.')),
            policy(found?.policy),
        ].filter(Boolean));
    }

    #withoutExplanation(answer, context) {
        const { problem: why } = answer.explanation;
        return [
            concernsAll(why) ? null : problem('idem_explain', why, context.role),
            part('idempotency.records', answer.record, context.role, (rows) => (rows.length === 0
                ? el('p', { class: 'empty' }, 'There is no record of this key.')
                : object('Record', rows[0]))),
        ];
    }
}

export const key = {
    title: 'Key',
    name: 'key',
    once: true, // not refreshed automatically
    start: (reload, asked) => new Key(reload, asked),
};
