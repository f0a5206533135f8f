// Operators' decisions.
import { el, moment, none, shown, word } from './build.mjs';
import { part } from './problems.mjs';
import { nodeColumn, table } from './tables.mjs';

const short = (digest) => el('span', { title: digest }, `SHA-256 ${digest.slice(0, 12)}…`);

function state(value) {
    if (value === null) return null;
    return el('span', {}, ...Object.entries(value).flatMap(([name, member], at) =>
        [at > 0 ? ', ' : '', el('code', {}, `${name} `), shown(typeof member === 'string' ? member : JSON.stringify(member))]));
}

const what = (row) => (row.erased ? none('erased') : row.role ? shown(row.role)
    : row.key !== null ? shown(row.key) : row.key_digest ? short(row.key_digest) : null);

export const decisionColumns = [
    { title: 'When', of: (row) => moment(row.decided_at) },
    { title: 'Action', of: (row) => word(row.action) },
    { title: 'By', of: (row) => el('span', {}, shown(row.decided_by), ...(row.acting_as === row.decided_by ? [] : [' as ', shown(row.acting_as)])), kind: 'text' },
    { title: 'Reason', of: (row) => (row.reason ? shown(row.reason) : none()), kind: 'text' },
    { title: 'Before', of: (row) => state(row.before), kind: 'text' },
    { title: 'After', of: (row) => state(row.after), kind: 'text' },
    { title: 'From', of: (row) => el('span', {}, shown(row.application_name), row.client_addr ? ` ${row.client_addr}` : ''), kind: 'text' },
    nodeColumn,
];

const columns = [
    ...decisionColumns.slice(0, 2),
    { title: 'Scope', of: (row) => (row.scope === null ? null : shown(row.scope)), kind: 'text' },
    { title: 'Principal', of: (row) => (row.principal ? shown(row.principal) : null), kind: 'text', if: (row) => row.principal },
    { title: 'Key or role', of: what, kind: 'text' },
    ...decisionColumns.slice(2),
];

export const decisions = {
    title: 'Decisions',
    name: 'decisions',
    show(answer, context) {
        return [
            el('p', { class: 'faint' }, 'The latest decisions of operators and of the owner.'),
            part('idempotency.decisions', answer.decisions, context.role,
                (rows) => table('Decisions', columns, rows, 'There are no decisions.')),
        ];
    },
};
