// The policies, each with the options that it sets.
import { el, shown } from './build.mjs';
import { part } from './problems.mjs';
import { table } from './tables.mjs';

const KNOWN_ELSEWHERE = new Set(['scope_pattern', 'role_exists']);

function options(policy) {
    const named = Object.entries(policy).filter(([name]) => !KNOWN_ELSEWHERE.has(name));
    if (named.length === 0) return null;
    return el('span', {}, ...named.flatMap(([name, value], at) =>
        [at > 0 ? ', ' : '', el('code', {}, `${name} `), shown(typeof value === 'string' ? value : JSON.stringify(value))]));
}

const columns = [
    { title: 'Scope', of: ({ policy }) => shown(policy.scope_pattern), kind: 'text' },
    { title: 'Options', of: ({ policy }) => options(policy) },
    { title: 'Closed', of: ({ policy }) => (policy.role_exists === false ? 'its role does not exist' : null), if: ({ policy }) => policy.role_exists === false },
];

export const policies = {
    title: 'Policies',
    name: 'policies',
    show(answer, context) {
        return [
            el('p', { class: 'faint' }, 'Only the most specific pattern applies to a scope. Options that the policy does not set come from the settings. The page Key shows the options in force for a key.'),
            part('idempotency.policies', answer.policies, context.role,
                (rows) => table('Policies', columns, rows, 'There is no policy: the settings apply to every scope.')),
        ];
    },
};
