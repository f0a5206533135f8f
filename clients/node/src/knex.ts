// knex.
import type { Knex } from 'knex';
import { type Database, type Row, throughCallbacks } from './database.js';
import { type Value, positional } from './statements.js';

export function knex(db: Knex): Database<Knex.Transaction> {
  const run = async (on: Knex, text: string, values: Value[]): Promise<Row[]> => {
    const placed = positional(text, values);
    return (await on.raw(placed.text, placed.values as any[])).rows;
  };
  return {
    transaction: throughCallbacks<Knex.Transaction>((work) => db.transaction((trx) => work(trx)), run),
    statement: (text, values) => run(db, text, values),
  };
}
