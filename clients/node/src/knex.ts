// knex.
import type { Knex } from 'knex';
import type { Database, Row } from './database.js';
import { type Value, positional } from './statements.js';

export function knex(db: Knex): Database<Knex.Transaction> {
  const run = async (on: Knex, text: string, values: Value[]): Promise<Row[]> => {
    const placed = positional(text, values);
    return (await on.raw(placed.text, placed.values as any[])).rows;
  };
  return {
    transaction: (work) => db.transaction((trx) => work(trx)),
    query: (trx, text, values) => run(trx, text, values),
    statement: (text, values) => run(db, text, values),
  };
}
