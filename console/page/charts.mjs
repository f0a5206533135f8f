// Outcomes over time, drawn by uPlot. Each chart has a table with the same numbers: for readers who
// can't see it, and as its legend.
import uPlot from './uPlot.js';
import { el, number } from './build.mjs';

// Lines differ by dashes as well as by colours.
export const OUTCOMES = [
    ['executed', 'execute', []], ['replayed', 'replay', [8, 3]], ['in_progress', 'in_progress', [2, 3]],
    ['mismatches', 'mismatch', [10, 3, 2, 3]], ['retry_later', 'retry_later', [5, 5]],
    ['exhausted', 'exhausted', [1, 2]], ['expired', 'expired', [12, 4]], ['unknown', 'unknown', [4, 2, 1, 2]],
];

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const HEIGHT = 170;
const TICK = 16; // pixels beside a number: its tick and a gap
const GROUPED = new Intl.NumberFormat('en-US', { maximumFractionDigits: 2 });

// Of an axis: its longest number, in device pixels of the canvas.
function widthOf(plot, values, at) {
    if (!values) return 45;
    plot.ctx.font = plot.axes[at].font[0];
    return Math.ceil(Math.max(...values.map((value) => plot.ctx.measureText(value).width)) / devicePixelRatio) + TICK;
}

// The text that uPlot writes at ticks of so many seconds, and below it where a day begins.
const DAY = '{YYYY}-{MM}-{DD}';
const TIMES = [[86400, DAY], [60, '{HH}:{mm}'], [1, '{HH}:{mm}:{ss}']]
    .map(([seconds, shape]) => [seconds, shape, ...(seconds < 86400 ? [`\n${DAY}`, null, `\n${DAY}`] : [null, null, null]), null, null, null, 1]);

// A picture of a series, described by how often each outcome came per second.
export class Chart {
    #plot = null;
    #box = el('div', { class: 'picture' });
    #colors = '';

    #sizes = new ResizeObserver(() => this.#fit());

    constructor(title) {
        this.#sizes.observe(this.#box);
        this.legend = el('tbody', {});
        this.element = el('section', { class: 'chart' }, el('h2', {}, title), this.#box,
            el('table', {}, el('caption', {}, 'Outcomes'),
                el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Outcome'),
                    ...['Per second', 'In total'].map((name) => el('th', { scope: 'col', class: 'number' }, name)))),
                this.legend));
    }

    update(times, series) {
        const there = OUTCOMES.filter(([name]) => series[name] > 0 || ['executed', 'replayed'].includes(name));
        this.#showLegend(series, there);
        this.#draw(times, series, there);
    }

    #showLegend(series, there) {
        this.legend.replaceChildren(...there.map(([name, outcome, dash]) => el('tr', {},
            el('th', { scope: 'row' }, swatch(name, dash), outcome),
            el('td', { class: 'number' }, lastOf(series.rates[name])),
            el('td', { class: 'number' }, number(series[name])))));
    }

    // Recreated when its lines or the colour scheme change; otherwise it gets new data.
    #draw(times, series, there) {
        const data = [times, ...there.map(([name]) => series.rates[name])];
        const colors = [color('faint'), color('grid'), ...there.map(([name]) => color(name))].join();
        const width = this.#box.clientWidth;
        if (width === 0) return;
        if (this.#plot && this.#colors === colors) {
            this.#plot.setData(data);
            return;
        }
        this.#plot?.destroy();
        this.#colors = colors;
        const axis = { stroke: color('faint'), grid: { stroke: color('grid'), width: 1 }, ticks: { stroke: color('grid'), width: 1 } };
        this.#plot = new uPlot({
            width, height: HEIGHT,
            legend: { show: false },
            cursor: { show: false },
            scales: { y: { range: (plot, low, high) => [0, Math.max(high ?? 0, 1)] } },
            axes: [{ ...axis, values: TIMES, space: 80 }, { ...axis, size: widthOf, values: (plot, ticks) => ticks.map((tick) => GROUPED.format(tick)) }],
            series: [{}, ...there.map(([name, label, dash]) => ({ label, stroke: color(name), width: 2, dash, points: { size: 4 } }))],
        }, data, this.#box);
        this.#plot.root.setAttribute('role', 'img');
        this.#plot.root.setAttribute('aria-label', 'Outcomes per second over time; the table has the last ones.');
    }

    #fit() {
        const width = this.#box.clientWidth;
        if (this.#plot && width > 0 && this.#plot.width !== width) this.#plot.setSize({ width, height: HEIGHT });
    }

    destroy() {
        this.#sizes.disconnect();
        this.#plot?.destroy();
    }
}

function lastOf(rates) {
    const last = rates.at(-1);
    return last === null || last === undefined ? '–' : last < 10 ? last.toFixed(1) : number(Math.round(last));
}

function swatch(name, dash) {
    const svg = (tag, properties) => {
        const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
        for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
        return element;
    };
    const box = svg('svg', { class: `swatch legend-${name}`, viewBox: '0 0 32 8', height: 8, 'aria-hidden': 'true' });
    box.append(svg('line', { x1: 0, y1: 4, x2: 32, y2: 4, stroke: 'currentColor', 'stroke-width': 3, 'stroke-dasharray': dash.join(' ') || 'none' }));
    return box;
}
