// drizzle, on pg or on postgres.js.
import { type SQL, sql } from 'drizzle-orm';
import type { Pool } from 'pg';
import { type Database, type Row, throughCallbacks } from './database.js';
import { pg } from './pg.js';
import { type Value, asTexts } from './statements.js';
import { isPgPool, tolerant } from './tolerant.js';

interface Session { execute(query: SQL): PromiseLike<unknown> }
interface DrizzleDatabase<Tx> extends Session { transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> }

export function drizzle<Tx extends Session & object>(db: DrizzleDatabase<Tx>): Database<Tx> {
  const { $client: client } = db as { $client?: unknown };
  if (isPgPool(client)) tolerant(client);
  const listen = isPgPool(client) ? pg(client as unknown as Pool).listen : undefined;
  const run = async (on: Session, text: string, values: Value[]): Promise<Row[]> => {
    // drizzle does not let postgres.js prepare statements, and that asks for the types of parameters first.
    const postgres = (on as any).session?.client;
    if (postgres?.unsafe) return [...await postgres.unsafe(text, asTexts(postgres, values), { prepare: true })];
    // postgres.js would encode a value declared boolean; a text stays unchanged.
    const untyped = text.replace(/(\$\d+)::(?!bytea|text)/g, '$1::text::');
    const pieces = untyped.split(/\$(\d+)/); // text and numbers in turn
    const query = sql.join(pieces.map((piece, i) => (i % 2 ? sql`${values[Number(piece) - 1]!}` : sql.raw(piece))));
    const result = await on.execute(query) as Row[] | { rows: Row[] };
    return Array.isArray(result) ? [...result] : result.rows;
  };
  return {
    transaction: throughCallbacks<Tx>((work) => db.transaction((tx) => work(tx)), run),
    statement: (text, values) => run(db, text, values),
    ...(listen && { listen }),
  };
}
