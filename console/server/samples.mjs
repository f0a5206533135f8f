// Counters of idempotency.stats, sampled while the console runs. They are only in memory and end
// with it.

const KEPT = 720; // samples; with the usual five seconds, an hour
const SHOWN = 12; // scopes of an answer

export const COUNTERS = ['executed', 'replayed', 'in_progress', 'mismatches', 'retry_later', 'exhausted',
    'expired', 'unknown'];

// Of a cluster, the sum over its nodes.
const STATS = `
SELECT scope, total, ${COUNTERS.map((name) => `COALESCE(pg_catalog.sum(${name}), 0)::float8 AS ${name}`).join(', ')}
  FROM idempotency.stats GROUP BY scope, total`;

// A scope may have any name, also that of the rows that are no scope.
const nameOf = (row) => (row.total ? 'total' : row.scope === null ? 'others' : `scope ${row.scope}`);

export class Sampler {
    #samples = []; // { at (seconds), counters: Map(name, Float64Array) or null where the database was away }
    #latest = new Map();
    #problem = null;
    #timer = null;

    constructor(database, every) {
        this.database = database;
        this.every = every;
    }

    start() {
        const next = async () => {
            await this.sample();
            this.#timer = setTimeout(next, this.every * 1000);
        };
        this.#timer = setTimeout(next, 0);
    }

    stop() {
        clearTimeout(this.#timer);
    }

    async sample() {
        const asked = Date.now();
        const part = await this.database.part(STATS);
        const at = (asked + Date.now()) / 2000;
        this.#problem = part.problem ?? null;
        if (part.problem) {
            this.#keep({ at, counters: null });
            return;
        }
        this.#latest = new Map(part.rows.map((row) => [nameOf(row), row]));
        this.#keep({ at, counters: new Map(part.rows.map((row) => [nameOf(row), Float64Array.from(COUNTERS, (name) => row[name])])) });
    }

    #keep(sample) {
        this.#samples.push(sample);
        if (this.#samples.length > KEPT) this.#samples.shift();
    }

    // Rates of the total and of the busiest scopes whose names have `filter` in them.
    answer(asked) {
        const filter = typeof asked.filter === 'string' ? asked.filter : '';
        const wanted = [...this.#latest.values()]
            .filter((row) => !row.total && (filter === '' || (row.scope ?? '').includes(filter)))
            .sort((a, b) => activity(b) - activity(a));
        const total = this.#latest.get('total');
        return {
            every: this.every,
            problem: this.#problem,
            scopes: wanted.length,
            times: this.#samples.slice(1).map((sample) => sample.at),
            series: [...(total ? [total] : []), ...wanted.slice(0, SHOWN)].map((row) => ({
                ...row,
                rates: this.#rates(nameOf(row)),
            })),
        };
    }

    // Per second, between consecutive samples. Null where one of them is missing, or the counters
    // were reset in between.
    #rates(name) {
        const rates = Object.fromEntries(COUNTERS.map((counter) => [counter, []]));
        for (let i = 1; i < this.#samples.length; i++) {
            const before = countersOf(this.#samples[i - 1], name);
            const after = countersOf(this.#samples[i], name);
            const seconds = this.#samples[i].at - this.#samples[i - 1].at;
            const known = before && after && after.every((value, at) => value >= before[at]);
            COUNTERS.forEach((counter, at) => rates[counter].push(
                known ? Math.round(((after[at] - before[at]) / seconds) * 1000) / 1000 : null));
        }
        return rates;
    }
}

const ZEROS = new Float64Array(COUNTERS.length);

// A scope's counters begin when it is first used.
function countersOf(sample, name) {
    return sample.counters ? sample.counters.get(name) ?? ZEROS : null;
}

function activity(row) {
    return COUNTERS.reduce((sum, name) => sum + row[name], 0);
}
