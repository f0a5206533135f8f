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

export function none(word = 'none') {
    return el('span', { class: 'faint' }, word);
}

// A server's timestamp in the reader's time zone; in full as a tooltip.
export function moment(text) {
    if (!text) return none('–');
    const date = new Date(text.replace(' ', 'T').replace(/\+00(:00)?$/, 'Z'));
    if (Number.isNaN(date.getTime())) return text;
    const two = (number) => String(number).padStart(2, '0');
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
    return el('time', { datetime: date.toISOString(), title: text }, `${day} ${time}`);
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

const GOOD = ['completed', 'replay', 'execute', 'complete'];
const BAD = ['unknown', 'failed', 'mismatch', 'exhausted', 'fail', 'forget'];

// A status, an outcome or an action.
export function word(text) {
    if (!text) return none();
    const kind = GOOD.includes(text) ? 'good' : BAD.includes(text) ? 'bad' : 'warn';
    return el('span', { class: `word ${kind}` }, text);
}
