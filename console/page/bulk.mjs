// Records that are selected, and the statement that decides about all of them.
import { counted, el } from './build.mjs';
import { decideForm } from './decide.mjs';
import { decisionForAll, decisionForEach } from './statements.mjs';

const ACTIONS = {
    in_progress: ['release', 'complete', 'fail'], unknown: ['release', 'complete', 'fail'], retryable: ['release', 'complete', 'fail'],
    exhausted: ['reopen', 'complete', 'fail'], failed: ['reopen'], completed: [],
};
// The word of idem_resolve_all for a status of the page. It leaves running records.
const STATUS = { unknown: 'unknown', exhausted: 'exhausted', abandoned: 'in_progress', retryable: 'retryable', failed: 'failed' };

const nameOf = (row) => JSON.stringify([row.scope, row.principal, row.key]);
const runs = (row) => row.status === 'in_progress' && row.left > 0;
const may = (row) => ACTIONS[row.status].length > 0 && !runs(row);

// What all of the statuses have in common.
export function actionsOf(statuses) {
    const all = statuses.map((status) => ACTIONS[status]);
    return all.length === 0 ? [] : all[0].filter((action) => all.every((one) => one.includes(action)));
}

// The arguments of idem_resolve_all that choose what the filters show, or why there are none.
export function argumentsOf(filters) {
    const wrong = filters.key ? 'the beginning of a key' : filters.claimed && !filters.claimed.startsWith('over-') ? 'this time' : null;
    if (wrong) return { why: `idem_resolve_all can't choose by ${wrong}. Select single records, or search without it.` };
    if (!STATUS[filters.status]) return { why: 'Search for one status first, for example unknown. Running and completed records are never decided in bulk.' };
    const matched = { scope: filters.scope, principal: filters.principal, status: STATUS[filters.status],
        older_than: filters.claimed?.replace(/^over-/, ''), holder: filters.holder };
    return { matched: Object.fromEntries(Object.entries(matched).filter(([, value]) => value)) };
}

// What was selected on the pages of one search.
let kept = { search: null, rows: new Map() };

export class Selection {
    #rows;
    #filters;
    #context;
    #given = {};
    #boxes = new Map();

    constructor(filters, rows, context) {
        const search = JSON.stringify(filters);
        if (kept.search !== search) kept = { search, rows: new Map() };
        this.#rows = rows;
        this.#filters = filters;
        this.#context = context;
        this.panel = el('details', { class: 'panel bulk', id: 'bulk' });
        this.#show();
    }

    box(row) {
        if (!may(row)) return el('span', { class: 'faint', title: runs(row) ? 'it runs' : 'it has a result' }, '·');
        const box = el('input', { type: 'checkbox', 'aria-label': `Select ${row.key}`, 'data-id': `select ${nameOf(row)}` });
        box.checked = kept.rows.has(nameOf(row));
        box.addEventListener('change', () => {
            if (box.checked) kept.rows.set(nameOf(row), row);
            else kept.rows.delete(nameOf(row));
            this.#show();
        });
        this.#boxes.set(nameOf(row), box);
        return box;
    }

    all() {
        if (!this.#rows.some(may)) return el('span', { class: 'hidden' }, 'Select');
        const box = el('input', { type: 'checkbox', 'aria-label': 'Select all records of this page', id: 'select-all' });
        box.checked = this.#rows.filter(may).every((row) => kept.rows.has(nameOf(row)));
        box.addEventListener('change', () => {
            for (const row of this.#rows.filter(may)) {
                if (box.checked) kept.rows.set(nameOf(row), row);
                else kept.rows.delete(nameOf(row));
                this.#boxes.get(nameOf(row)).checked = box.checked;
            }
            this.#show();
        });
        return box;
    }

    #show() {
        const chosen = [...kept.rows.values()];
        const all = argumentsOf(this.#filters);
        this.panel.hidden = chosen.length === 0 && (!all.matched || !this.#rows.some(may));
        if (this.panel.hidden) return;
        const everything = this.#given.everything ?? false;
        const which = (value, title, enabled, why) => {
            const input = el('input', { type: 'radio', name: 'bulk-which', value, id: `bulk-${value}`, disabled: !enabled });
            input.checked = enabled && (value === 'all') === everything;
            input.addEventListener('change', () => {
                this.#given = { ...this.#given, everything: value === 'all', action: '' };
                this.#show();
            });
            return el('div', {}, el('label', { class: 'check' }, input, title), why ? el('p', { class: 'faint' }, why) : null);
        };
        this.panel.open ||= chosen.length > 0;
        this.panel.replaceChildren(el('summary', {}, chosen.length > 0 ? `Decide about ${counted(chosen.length, 'selected record')}` : 'Decide about several records'),
            which('chosen', chosen.length > 0 ? `the ${counted(chosen.length, 'selected record')}` : 'the selected records', chosen.length > 0),
            which('all', 'all records that match the search, on every page', Boolean(all.matched), all.why),
            everything && all.matched ? this.#decideAll(all.matched) : chosen.length > 0 ? this.#decideChosen(chosen) : '');
    }

    #decideAll(matched) {
        return this.#form(actionsOf([matched.status]),
            (given) => decisionForAll({ schema: this.#context.schema, action: given.action, given, matched }),
            'It decides in batches, oldest first, and leaves every record that is running or that another session holds.');
    }

    #decideChosen(chosen) {
        const actions = actionsOf([...new Set(chosen.map((row) => row.status))]);
        if (actions.length === 0) return el('p', { class: 'faint' }, 'No action fits all of them: select records of one status.');
        return this.#form(actions,
            (given) => decisionForEach({ schema: this.#context.schema, action: given.action, given, rows: chosen }),
            'It says of each record whether it was done. It passes those that run, and those that were claimed again since this page was read.');
    }

    #form(actions, write, said) {
        return el('div', {}, el('p', { class: 'faint' }, said),
            decideForm({ actions, given: this.#given, live: null, write, may: this.#context.rights.decides, name: 'bulk' }));
    }
}
