// Abandoned claims.
import { el, moment, shown, span, word } from './build.mjs';
import { explainButton, keyColumns } from './now.mjs';
import { part } from './problems.mjs';
import { nodeColumn, table } from './tables.mjs';

const columns = (context) => [
    { title: 'Status', of: (row) => word(row.status) },
    ...keyColumns,
    { title: 'Holder', of: (row) => shown(row.holder), kind: 'text' },
    { title: 'Attempt', of: (row) => row.attempt, kind: 'number' },
    { title: 'Recovery point', of: (row) => (row.recovery_point ? shown(row.recovery_point) : null), kind: 'text', if: (row) => row.recovery_point },
    { title: 'Claimed', of: (row) => moment(row.claimed_at) },
    { title: 'Overdue', of: (row) => span(row.overdue), kind: 'number' },
    nodeColumn,
    { title: '', of: (row) => explainButton(row, context) },
];

export const abandoned = {
    title: 'Abandoned',
    name: 'abandoned',
    show(answer, context) {
        return [
            el('p', { class: 'faint' }, 'Records without a live claim. The next caller takes over a record that is in_progress. An unknown record waits for its holder or an operator, an exhausted one for an operator: Explain shows the statement.'),
            part('idempotency.abandoned', answer.abandoned, context.role,
                (rows) => table('Abandoned', columns(context), rows, 'No claim is abandoned.')),
        ];
    },
};
