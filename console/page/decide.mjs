// The form that writes a decision. Nothing is chosen beforehand, a reason is required, and a record that
// may be running wants to be told apart. The page runs nothing.
import { el } from './build.mjs';
import { choice, field, labelled, valueOf } from './fields.mjs';
import { ARGUMENTS, copyable } from './statements.mjs';

const LABELS = { error: 'Error', status_code: 'Status code', body: 'Body', reason: 'Reason, for the audit (required)' };

export const WHAT = {
    release: 'release: the next caller executes it again',
    reopen: 'reopen: the next caller executes the failed request',
    complete: 'complete: record a result, which every repeat gets',
    fail: 'fail: record a failure, which every repeat gets',
    forget: 'forget: the key is new again',
};

const WARNINGS = {
    release: 'The work may happen twice: make sure first that the attempt had no effect.',
    forget: 'The key loses its memory: a repeat of the request is executed as new.',
    reopen: 'Clients have already got the failure. The same request may now succeed.',
};

// given: what the form has, kept by the caller. live: null, or what is at work on the record, as elements.
// write: the statement for an action; settings: { who may run it }.
export function decideForm({ actions, given, live, write, may, name = 'decide' }) {
    const statement = el('div', { class: 'result' });
    const fields = el('div', { class: 'fields' });
    const select = choice(`${name}-action`, [['', 'Choose…'], ...actions.map((action) => [action, WHAT[action]])], given.action ?? '');
    const sure = live ? el('input', { type: 'checkbox', id: `${name}-running` }) : null;
    if (sure) sure.checked = given.sure ?? false;
    const complete = () => given.action && (given.reason ?? '').trim() !== '' && (!live || sure.checked);
    const show = () => {
        statement.replaceChildren(...(complete() ? [copyable('Decision', write(given))]
            : [el('p', { class: 'faint' }, `The statement appears here when ${['an action is chosen', live ? 'the warning is confirmed' : null, 'a reason is given'].filter(Boolean).join(', ').replace(/, ([^,]*)$/, ' and $1')}.`)]));
    };
    const rebuild = () => {
        given.action = select.value;
        const wanted = select.value ? [...ARGUMENTS[select.value], 'reason'] : ['reason'];
        fields.replaceChildren(...wanted.map((argument) => {
            const input = argument === 'status_code'
                ? el('input', { id: `${name}-status_code`, type: 'number', min: 200, max: 599, value: given.status_code ?? '' })
                : field(`${name}-${argument}`, given[argument], { maxlength: argument === 'reason' ? 1000 : null, required: argument === 'reason' });
            input.addEventListener('input', () => {
                given[argument] = argument === 'status_code' ? input.value : valueOf(input);
                show();
            });
            return labelled(LABELS[argument], input);
        }), ...(WARNINGS[select.value] ? [el('p', { class: 'warning wide' }, WARNINGS[select.value])] : []));
        show();
    };
    select.addEventListener('change', rebuild);
    sure?.addEventListener('change', () => {
        given.sure = sure.checked;
        show();
    });
    rebuild();
    return el('form', { class: 'decide', onsubmit: (event) => event.preventDefault() },
        live ? el('div', { class: 'problem bad', 'data-kind': 'running' }, el('p', {}, ...live),
            el('label', { class: 'check' }, sure, 'I know that it may still take effect')) : null,
        labelled('What to do', select), fields, statement,
        el('p', { class: 'faint' }, may ? 'This page only reads. Run the statement with psql, for example.'
            : 'This page only reads, and this role may not decide. An operator runs the statement, with psql for example.'));
}
