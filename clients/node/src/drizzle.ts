// drizzle, on pg or on postgres.js.
import { type SQL, sql } from 'drizzle-orm';
import type { Database, Row } from './database.js';
import type { Value } from './statements.js';
import { isPgPool, tolerant } from './tolerant.js';

interface Session { execute(query: SQL): PromiseLike<unknown> }
interface DrizzleDatabase<Tx> extends Session { transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> }

export function drizzle<Tx extends Session>(db: DrizzleDatabase<Tx>): Database<Tx> {
  const { $client: client } = db as { $client?: unknown };
  if (isPgPool(client)) tolerant(client);
  const run = async (on: Session, text: string, values: Value[]): Promise<Row[]> => {
    // postgres.js would encode a value declared boolean; a text stays unchanged.
    const untyped = text.replace(/(\$\d+)::(?!bytea|text)/g, '$1::text::');
    const pieces = untyped.split(/\$(\d+)/); // text and numbers in turn
    const query = sql.join(pieces.map((piece, i) => (i % 2 ? sql`${values[Number(piece) - 1]!}` : sql.raw(piece))));
    const result = await on.execute(query) as Row[] | { rows: Row[] };
    return Array.isArray(result) ? [...result] : result.rows;
  };
  return {
    transaction: (work) => db.transaction((tx) => work(tx)),
    query: (tx, text, values) => run(tx, text, values),
    statement: (text, values) => run(db, text, values),
  };
}
