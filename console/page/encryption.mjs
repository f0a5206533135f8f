// The keys of encrypted records: which are known, which records each has sealed, and the next step.
import { counted, el, number, shown, word } from './build.mjs';
import { part } from './problems.mjs';
import { copyable, placed } from './statements.mjs';
import { nodeColumn, table } from './tables.mjs';

const VIEW = 'idempotency.encryption_keys';

const standing = (row) => word(row.current ? 'current' : row.available ? 'known' : 'missing');

const columns = [
    { title: 'Key', of: (row) => shown(row.key_id), kind: 'text' },
    { title: 'In the key file', of: standing },
    { title: 'Has sealed', of: (row) => number(row.records), kind: 'number' },
    { title: 'Why it is missing', of: (row) => (row.why ? shown(row.why) : null), kind: 'text', if: (row) => row.why },
    nodeColumn,
];

const problemBox = (...content) => el('div', { class: 'problem bad', 'data-kind': 'keys' }, ...content);
const records = (count) => counted(count, 'record or attempt', 'records or attempts');
const sealedBy = (rows) => records(rows.reduce((sum, row) => sum + row.records, 0));
// Each key once, however many nodes have it.
const names = (rows) => [...new Set(rows.map((row) => row.key_id))].flatMap((id, at) => [at > 0 ? ', ' : '', shown(id)]);

const again = [el('p', {}, 'When the file is as it should be, every node reads it after:'), copyable('Reload', 'SELECT pg_reload_conf();')];

// Nodes without a usable key file; `encrypting`: how many policies need one.
function withoutKeys(rows, encrypting) {
    if (rows.length === 0) return null;
    const why = rows.map((row) => el('p', { class: 'faint' }, ...(row.node ? ['Node ', shown(row.node), ': '] : []), shown(row.why)));
    if (!encrypting) return el('div', { class: 'empty' }, el('p', {}, 'There are no keys, and no policy has encrypt.'), ...why);
    return problemBox(el('p', {}, encrypting === 1 ? 'A policy has encrypt, but there are no keys: requests of its scope are refused (ID503).'
        : `${encrypting} policies have encrypt, but there are no keys: requests of their scopes are refused (ID503).`), ...why, ...again);
}

// Missing keys, which an operator has to restore.
function missing(rows) {
    if (rows.length === 0) return null;
    return problemBox(el('p', {}, `Can't be decrypted: ${sealedBy(rows)}, encrypted with `, ...names(rows),
        '. Requests that need these values are refused and not executed again. Put the key back into the key file.'), ...again);
}

function differingNodes(keys) {
    if (new Set(keys.filter((row) => row.current).map((row) => row.key_id)).size < 2) return null;
    return el('div', { class: 'note', 'data-kind': 'nodes' }, 'Nodes have different current keys: give each the same key file.');
}

// Records sealed with keys that exist and are no longer current.
function next(keys, { schema, rights }) {
    if (!keys.some((row) => row.current)) return null;
    const old = keys.filter((row) => row.available && !row.current);
    const used = old.filter((row) => row.records > 0);
    if (used.length > 0) {
        return el('div', {}, el('p', {}, `To encrypt again with the current key: ${sealedBy(used)} of `, ...names(used),
            '. Requests continue meanwhile. Run it outside a transaction, until it returns 0 remaining', rights.reseals ? ':' : ', as a role that may call it:'),
        copyable('Encrypt again', `CALL ${placed(schema, 'idem_reseal')}();`));
    }
    if (old.length === 0) return el('p', {}, 'All encrypted values use the current key. There is nothing to do.');
    return el('p', {}, 'No value is encrypted any more with ', ...names(old),
        '. It can be removed from the key file when transactions from before the last reload have ended, also prepared ones. Older backups need it.');
}

// Counting reads the tables, so it waits for a click.
class Encryption {
    body = {};
    #found = el('div', {}, el('p', { class: 'faint' }, 'Reading…'));

    constructor(reload) {
        this.content = [
            el('p', { class: 'faint' }, 'The ids of the keys in the key file, and of missing keys that encrypted records or attempts. The counts read both tables once and are not refreshed automatically.'),
            el('p', {}, el('button', { type: 'button', id: 'count', onclick: reload }, 'Count again')),
            this.#found,
        ];
    }

    unread() {
        this.#found.replaceChildren(el('p', { class: 'empty' }, 'Nothing has been read yet.'));
    }

    show(answer, context) {
        const encrypting = answer.policies.rows?.[0].encrypting ?? 0;
        const shownRows = part(VIEW, answer.keys, context, (rows) => this.#rows(rows, encrypting, context));
        this.#found.replaceChildren(...[shownRows, this.#tooMany(answer.keys.problem)].flat().filter(Boolean));
    }

    #rows(rows, encrypting, context) {
        const keys = rows.filter((row) => row.key_id !== null);
        const without = rows.filter((row) => row.key_id === null);
        const todo = next(keys, context);
        return [
            withoutKeys(without, encrypting),
            missing(keys.filter((row) => !row.available)),
            differingNodes(keys),
            keys.length > 0 ? table('Keys', columns, keys, '') : null,
            todo ? el('h2', {}, 'Next step') : null, todo,
        ];
    }

    #tooMany(problem) {
        if (problem?.kind !== 'timeout') return null;
        return el('div', {}, el('p', {}, 'There are too many records to count here. Count them with psql:'),
            copyable('Count', `SELECT * FROM ${VIEW};`));
    }
}

export const encryption = {
    title: 'Encryption',
    name: 'encryption',
    once: true,
    start: (reload) => new Encryption(reload),
};
