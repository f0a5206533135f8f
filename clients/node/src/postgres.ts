// postgres.js.
import type { Sql, TransactionSql } from 'postgres';
import type { Database, Row } from './database.js';
import type { Value } from './statements.js';

const TEXT = 25; // the type's oid

export function postgres(sql: Sql<any>): Database<TransactionSql<any>> {
  // A string for jsonb would be encoded once more, so texts declare their type.
  const typed = (values: Value[]) => values.map((value) => (typeof value === 'string' ? sql.typed(value, TEXT) : value)) as any[];
  return {
    transaction: (work) => sql.begin((tx) => work(tx)) as Promise<any>,
    query: async (tx, text, values) => [...await tx.unsafe<Row[]>(text, typed(values))],
    statement: async (text, values) => [...await sql.unsafe<Row[]>(text, typed(values))],
  };
}
