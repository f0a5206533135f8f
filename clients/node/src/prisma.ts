// Prisma.
import { type Database, type Row, throughCallbacks } from './database.js';

interface Session { $queryRawUnsafe<T>(text: string, ...values: any[]): PromiseLike<T> }
/** The needed part: each service generates a client type of its own. */
interface PrismaClient<Tx> extends Session {
  $transaction<T>(work: (tx: Tx) => Promise<T>, options?: { maxWait?: number; timeout?: number }): Promise<T>;
}

/** Prisma ends transactions that last longer than `timeout`, by default 5 seconds. */
export function prisma<Tx extends Session & object>(
  client: PrismaClient<Tx>, options: { maxWait?: number; timeout?: number } = {},
): Database<Tx> {
  return {
    transaction: throughCallbacks<Tx>(
      (work) => client.$transaction((tx) => work(tx), options),
      async (tx, text, values) => tx.$queryRawUnsafe<Row[]>(text, ...values),
    ),
    statement: async (text, values) => await client.$queryRawUnsafe<Row[]>(text, ...values),
  };
}
