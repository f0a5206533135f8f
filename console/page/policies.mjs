// The policies, each with the options that it sets; and what is in force for one scope.
import { href } from './address.mjs';
import { el, moment, shown } from './build.mjs';
import { field, labelled, valueOf } from './fields.mjs';
import { inForce, optionValue } from './options.mjs';
import { part } from './problems.mjs';

const KNOWN_ELSEWHERE = new Set(['scope_pattern', 'role_exists', 'since', 'memory_before']);

function policy({ policy: row }) {
    const options = Object.entries(row).filter(([name]) => !KNOWN_ELSEWHERE.has(name));
    return el('section', { class: 'panel policy' },
        el('h2', {}, el('a', { href: href('records', { scope: row.scope_pattern }), 'data-id': `policy ${row.scope_pattern}`, title: 'records of these scopes' }, row.scope_pattern === '' ? 'the empty scope' : shown(row.scope_pattern)),
            row.role_exists === false ? el('span', { class: 'word bad' }, 'closed: its role does not exist') : null),
        options.length === 0 ? el('p', { class: 'faint' }, 'Every option has its default.')
            : el('dl', { class: 'options' }, ...options.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, optionValue(value))))),
        row.since ? el('p', { class: 'faint' }, 'Requests first sent before ', moment(row.since), ' are also judged by the earlier memory, ', optionValue(row.memory_before), '.') : null);
}

class Policies {
    constructor(reload, asked) {
        this.asked = asked;
        this.body = 'scope' in asked ? { scope: asked.scope } : {};
        const scope = field('policy-scope', asked.scope, { maxlength: 255 });
        this.list = el('div', {}, el('p', { class: 'faint' }, 'Reading…'));
        this.found = el('div', { id: 'in-force' });
        this.content = [
            el('p', { class: 'faint' }, 'One policy applies to a scope: its own, or the longest pattern that fits. A policy shows the options that it sets. The others come from the settings, or are defaults.'),
            el('form', { class: 'filters', onsubmit: (event) => {
                event.preventDefault();
                location.hash = href('policies', { scope: valueOf(scope) });
            } }, labelled('In force for the scope', scope), el('div', { class: 'do' }, el('button', { type: 'submit', class: 'main' }, 'Show'))),
            this.found, this.list,
        ];
    }

    show(answer, context) {
        this.found.replaceChildren(...(answer.in_force ? [el('h2', {}, 'In force for ', shown(this.asked.scope)),
            part('idem_policy', answer.in_force, context, (rows) => inForce(rows, answer.changed))] : []).filter(Boolean));
        this.list.replaceChildren(...[part('idempotency.policies', answer.policies, context, (rows) => (rows.length === 0
            ? el('p', { class: 'empty' }, 'There is no policy: the settings apply to every scope.')
            : el('div', { class: 'grid' }, ...rows.map(policy))))].filter(Boolean));
    }
}

export const policies = {
    title: 'Policies',
    name: 'policies',
    start: (reload, asked) => new Policies(reload, asked),
};
