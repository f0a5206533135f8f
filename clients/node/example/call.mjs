// Executes COUNT orders by the helper for callers, and prints each key with the last answer's status.
import { call, newKey } from 'idempotency-postgres/caller';

const [url, token, count] = process.argv.slice(2);
const body = JSON.stringify({ effect: 'called' });
const fields = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json', Connection: 'close' };

async function order() {
  const key = newKey();
  const send = (headers, signal) => fetch(url, { method: 'POST', body, signal, headers: { ...fields, ...headers } });
  const answer = await call(send, { key, attempts: 30, base: 20, cap: 500, timeout: 5000 });
  console.log(key, answer.status);
}

let left = Number(count);
await Promise.all(Array.from({ length: 4 }, async () => {
  while (left > 0) {
    left -= 1;
    await order();
  }
}));
