// Claims in flight.
import { el, shown, span, word } from './build.mjs';
import { part } from './problems.mjs';
import { nodeColumn, table } from './tables.mjs';

export function explainButton(row, context) {
    if (row.key === null || row.key === undefined) return '';
    const id = `explain ${JSON.stringify([row.scope, row.principal, row.key])}`;
    return el('button', { type: 'button', 'data-id': id, onclick: () => context.explain(row) }, 'Explain');
}

export const keyColumns = [
    { title: 'Scope', of: (row) => shown(row.scope), kind: 'text' },
    { title: 'Principal', of: (row) => (row.principal ? shown(row.principal) : null), kind: 'text', if: (row) => row.principal },
    { title: 'Key', of: (row) => shown(row.key), kind: 'text' },
];

const columns = (context) => [
    { title: 'Kind', of: (row) => word(row.kind) },
    ...keyColumns.map((column) => ({ ...column, of: (row) => (row.kind === 'leased' ? column.of(row) : null) })),
    { title: 'Who', of: (row) => (row.kind === 'leased' ? shown(row.holder) : shown(row.application_name)), kind: 'text' },
    { title: 'Pid', of: (row) => row.pid, kind: 'number' },
    { title: 'Attempt', of: (row) => row.attempt, kind: 'number' },
    { title: 'Age', of: (row) => (row.since ? el('time', { datetime: row.since, title: `since ${row.since}` }, span(row.age)) : null), kind: 'number' },
    { title: 'Lease left', of: (row) => (row.left === null ? null : span(row.left)), kind: 'number' },
    nodeColumn,
    { title: '', of: (row) => explainButton(row, context) },
];

export const now = {
    title: 'In flight',
    name: 'in_flight',
    show(answer, context) {
        return [
            el('p', { class: 'faint' }, 'Claims with a live lease, and transactions that hold the lock of a key. A lock does not show its key. For a known key, the page Key shows the holder.'),
            part('idempotency.in_flight', answer.in_flight, context.role,
                (rows) => table('In flight', columns(context), rows, 'Nothing is in flight.')),
        ];
    },
};
