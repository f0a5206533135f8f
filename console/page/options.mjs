// Options of policies: those that differ from the defaults first, and what says so; the others folded.
import { el, none, number, shown, span } from './build.mjs';
import { table } from './tables.mjs';

const said = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

// An option's value, intervals in plain units.
export function optionValue(value) {
    if (value === null || value === undefined) return none('no limit');
    if (value === true || value === 'true') return 'yes';
    if (value === false || value === 'false') return 'no';
    if (/^\d+$/.test(said(value))) return number(Number(value));
    const clock = /^(?:(\d+) days? ?)?(?:(\d\d):(\d\d):(\d\d(?:\.\d+)?))?$/.exec(said(value));
    if (clock && clock[0]) return span([86400, 3600, 60, 1].reduce((sum, unit, at) => sum + unit * Number(clock[at + 1] ?? 0), 0));
    if (said(value) === '{}' || said(value) === '[]') return none('none');
    return shown(said(value));
}

const columns = [
    { title: 'Option', of: (row) => el('code', {}, row.option) },
    { title: 'In force', of: (row) => optionValue(row.value), kind: 'text' },
    { title: 'Who says so', of: (row) => (row.source === 'policy' ? el('span', {}, 'the policy ', el('code', {}, shown(row.origin)))
        : row.source === 'setting' ? el('span', {}, 'the setting ', el('code', {}, row.origin)) : row.source), kind: 'text' },
];

// rows: { option, value, source, origin }; changed: the settings that are not the extension's own.
export function inForce(rows, changed) {
    const settings = new Set((changed.rows ?? []).map((row) => row.name));
    const differs = (row) => ['policy', 'argument'].includes(row.source) || (row.source === 'setting' && settings.has(row.origin));
    const own = rows.filter(differs);
    const rest = rows.filter((row) => !differs(row));
    return el('div', {},
        table('Policy in force', columns, own, 'Every option has its default.'),
        el('details', { class: 'fold' }, el('summary', {}, `${rest.length} options as by default`), table('Defaults', columns, rest, '')));
}
