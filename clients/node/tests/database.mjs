// A database for one file of tests, on the server that libpq's variables name.
import pg from 'pg';

/** An HTTP server that leaves it to the client to end an idle connection: both could do it after a pause of 5 s. */
export function patient(server) {
  server.keepAliveTimeout = 0;
  return server;
}

export async function testDatabase(name) {
  const admin = new pg.Client({ database: process.env.PGDATABASE ?? 'postgres' });
  await admin.connect();
  await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  await admin.query(`CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8'`);
  await admin.end();
  const pool = new pg.Pool({ database: name, max: 10 });
  pool.on('error', () => {});
  await pool.query('CREATE EXTENSION idempotency; CREATE TABLE effect (id serial, note text)');
  return {
    name, pool,
    url: `postgresql://${process.env.PGUSER ?? 'postgres'}@${process.env.PGHOST?.startsWith('/') ? 'localhost' : process.env.PGHOST}`
      + `:${process.env.PGPORT ?? 5432}/${name}${process.env.PGHOST?.startsWith('/') ? `?host=${encodeURIComponent(process.env.PGHOST)}` : ''}`,
    host: process.env.PGHOST ?? 'localhost', port: Number(process.env.PGPORT ?? 5432), user: process.env.PGUSER ?? 'postgres',
    effects: async (note) => Number((await pool.query('SELECT count(*) FROM effect WHERE note = $1', [note])).rows[0].count),
    record: async (key) => (await pool.query('SELECT * FROM idempotency.records WHERE key = $1', [key])).rows[0],
    /** As after a first attempt that has failed: a worker's is the second. */
    queue: (key, scope, request) => pool.query(`SELECT idem_fail(b.key, 'queued', retryable => true, scope => $2, retry_after => '0')
      FROM idem_begin($1, $3::jsonb, scope => $2, method => 'POST', path => '/hook', lease => '1 hour') AS b`, [key, scope, JSON.stringify(request)]),
    /** Waits until `holds` returns something, and returns it. */
    async until(holds) {
      for (let left = 2400; left > 0; left -= 1) {
        const found = await holds();
        if (found) return found;
        await new Promise((done) => { setTimeout(done, 50); });
      }
      throw new Error(`not within 120 s: ${holds}`);
    },
    async drop() {
      await pool.end();
      const last = new pg.Client({ database: process.env.PGDATABASE ?? 'postgres' });
      await last.connect();
      try {
        // DROP waits 5 s for the sessions that it ends.
        await last.query('SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE datname = $1', [name]);
        await last.query(`DROP DATABASE ${name} WITH (FORCE)`);
      } finally {
        await last.end();
      }
    },
  };
}
