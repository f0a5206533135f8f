// Requests to the console's server. The token came in the part of the address that browsers send
// nowhere. It stays in the tabs of this console: it survives a reload, and ends with the last tab.
import { database } from './address.mjs';

const STORED = 'idempotency-console-token';
const TAB_MS = 400; // a moment for another tab to answer

const tabs = new BroadcastChannel('idempotency-console');
const stored = () => sessionStorage.getItem(STORED);

// A tab that was opened from a link asks the others. Only pages of this port hear it.
tabs.onmessage = ({ data }) => {
    if (data?.wanted && stored()) tabs.postMessage({ token: stored() });
    else if (data?.token && !stored()) sessionStorage.setItem(STORED, data.token);
};

// The token of an address that was printed, or of a pasted one.
export function keepToken(text) {
    const given = /(?:^|#token=)([\w-]{40,})$/.exec(text.trim());
    if (given) sessionStorage.setItem(STORED, given[1]);
    return Boolean(given);
}

export async function takeToken() {
    if (/^#token=/.test(location.hash)) {
        keepToken(location.hash);
        // Keeps the token out of the history and off the screen.
        history.replaceState(null, '', '/');
    }
    if (stored()) return;
    tabs.postMessage({ wanted: true });
    for (let waited = 0; waited < TAB_MS && !stored(); waited += 20) await new Promise((resolve) => setTimeout(resolve, 20));
}

// The answer, or { problem } in its place.
export async function ask(what, body = {}) {
    try {
        const response = await fetch(`/api/${what}`, {
            method: 'POST',
            headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${stored() ?? ''}` },
            body: JSON.stringify({ database: database(), ...body }),
        });
        if (response.status === 401) return { problem: { kind: 'token', message: 'this tab has no token of this run' } };
        if (!response.ok) return { problem: { kind: 'console', message: `the console says: ${await response.text()}` } };
        return await response.json();
    } catch {
        return { problem: { kind: 'console', message: 'the console does not answer: it has ended' } };
    }
}
