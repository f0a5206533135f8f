// Problems, and what to do about each.
import { el } from './build.mjs';
import { copyable, quoteName } from './statements.mjs';

// what: the view or function that was queried.
export function problem(what, problem, { role, rights }) {
    const said = [];
    if (problem.kind === 'denied') {
        said.push(el('p', {}, `Role ${role} may not read ${what}. Members of pg_monitor may read the views, operators may explain keys, operators and administrators may read the options of a scope. The owner of the extension, or a superuser, grants that:`));
        said.push(copyable('Grant', GRANTED_BY[what]?.(role, rights) ?? `GRANT pg_monitor TO ${quoteName(role)};`));
    } else if (problem.kind === 'absent') {
        said.push(el('p', {}, `${what} is not there, or has other columns: the extension is missing, or of another version than this console.`));
    } else if (problem.kind === 'timeout') {
        said.push(el('p', {}, `${what} took too long, and was given up so as not to be a burden.`));
    } else {
        said.push(el('p', {}, `${what} can't be read.`));
    }
    return el('div', { class: 'problem', 'data-kind': problem.kind }, ...said,
        el('p', { class: 'faint' }, `The server says: ${problem.message}${problem.sqlstate ? ` (${problem.sqlstate})` : ''}`),
        problem.hint ? el('p', { class: 'faint' }, problem.hint) : null);
}

// The functions, which idem_grant grants.
const GRANTED_BY = {
    idem_explain: (role) => `SELECT idem_grant(${quoteRole(role)}, operator => true);`,
    idem_policy: (role, rights) => `SELECT idem_grant(${quoteRole(role)}, ${rights.knows_administrators ? 'administrator' : 'operator'} => true);`,
};

const quoteRole = (role) => `'${quoteName(role).replace(/'/g, '\'\'')}'`;

// A problem of more than this part: it stands in the banner.
export function concernsAll(found) {
    return ['away', 'password', 'refused', 'console', 'token', 'database'].includes(found?.kind);
}

export function part(what, answer, context, show) {
    if (!answer.problem) return show(answer.rows);
    return concernsAll(answer.problem) ? null : problem(what, answer.problem, context);
}
