// The package as it is published, in an empty project: ESM, CommonJS, TypeScript.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, mkdirSync, rmSync, symlinkSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, describe, test } from 'node:test';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const ENTRIES = Object.keys(JSON.parse(readFileSync(join(ROOT, 'package.json'))).exports).filter((name) => !name.endsWith('.json'))
  .map((name) => `idempotency-postgres${name.slice(1)}`);
const PEERS = ['express', 'fastify', 'koa', 'kysely', 'drizzle-orm', 'knex', 'pg', 'postgres', 'typeorm', '@types'];

let project;
before(() => {
  project = mkdtempSync(join(tmpdir(), 'idem-package-'));
  const run = (command, ...args) => execFileSync(command, args, { cwd: project, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  run('npm', 'pack', ROOT, '--ignore-scripts', '--silent');
  writeFileSync(join(project, 'package.json'), '{ "name": "empty", "private": true }');
  run('npm', 'install', '--offline', '--no-audit', '--no-fund', '--silent', './idempotency-postgres-1.0.0.tgz');
});
after(() => rmSync(project, { recursive: true, force: true }));
const node = (file, text) => {
  writeFileSync(join(project, file), text);
  return execFileSync(process.execPath, [file], { cwd: project, encoding: 'utf8' });
};
const addPeers = () => {
  for (const name of PEERS) {
    try {
      symlinkSync(join(ROOT, 'node_modules', name), join(project, 'node_modules', name));
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
  }
};

describe('the package', () => {
  test('brings what is needed and no tests', () => {
    const listed = execFileSync('tar', ['-tzf', 'idempotency-postgres-1.0.0.tgz'], { cwd: project, encoding: 'utf8' }).split('\n');
    for (const file of ['README.md', 'LICENSE', 'package.json', 'dist/esm/index.js', 'dist/cjs/index.js', 'dist/cjs/package.json', 'dist/esm/index.d.ts']) {
      assert.ok(listed.includes(`package/${file}`), file);
    }
    assert.ok(!listed.some((file) => /tests|example|node_modules|\/src\//.test(file)), listed.join(' '));
  });

  test('ESM, without any framework or driver', () => {
    assert.equal(node('a.mjs', `
      import { parseKey, transactionally } from 'idempotency-postgres';
      import { idempotency } from 'idempotency-postgres/express';
      import { pg } from 'idempotency-postgres/pg';
      console.log(parseKey('"k"'), typeof transactionally, typeof idempotency, typeof pg);`), 'k function function function\n');
  });

  test('CommonJS', () => {
    assert.equal(node('a.cjs', `
      const { parseKey } = require('idempotency-postgres');
      const { idempotency } = require('idempotency-postgres/koa');
      console.log(parseKey('"k"'), typeof idempotency);`), 'k function\n');
  });

  test('every entry, in both ways', () => {
    addPeers();
    node('all.mjs', ENTRIES.map((name) => `await import('${name}');`).join('\n'));
    node('all.cjs', ENTRIES.map((name) => `require('${name}');`).join('\n'));
  });

  for (const kind of ['commonjs', 'module']) {
    test(`TypeScript, ${kind}`, { timeout: 300_000 }, () => {
      addPeers();
      const folder = join(project, kind);
      mkdirSync(folder);
      writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: kind }));
      writeFileSync(join(folder, 'service.ts'), `
        import express from 'express';
        import { Pool } from 'pg';
        import { bearer, idempotency } from 'idempotency-postgres/express';
        import { leased, once, transactionally, worker } from 'idempotency-postgres';
        import { pg } from 'idempotency-postgres/pg';

        const db = pg(new Pool());
        const keys = idempotency({ database: db, principal: bearer });
        const app = express();
        app.post('/payments', keys.transactional(async (req, res) => {
          const { rows } = await req.idempotency.client.query('SELECT 1 AS id');
          res.status(201).json({ id: rows[0].id });
        }));
        app.post('/transfers', keys.leased({ lease: 60_000, missingKey: 'generate' }, async (req, res) => {
          const charge: { id: string } = await req.idempotency.step('charged', async (signal: AbortSignal) => ({ id: String(signal.aborted) }));
          res.json(charge);
        }));
        const name = { key: 'k', scope: 's', principal: 'p' };
        export const first: Promise<boolean> = once(db, name, (client) => client.query('SELECT 1'));

        // A claim can't be forgotten: work that returns no answer is none.
        // @ts-expect-error
        void transactionally(db, name, async (client) => { await client.query('SELECT 1'); });
        // @ts-expect-error
        void leased(db, name, async () => ({ body: 'no status' }));
        // Nor completed by the work itself.
        // @ts-expect-error
        void leased(db, name, async (claim) => { await claim.complete(); return { status: 200 }; });
        worker(db, { scope: 's' }, async ({ client, request }) => { await client.query('SELECT $1', [request.id]); });
        worker(db, { scope: 's', mode: 'leased' }, (work) => work.step('sent', () => ({ status: 200 })));
        // @ts-expect-error
        worker(db, { scope: 's', mode: 'leased' }, async (work) => { await work.client.query('SELECT 1'); });
        // @ts-expect-error
        worker(db, { scope: 's' }, async () => ({ body: 'no status' }));
        // Who it is from has to be said.
        // @ts-expect-error
        idempotency({ database: db });
        // A leased route has no transaction.
        // @ts-expect-error
        keys.leased(async (req) => req.idempotency.client);
        // @ts-expect-error
        keys.transactional({ missingKey: 'ignore' }, () => {});
      `);
      const options = ['--noEmit', '--strict', '--module', 'NodeNext', '--moduleResolution', 'NodeNext', '--target', 'ES2022', '--skipLibCheck',
        '--esModuleInterop', '--types', 'node', 'service.ts'];
      try {
        execFileSync(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), ...options], { cwd: folder, encoding: 'utf8' });
      } catch (error) {
        assert.fail(error.stdout);
      }
    });
  }
});
