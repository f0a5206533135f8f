// validate_cluster.mjs FOLDER: whether the documents on the standard input, a JSON array, are objects of CloudNativePG.
// FOLDER has its types from npm. Their validators look at values, and the compiler finds fields that no type has.
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = process.argv[2];
const types = '@kubernetes-models/cloudnative-pg/postgresql.cnpg.io/v1';
const documents = JSON.parse(readFileSync(0, 'utf8'));
const lines = [];
for (const [number, document] of documents.entries()) {
    if (document.apiVersion !== 'postgresql.cnpg.io/v1') throw new Error(`apiVersion is ${document.apiVersion}`);
    const module = await import(join(folder, 'node_modules', types, `${document.kind}.js`));
    new module[document.kind](document).validate();
    lines.push(`import type { I${document.kind} as T${number} } from '${types}/${document.kind}';`);
    lines.push(`export const d${number}: T${number} = ${JSON.stringify(document)};`);
}
if (documents.length === 0) throw new Error('no document');
const source = join(folder, `documents-${process.pid}.mts`);
writeFileSync(source, lines.join('\n'));
try {
    execFileSync(join(folder, 'node_modules/.bin/tsc'),
        ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2022', source], { stdio: 'inherit' });
} finally {
    rmSync(source);
}
