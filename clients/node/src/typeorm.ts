// TypeORM.
import type { DataSource, EntityManager } from 'typeorm';
import type { Database } from './database.js';

export function typeorm(source: DataSource): Database<EntityManager> {
  return {
    transaction: (work) => source.transaction((manager) => work(manager)),
    query: (manager, text, values) => manager.query(text, values),
    statement: (text, values) => source.query(text, values),
  };
}
