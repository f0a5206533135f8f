// Claims in flight.
import { el, holder, number, shown, span, word } from './build.mjs';
import { part } from './problems.mjs';
import { keyColumns } from './rows.mjs';
import { nodeColumn, table } from './tables.mjs';

const columns = [
    { title: 'Kind', of: (row) => word(row.kind) },
    ...keyColumns,
    { title: 'Who', of: (row) => (row.kind === 'leased' ? holder(row) : shown(row.application_name)), kind: 'text' },
    { title: 'Pid', of: (row) => row.pid, kind: 'number' },
    { title: 'Attempt', of: (row) => (row.attempt === null ? null : number(row.attempt)), kind: 'number' },
    { title: 'Age', of: (row) => (row.since ? el('time', { datetime: row.since, title: `since ${row.since}` }, span(row.age)) : null), kind: 'number' },
    { title: 'Lease left', of: (row) => (row.left === null ? null : span(row.left)), kind: 'number' },
    nodeColumn,
];

export const now = {
    title: 'In flight',
    name: 'in_flight',
    show(answer, context) {
        return [
            el('p', { class: 'faint' }, 'Claims with a live lease, and transactions that hold the lock of a key. A lock does not show its key. The page of a key shows the session that holds it.'),
            part('idempotency.in_flight', answer.in_flight, context,
                (rows) => table('In flight', columns, rows, 'Nothing is in flight.')),
        ];
    },
};
