// TypeORM.
import type { DataSource, EntityManager } from 'typeorm';
import { type Database, throughCallbacks } from './database.js';

export function typeorm(source: DataSource): Database<EntityManager> {
  return {
    transaction: throughCallbacks<EntityManager>(
      (work) => source.transaction((manager) => work(manager)),
      (manager, text, values) => manager.query(text, values),
    ),
    statement: (text, values) => source.query(text, values),
  };
}
