// postgres.js.
import type { Sql, TransactionSql } from 'postgres';
import { type Database, type Row, throughCallbacks } from './database.js';
import type { Value } from './statements.js';

const TEXT = 25; // the type's oid

/** A string for jsonb would be encoded once more, so texts declare their type. */
export const asTexts = (sql: Sql<any>, values: Value[]): any[] =>
  values.map((value) => (typeof value === 'string' ? sql.typed(value, TEXT) : value));

export function postgres(sql: Sql<any>): Database<TransactionSql<any>> {
  // Without a prepared statement, postgres.js asks for the types of the parameters first.
  const run = async (on: Sql<any>, text: string, values: Value[]): Promise<Row[]> =>
    [...await on.unsafe<Row[]>(text, asTexts(sql, values), { prepare: true })];
  return {
    transaction: throughCallbacks<TransactionSql<any>>((work) => sql.begin((tx) => work(tx)) as Promise<unknown>, run as any, true),
    statement: (text, values) => run(sql, text, values),
  };
}
