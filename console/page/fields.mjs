// Fields for text that clients chose. A character that is invisible, or that reverses the direction of
// the text, stands in a field as \u{202E}, and may be typed like that.
import { codeOf, el, UNSEEN } from './build.mjs';

export function escaped(text) {
    let said = '';
    for (const character of String(text).replace(/\\(?=u\{)/g, '\\u{5C}')) {
        said += UNSEEN.test(character) ? `\\u{${codeOf(character)}}` : character;
    }
    return said;
}

export const unescaped = (text) => text.replace(/\\u\{([0-9a-f]{1,6})\}/gi, (all, code) =>
    (Number.parseInt(code, 16) <= 0x10ffff ? String.fromCodePoint(Number.parseInt(code, 16)) : all));

// el('input') for such a text; its value is read with valueOf().
export function field(id, value, attributes = {}) {
    const input = el('input', { id, type: 'text', value: escaped(value ?? ''), autocomplete: 'off', spellcheck: 'false', ...attributes });
    // Also what is pasted.
    input.addEventListener('input', (event) => {
        if (!event.isComposing && UNSEEN.test(input.value)) {
            input.value = [...input.value].map((character) => (UNSEEN.test(character) ? `\\u{${codeOf(character)}}` : character)).join('');
        }
    });
    return input;
}

export const valueOf = (input) => unescaped(input.value);

export const labelled = (title, input, attributes = {}) => el('label', attributes, el('span', {}, title), input);

// A choice without a default: the first option is none.
export function choice(id, options, value, attributes = {}) {
    const select = el('select', { id, ...attributes }, ...options.map(([name, title]) => el('option', { value: name }, title)));
    if (options.some(([name]) => name === value)) select.value = value;
    return select;
}
