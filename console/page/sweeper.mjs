// The sweeper and the records that it may not remove.
import { el, moment, none, number, shown, span } from './build.mjs';
import { part } from './problems.mjs';
import { facts, nodeColumn, table } from './tables.mjs';

function sweep(row) {
    return el('section', { class: 'panel' },
        row.node ? el('h2', {}, 'Node ', shown(row.node)) : null,
        row.failures > 0 ? el('div', { class: 'problem bad' }, `The last ${row.failures} visits ended with an error.`) : null,
        row.launcher_pid === null ? el('div', { class: 'note' }, 'No launcher runs, so expired records are not removed automatically: docs/operations/workers.md, "When records stay".') : null,
        facts(row.node ? `Sweeper of ${row.node}` : 'Sweeper', [
            ['Backlog', row.backlog >= 10000 ? '10,000 or more' : number(row.backlog)],
            ['Age of the oldest', span(row.behind)],
            ['Last visit', moment(row.last_run)],
            ['It took', span(row.last_duration)],
            ['It removed', row.last_rows === null ? none('–') : number(row.last_rows)],
            ['Removed in total', number(row.total_rows)],
            ['Failures in a row', number(row.failures)],
            ['Last error', row.last_error ? el('span', {}, shown(row.last_error), ' ', moment(row.last_error_at)) : none()],
            ['Launcher\'s pid', row.launcher_pid === null ? none() : String(row.launcher_pid)],
        ]));
}

const stores = [
    nodeColumn,
    { title: 'Shard', of: (row) => row.shard, kind: 'number', if: (row) => row.shard !== null },
    { title: 'Table', of: (row) => shown(row.table), kind: 'text' },
    { title: 'Store', of: (row) => row.store },
    { title: 'Why not the heap store', of: (row) => (row.why ? shown(row.why) : null), kind: 'text' },
];

export const sweeper = {
    title: 'Sweeper',
    name: 'sweeper',
    show(answer, context) {
        return [
            part('idempotency.sweeper', answer.sweeper, context, (rows) => (rows.length === 0
                ? el('p', { class: 'empty' }, 'There is no information about sweepers.')
                : el('div', { class: rows.length > 1 ? 'grid' : null }, ...rows.map(sweep)))),
            el('h2', {}, 'Stores'),
            part('idempotency.stores', answer.stores, context,
                (rows) => table('Stores', stores, rows, 'There are no tables with records.')),
        ];
    },
};
