// Requests to the console's server. The token came in the part of the address that browsers send
// nowhere. It stays in this tab: it survives a reload, and ends with the tab.

const STORED = 'idempotency-console-token';

export function takeToken() {
    const given = /^#token=([\w-]+)$/.exec(location.hash);
    if (given) {
        sessionStorage.setItem(STORED, given[1]);
        // Keeps the token out of the history and off the screen.
        history.replaceState(null, '', '/');
    }
}

// The answer, or { problem } in its place.
export async function ask(what, body = {}) {
    const token = sessionStorage.getItem(STORED);
    try {
        const response = await fetch(`/api/${what}`, {
            method: 'POST',
            headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token ?? ''}` },
            body: JSON.stringify(body),
        });
        if (response.status === 401) return { problem: { kind: 'token', message: 'this address has no token of this run' } };
        if (!response.ok) return { problem: { kind: 'console', message: `the console says: ${await response.text()}` } };
        return await response.json();
    } catch {
        return { problem: { kind: 'console', message: 'script/console does not answer: it has ended' } };
    }
}
