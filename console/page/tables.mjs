// Tables, also empty ones.
import { el, none } from './build.mjs';

// columns: [{ title, of: row => content, kind: 'number' | 'text' }]; a column with `if` is shown if
// that is true of a row.
export function table(name, columns, rows, empty) {
    if (rows.length === 0) return el('p', { class: 'empty' }, empty);
    const there = columns.filter((column) => !column.if || rows.some(column.if));
    return el('div', { class: 'scroll', role: 'region', tabindex: '0', 'aria-label': name, 'data-id': `table ${name}` },
        el('table', {},
            el('caption', {}, name),
            el('thead', {}, el('tr', {}, ...there.map((column) => el('th', { scope: 'col', class: column.kind === 'number' ? 'number' : null }, column.title)))),
            el('tbody', {}, ...rows.map((row) => el('tr', {}, ...there.map((column) =>
                el('td', { class: column.kind }, column.of(row) ?? none('–'))))))),
        more(rows));
}

function more(rows) {
    const all = rows[0].of_all;
    return all > rows.length ? el('p', { class: 'faint' }, `The first ${rows.length} of ${all}.`) : null;
}

// Where records are spread over the nodes of a cluster.
export const nodeColumn = { title: 'Node', of: (row) => row.node, kind: 'text', if: (row) => row.node };

// Names and values of one object.
export function facts(name, pairs) {
    const rows = pairs.filter(([, value]) => value !== null && value !== undefined);
    return el('div', { class: 'scroll', role: 'region', tabindex: '0', 'aria-label': name, 'data-id': `facts ${name}` },
        el('table', {}, el('caption', {}, name), el('tbody', {}, ...rows.map(([title, value]) =>
            el('tr', {}, el('th', { scope: 'row' }, title), el('td', { class: 'text' }, value))))));
}
