// postgres.js.
import type { Sql, TransactionSql } from 'postgres';
import { ConnectionLost, type Database, type Row, quotedName, throughCallbacks } from './database.js';
import { type Value, asTexts } from './statements.js';

export function postgres(sql: Sql<any>): Database<TransactionSql<any>> {
  // Without a prepared statement, postgres.js asks for the types of the parameters first.
  const run = async (on: Sql<any>, text: string, values: Value[]): Promise<Row[]> =>
    [...await on.unsafe<Row[]>(text, asTexts(sql, values), { prepare: true })];
  return {
    transaction: throughCallbacks<TransactionSql<any>>((work) => sql.begin((tx) => work(tx)) as Promise<unknown>, run as any, true),
    statement: (text, values) => run(sql, text, values),
    listen: (channel, onNotice, signal) => listen(sql, channel, onNotice, signal),
  };
}

/** Not by `sql.listen`, which does not say when it has lost its connection, and tries once to get another. */
async function listen(sql: Sql<any>, channel: string, onNotice: () => void, signal: AbortSignal): Promise<void> {
  const library = await import('postgres') as any;
  let stop!: () => void;
  let own: Sql | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      stop = resolve;
      signal.addEventListener('abort', stop);
      if (signal.aborted) return stop();
      own = (library.default ?? library)({
        ...sql.options, max: 1, idle_timeout: null, max_lifetime: null, fetch_types: false,
        onnotify: onNotice, onclose: () => reject(new ConnectionLost('Connection closed')),
      }) as Sql;
      own.unsafe(`LISTEN ${quotedName(channel)}`).then(onNotice).catch(reject);
    });
  } finally {
    signal.removeEventListener('abort', stop);
    await own?.end({ timeout: 0 });
  }
}
