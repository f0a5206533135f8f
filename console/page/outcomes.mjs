// The answers of idem_begin since the console started.
import { el, shown } from './build.mjs';
import { Chart } from './charts.mjs';
import { field, labelled, valueOf } from './fields.mjs';
import { concernsAll, problem } from './problems.mjs';

const titleOf = (row) => (row.total ? 'All scopes' : row.scope === null ? 'Scopes without a row of their own' : row.scope === '' ? 'Scope (empty)' : row.scope);
const nameOf = (row) => (row.total ? 'total' : row.scope === null ? 'others' : `scope ${row.scope}`);

// The charts stay while the page is there; only their data changes.
class Outcomes {
    #charts = new Map();
    #said = el('div', {});
    #grid = el('div', { class: 'charts' });

    constructor(reload) {
        this.filter = '';
        const input = field('filter', '', { type: 'search' });
        input.addEventListener('input', () => {
            this.filter = valueOf(input);
            reload();
        });
        this.content = [
            el('form', { class: 'filters', onsubmit: (event) => event.preventDefault() }, labelled('Scope contains', input)),
            this.#said, this.#grid,
        ];
    }

    show(answer, context) {
        if (answer.problem) {
            this.#said.replaceChildren(...(concernsAll(answer.problem) ? [] : [problem('idempotency.stats', answer.problem, context)]));
            if (answer.series.length === 0) return;
        } else {
            this.#said.replaceChildren(this.#summary(answer));
        }
        for (const [name, chart] of this.#charts) {
            if (answer.series.some((row) => nameOf(row) === name)) continue;
            chart.destroy();
            chart.element.remove();
            this.#charts.delete(name);
        }
        for (const row of answer.series) this.#chartOf(row).update(answer.times, row);
    }

    #chartOf(row) {
        const name = nameOf(row);
        if (!this.#charts.has(name)) {
            const chart = new Chart(row.total || !row.scope ? titleOf(row) : shown(row.scope));
            this.#charts.set(name, chart);
            this.#grid.append(chart.element);
        }
        return this.#charts.get(name);
    }

    #summary(answer) {
        const charts = answer.series.filter((row) => !row.total).length;
        const scopes = answer.scopes === 0
            ? this.filter ? 'No scope has such a name.' : 'No scope has been used since the counters began.'
            : charts < answer.scopes ? `The ${charts} busiest of ${answer.scopes} scopes.` : '';
        const every = answer.every === 1 ? 'every second' : `every ${answer.every} seconds`;
        const wait = answer.times.length === 0 ? ' Lines begin with the second sample.' : '';
        return el('p', { class: answer.scopes === 0 ? 'empty' : 'faint' },
            `Sampled ${every} since the console was started, and discarded when it ends. ${scopes}${wait}`);
    }
}

export const outcomes = {
    title: 'Outcomes',
    name: 'outcomes',
    start: (reload) => new Outcomes(reload),
};
