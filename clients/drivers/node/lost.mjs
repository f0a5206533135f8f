// node lost.mjs DRIVER: an idle connection of the driver's pool is lost. If the process outlives that, its last
// words are whether the next statement runs.
import { createRequire } from 'node:module';
import pg from 'pg';

const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env;
const PID = 'SELECT pg_backend_pid() AS pid';

// Each runs a statement on its pool.
const drivers = {
  pg: async () => {
    const pool = new pg.Pool();
    return async (text) => (await pool.query(text)).rows;
  },
  'pg with a listener': async () => {
    const pool = new pg.Pool();
    pool.on('error', () => {});
    return async (text) => (await pool.query(text)).rows;
  },
  postgres: async () => {
    const { default: postgres } = await import('postgres');
    const sql = postgres({ database });
    return (text) => sql.unsafe(text);
  },
  knex: async () => {
    const { default: knex } = await import('knex');
    const db = knex({ client: 'pg', connection: { host, port, user, database } });
    return async (text) => (await db.raw(text)).rows;
  },
  kysely: async () => {
    const { CompiledQuery, Kysely, PostgresDialect } = await import('kysely');
    const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool() }) });
    return async (text) => (await db.executeQuery(CompiledQuery.raw(text, []))).rows;
  },
  drizzle: async () => {
    const { drizzle } = await import('drizzle-orm/node-postgres');
    const db = drizzle(new pg.Pool());
    return async (text) => (await db.execute(text)).rows;
  },
  typeorm: async () => {
    const { DataSource } = await import('typeorm');
    const source = await new DataSource({ type: 'postgres', host, port: Number(port), username: user, database }).initialize();
    return (text) => source.query(text);
  },
  prisma: async () => {
    const { PrismaPg } = await import('@prisma/adapter-pg');
    const { PrismaClient } = createRequire(import.meta.url)('./node_modules/.prisma-driver/index.js');
    const prisma = new PrismaClient({ adapter: new PrismaPg({ database }) });
    return (text) => prisma.$queryRawUnsafe(text);
  },
};

const query = await drivers[process.argv[2]]();
const [{ pid }] = await query(PID);
const killer = new pg.Client();
await killer.connect();
await killer.query('SELECT pg_terminate_backend($1)', [pid]);
// Until the process has noticed: the killer's connection is what remains.
const sockets = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
while (sockets() > 1) await new Promise((resolve) => { setImmediate(resolve); });
const next = await query(PID).then(() => 'works', () => 'the next statement fails');
process.stdout.write(next, () => process.exit());
