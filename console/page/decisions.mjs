// Operators' and the owner's decisions, each as the difference that it made.
import { hrefOfKey } from './address.mjs';
import { el, moment, none, shown, word } from './build.mjs';
import { optionValue } from './options.mjs';
import { part } from './problems.mjs';
import { nodeColumn, table } from './tables.mjs';

const short = (digest) => el('span', { title: digest }, `SHA-256 ${digest.slice(0, 12)}…`);

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// The members that differ, as: name before → after.
export function difference({ before, after }) {
    if (before === null && after === null) return null;
    const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
    // Whether a session was at work is no difference.
    const changed = names.filter((name) => name !== 'alive' && !same(before?.[name], after?.[name]));
    const alive = before?.alive === true ? el('li', {}, el('ins', {}, 'its holder was alive')) : null;
    if (changed.length === 0 && !alive) return none('no change');
    return el('ul', { class: 'changes' }, alive, ...changed.map((name) => el('li', {}, el('code', {}, name), ' ',
        ...(before && name in before ? [el('del', {}, optionValue(before[name])), ' '] : []),
        after === null || !(name in after) ? el('span', { class: 'faint' }, '→ none')
            : before && name in before ? el('ins', {}, '→ ', optionValue(after[name])) : el('ins', {}, optionValue(after[name])))));
}

function subject(row) {
    if (row.erased) return none('erased');
    if (row.role) return el('span', {}, 'role ', shown(row.role));
    const place = row.scope === null ? [] : [el('span', { class: 'faint' }, shown(row.scope), row.principal ? ' / ' : '', row.principal ? shown(row.principal) : '')];
    if (row.key !== null) return el('span', {}, el('a', { href: hrefOfKey(row), class: 'key', 'data-id': `decision ${row.decided_at} ${row.key}` }, shown(row.key)), ' ', ...place);
    return el('span', {}, ...(row.key_digest ? [short(row.key_digest), ' '] : []), ...place);
}

export const by = (row) => el('span', {}, shown(row.decided_by), ...(row.acting_as === row.decided_by ? [] : [' as ', shown(row.acting_as)]));

export const from = (row) => el('span', {}, row.application_name ? shown(row.application_name) : '', row.client_addr ? ` ${row.client_addr}` : '');

export const decisionColumns = [
    { title: 'When', of: (row) => moment(row.decided_at) },
    { title: 'Action', of: (row) => word(row.action) },
    { title: 'About', of: subject, kind: 'text' },
    { title: 'Change', of: difference, kind: 'text' },
    { title: 'Reason', of: (row) => (row.reason ? shown(row.reason) : none()), kind: 'text' },
    { title: 'By', of: by, kind: 'text' },
    { title: 'From', of: from, kind: 'text' },
    nodeColumn,
];

export const decisions = {
    title: 'Decisions',
    name: 'decisions',
    show(answer, context) {
        return [
            el('p', { class: 'faint' }, 'The latest decisions of operators and of the owner. Each shows only what it changed.'),
            part('idempotency.decisions', answer.decisions, context,
                (rows) => table('Decisions', decisionColumns, rows, 'There are no decisions.')),
        ];
    },
};
