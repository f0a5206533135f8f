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

// The named arguments of an action, as given in a form.
function argumentsOf(action, given) {
    return [...ARGUMENTS[action], 'reason'].filter((name) => (given[name]?.trim() ?? '') !== '')
        .map((name) => `${name} => ${name === 'status_code' ? String(Number.parseInt(given[name], 10)) : quoteLiteral(given[name])}`);
}

// given: the contents of the form, as text. evenIfRunning: a release of a live lease, which the function
// refuses otherwise.
export function decision({ schema, key, scope, principal, action, given, evenIfRunning = false }) {
    const args = [quoteLiteral(key)];
    if (action !== 'forget') args.push(quoteLiteral(action));
    if (scope) args.push(`scope => ${quoteLiteral(scope)}`);
    if (principal) args.push(`principal => ${quoteLiteral(principal)}`);
    if (evenIfRunning) args.push('even_if_running => true');
    args.push(...argumentsOf(action, given));
    const name = action === 'forget' ? 'idem_forget' : 'idem_resolve';
    return `SELECT ${placed(schema, name)}(${args.join(', ')});`;
}

// Decides all records that fit, in batches. matched: arguments that choose them.
export function decisionForAll({ schema, action, given, matched }) {
    const chosen = Object.entries(matched).map(([name, value]) => `${name} => ${quoteLiteral(value)}`);
    return `CALL ${placed(schema, 'idem_resolve_all')}(${[quoteLiteral(action), ...chosen, ...argumentsOf(action, given)].join(', ')});`;
}

// Decides chosen records, none that runs or that has changed since it was seen.
export function decisionForEach({ schema, action, given, rows }) {
    const args = ['key', quoteLiteral(action), 'scope => scope', 'principal => principal', 'claimed_at => claimed_at', ...argumentsOf(action, given)];
    const values = rows.map((row) => `    (${[row.key, row.scope, row.principal].map(quoteLiteral).join(', ')}, ${quoteLiteral(row.claimed_at)}::timestamptz)`);
    return `SELECT scope, principal, key, ${placed(schema, 'idem_resolve_idle')}(${args.join(', ')})
  FROM (VALUES
${values.join(',\n')}
  ) AS chosen (key, scope, principal, claimed_at);`;
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
