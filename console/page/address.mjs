// The part of the address after the #: the page, the database, and what is looked for. Browsers send it
// nowhere. The token of the run is never in it, except in the address that the console has printed.

let first = null; // the database that was named at the start: addresses leave it out
let current = null;

export const database = () => current;

export function useFirst(name) {
    first = name;
    current ??= name;
}

// { page, asked } of an address like #records?status=unknown
export function parse(hash) {
    const [page, search] = hash.replace(/^#/, '').split(/\?(.*)/s);
    const asked = Object.fromEntries(new URLSearchParams(search ?? ''));
    current = asked.database ?? first;
    delete asked.database;
    return { page, asked };
}

export function href(page, asked = {}, to = current) {
    const search = new URLSearchParams();
    if (to && to !== first) search.set('database', to);
    for (const [name, value] of Object.entries(asked)) {
        if (value !== null && value !== undefined && value !== '') search.set(name, value);
    }
    const text = search.toString();
    return `#${page}${text ? `?${text}` : ''}`;
}

export const hrefOfKey = ({ scope, principal, key }) => href('key', { key, scope, principal });
