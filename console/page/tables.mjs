// Tables, also empty ones. On a narrow screen each row is a card: the roles say to a screen reader that
// it is still a table.
import { el, none, number } from './build.mjs';

// columns: [{ title, of: row => content, kind: 'number' | 'text' }]; a column with `if` is shown if
// that is true of a row.
export function table(name, columns, rows, empty) {
    if (rows.length === 0) return el('p', { class: 'empty' }, empty);
    const there = columns.filter((column) => !column.if || rows.some(column.if));
    return el('div', {},
        el('div', { class: 'scroll', role: 'region', tabindex: '0', 'aria-label': name, 'data-id': `table ${name}` },
            el('table', { class: 'cards', role: 'table' },
                el('caption', {}, name),
                el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...there.map((column) =>
                    el('th', { scope: 'col', role: 'columnheader', class: column.kind, 'aria-sort': column.sorted }, column.head ?? column.title)))),
                el('tbody', { role: 'rowgroup' }, ...rows.map((row) => el('tr', { role: 'row' }, ...there.map((column) =>
                    el('td', { role: 'cell', class: column.kind, 'data-title': column.title }, el('div', {}, column.of(row) ?? none('–'))))))))),
        more(rows));
}

function more(rows) {
    const all = rows[0].of_all;
    return all > rows.length ? el('p', { class: 'faint' }, `The first ${number(rows.length)} of ${number(all)}.`) : null;
}

// Where records are spread over the nodes of a cluster.
export const nodeColumn = { title: 'Node', of: (row) => row.node, kind: 'text', if: (row) => row.node };

// Names and values of one object.
export function facts(name, pairs) {
    const rows = pairs.filter(([, value]) => value !== null && value !== undefined);
    return el('dl', { class: 'facts', 'aria-label': name }, ...rows.map(([title, value]) =>
        el('div', {}, el('dt', {}, title), el('dd', {}, value))));
}
