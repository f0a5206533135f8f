// kysely. Its dialect for pg does not handle a lost connection: give it `tolerant(pool)`.
import { CompiledQuery, type Kysely, type Transaction } from 'kysely';
import { type Database, type Row, throughCallbacks } from './database.js';
import type { Value } from './statements.js';

export { tolerant } from './tolerant.js';

export function kysely<Schema>(db: Kysely<Schema>): Database<Transaction<Schema>> {
  // Plugins may rename columns.
  const run = async (on: Kysely<Schema>, text: string, values: Value[]): Promise<Row[]> =>
    (await on.withoutPlugins().executeQuery(CompiledQuery.raw(text, values))).rows as Row[];
  return {
    transaction: throughCallbacks<Transaction<Schema>>((work) => db.transaction().execute((trx) => work(trx)), run),
    statement: (text, values) => run(db, text, values),
  };
}
