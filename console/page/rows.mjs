// Columns that several tables have: those of a key, and links to it.
import { hrefOfKey } from './address.mjs';
import { el, shown } from './build.mjs';

export function keyLink(row) {
    if (row.key === null || row.key === undefined) return null;
    const id = `key ${JSON.stringify([row.scope, row.principal, row.key])}`;
    return el('a', { href: hrefOfKey(row), 'data-id': id, class: 'key' }, shown(row.key));
}

export const keyColumns = [
    { title: 'Key', of: keyLink, kind: 'text key', if: (row) => row.key !== null },
    { title: 'Scope', of: (row) => (row.scope === null ? null : shown(row.scope)), kind: 'text', if: (row) => row.key !== null },
    { title: 'Principal', of: (row) => (row.principal ? shown(row.principal) : null), kind: 'text', if: (row) => row.principal },
];
