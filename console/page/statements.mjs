// Statements for a user to run: this page writes them and never runs them.

const UNSEEN = /[\p{C}\p{Z}\u115f\u1160\u3164\uffa0\u034f\ufe00-\ufe0f]/u;

// As PostgreSQL's quote_literal, under any standard_conforming_strings. An invisible character is
// written as its number, so that the copied text is the text on the screen.
export function quoteLiteral(text) {
    let escaped = '';
    let plain = true;
    for (const character of String(text)) {
        if (character === '\'') escaped += '\'\'';
        else if (character === '\\') { escaped += '\\\\'; plain = false; }
        else if (character !== ' ' && UNSEEN.test(character)) {
            const code = character.codePointAt(0);
            escaped += code > 0xffff ? `\\U${code.toString(16).padStart(8, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
            plain = false;
        } else escaped += character;
    }
    return `${plain ? '' : 'E'}'${escaped}'`;
}

export const quoteName = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${String(name).replace(/"/g, '""')}"`);

// A function by its name; schema: where the functions are.
export const placed = (schema, name) => (schema && schema !== 'public' ? `${quoteName(schema)}.` : '') + name;

// The arguments of each action of idem_resolve, besides the reason.
export const ARGUMENTS = {
    release: ['error'],
    reopen: ['error'],
    complete: ['status_code', 'body'],
    fail: ['error', 'status_code', 'body'],
    forget: [],
};

// given: the contents of the form, as text.
export function decision({ schema, key, scope, principal, action, given }) {
    const args = [quoteLiteral(key)];
    if (action !== 'forget') args.push(quoteLiteral(action));
    if (scope) args.push(`scope => ${quoteLiteral(scope)}`);
    if (principal) args.push(`principal => ${quoteLiteral(principal)}`);
    for (const name of [...ARGUMENTS[action], 'reason']) {
        const value = given[name]?.trim() ?? '';
        if (value === '') continue;
        args.push(`${name} => ${name === 'status_code' ? String(Number.parseInt(value, 10)) : quoteLiteral(given[name])}`);
    }
    const name = action === 'forget' ? 'idem_forget' : 'idem_resolve';
    return `SELECT ${placed(schema, name)}(${args.join(', ')});`;
}

let copies = 0;

// A statement and the button that copies it.
export function copyable(title, text) {
    const code = document.createElement('pre');
    code.append(text);
    code.tabIndex = 0;
    code.setAttribute('aria-label', `${title}: statement`);
    const button = document.createElement('button');
    button.type = 'button';
    button.append('Copy');
    button.dataset.id = `copy ${title} ${++copies}`;
    button.addEventListener('click', async () => {
        try {
            await navigator.clipboard.writeText(code.textContent);
            button.textContent = 'Copied';
        } catch {
            // Copying is not allowed here: the text is selected, for the keyboard to copy.
            getSelection().selectAllChildren(code);
            button.textContent = 'Press Ctrl+C';
        }
    });
    const both = document.createElement('div');
    both.className = 'statement';
    both.append(code, button);
    return both;
}
