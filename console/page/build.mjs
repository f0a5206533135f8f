// Elements, built from text. No code on the page parses HTML: data from clients stays text, and the
// server's Content-Security-Policy forbids the rest.

// el('td', { class: 'number', onclick }, children...)
export function el(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

// Characters that are invisible or reverse the direction of the text: with them one key could look
// like another.
export const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u00a0\u2000-\u200a\u202f\u205f\u3000\u115f\u1160\u3164\uffa0\u034f\ufe00-\ufe0f]/u;

export const codeOf = (character) => character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0');

// A text that a client chose.
export function shown(text) {
    if (text === null || text === undefined) return none('none');
    if (text === '') return none('(empty)');
    const parts = [];
    for (const character of String(text)) {
        if (UNSEEN.test(character)) {
            parts.push(el('span', { class: 'odd', title: 'a character that can\'t be seen' }, `U+${codeOf(character)}`));
        } else if (typeof parts.at(-1) === 'string') parts[parts.length - 1] += character;
        else parts.push(character);
    }
    return el('bdi', {}, ...parts);
}

const GROUPED = new Intl.NumberFormat('en-US');

// A number with separators between thousands.
export const number = (value) => (value === null || value === undefined ? none('–') : GROUPED.format(value));

// How many of something: counted(1, 'record'), counted(2000, 'record').
export const counted = (value, one, many = `${one}s`) => `${GROUPED.format(value)} ${value === 1 ? one : many}`;

const SIZES = ['bytes', 'kB', 'MB', 'GB', 'TB'];

export function size(bytes) {
    const step = bytes < 1024 ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), SIZES.length - 1);
    const value = bytes / 1024 ** step;
    return `${step > 0 && value < 10 ? value.toFixed(1) : GROUPED.format(Math.round(value))} ${SIZES[step]}`;
}

// Where a record is encrypted, its holder is too: that is another thing than no holder.
export function holder(row) {
    if (row.holder === null && row.sealed_by) return el('span', { class: 'faint', title: `encrypted with the key ${row.sealed_by}` }, 'sealed');
    return shown(row.holder);
}

export function none(word = 'none') {
    return el('span', { class: 'faint' }, word);
}

// A server's timestamp, null if it is none.
export function dateOf(text) {
    const date = text ? new Date(text.replace(' ', 'T').replace(/\+00(:00)?$/, 'Z')) : null;
    return date === null || Number.isNaN(date.getTime()) ? null : date;
}

// In the reader's time zone; in full as a tooltip.
export function moment(text) {
    if (!text) return none('–');
    const date = dateOf(text);
    if (date === null) return text;
    const two = (number) => String(number).padStart(2, '0');
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
    return el('time', { datetime: date.toISOString(), title: text }, el('span', {}, day), ' ', el('span', {}, time));
}

const UNITS = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];

// Seconds as two units at most.
export function span(seconds) {
    if (seconds === null || seconds === undefined) return none('–');
    if (Math.abs(seconds) < 1) return `${Math.round(seconds * 1000)} ms`;
    let left = Math.round(Math.abs(seconds));
    const parts = [];
    for (const [size, unit] of UNITS) {
        const count = Math.floor(left / size);
        left -= count * size;
        if (count > 0) parts.push(`${count} ${unit}`);
        else if (parts.length > 0) break;
    }
    return (seconds < 0 ? '−' : '') + parts.slice(0, 2).join(' ');
}

// The tone of a status, an outcome or an action.
const TONES = {
    good: ['completed', 'replay', 'execute', 'complete', 'current', 'done'],
    bad: ['unknown', 'failed', 'mismatch', 'exhausted', 'fail', 'forget', 'erase', 'missing'],
    run: ['in_progress', 'leased', 'transactional', 'prepared'],
};

export function word(text) {
    if (!text) return none();
    const tone = Object.keys(TONES).find((one) => TONES[one].includes(text)) ?? 'warn';
    return el('span', { class: `word ${tone}` }, text);
}
