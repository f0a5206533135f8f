// Translates libpq's sslmode for Node's TLS.
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'];

// False, or the options that node-postgres passes to TLS. `prefer` continues in the clear if the
// server has no TLS; the caller has to find that out.
export function tlsOptions(connection) {
    const mode = connection.sslmode ?? 'prefer';
    if (!MODES.includes(mode)) throw new Error(`sslmode '${mode}' is not one of ${MODES.join(', ')}`);
    if (mode === 'disable' || connection.host.startsWith('/')) return false;
    const rootFile = connection.sslrootcert ?? join(homedir(), '.postgresql', 'root.crt');
    const verifies = mode.startsWith('verify') || (mode === 'require' && existsSync(rootFile));
    const options = { rejectUnauthorized: verifies };
    if (verifies && rootFile !== 'system') options.ca = readFileSync(rootFile, 'utf8');
    // Only verify-full looks at the name in the certificate.
    if (mode !== 'verify-full') options.checkServerIdentity = () => undefined;
    const certificate = connection.sslcert ?? join(homedir(), '.postgresql', 'postgresql.crt');
    const key = connection.sslkey ?? join(homedir(), '.postgresql', 'postgresql.key');
    if (existsSync(certificate) && existsSync(key)) {
        options.cert = readFileSync(certificate, 'utf8');
        options.key = readFileSync(key, 'utf8');
    }
    return options;
}

export function mayGoWithoutTls(connection) {
    return ['allow', 'prefer'].includes(connection.sslmode ?? 'prefer');
}
