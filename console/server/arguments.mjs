// The command line, and libpq's ways to name a server: variables, connection strings, services.
import { existsSync, readFileSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

export class UsageError extends Error {}

export const usage = (command) => `Usage: ${command} [OPTION...] [DBNAME | CONNECTION STRING]

Shows in a browser what idempotency keeps in a database. Reads only. Prints the address to open, which
is on this machine alone, and whose last part is a secret.

  -h, --host HOST       server, or folder of its socket (PGHOST)
  -p, --port PORT       (PGPORT)
  -U, --username ROLE   role that connects (PGUSER)
  -d, --dbname DBNAME   database, or a connection string or URI (PGDATABASE)
  -W, --password        ask for the password before the server does
  --role ROLE           look with the rights of this role (SET ROLE)
  --listen PORT         port of the page on 127.0.0.1 (default: a free one)
  --every SECONDS       how often counters are sampled (default: 5); pages are
                        read as often, but every 5 seconds at least

A password comes from PGPASSWORD, PGPASSFILE or ~/.pgpass, or is asked for.
`;

// Parameters of libpq that the console supports, by the variable that sets them.
const VARIABLES = {
    PGHOST: 'host', PGPORT: 'port', PGUSER: 'user', PGDATABASE: 'dbname', PGPASSWORD: 'password',
    PGPASSFILE: 'passfile', PGSSLMODE: 'sslmode', PGSSLROOTCERT: 'sslrootcert', PGSSLCERT: 'sslcert',
    PGSSLKEY: 'sslkey', PGOPTIONS: 'options', PGCONNECT_TIMEOUT: 'connect_timeout', PGSERVICE: 'service',
};
const KNOWN = new Set(Object.values(VARIABLES));
// Parameters without an effect on the console.
const IGNORED = new Set(['application_name', 'fallback_application_name', 'client_encoding', 'gssencmode',
    'keepalives', 'keepalives_idle', 'keepalives_interval', 'keepalives_count', 'target_session_attrs']);

export function parseArguments(argv, environment) {
    const { values, positionals } = parse(argv);
    if (positionals.length > 1) throw new UsageError(`unexpected '${positionals[1]}'`);
    const given = connectionString(values.dbname ?? positionals[0] ?? '');
    if (values.host) given.host = values.host;
    if (values.port) given.port = values.port;
    if (values.username) given.user = values.username;
    const fromEnvironment = {};
    for (const [variable, parameter] of Object.entries(VARIABLES)) {
        if (environment[variable]) fromEnvironment[parameter] = environment[variable];
    }
    const service = given.service ?? fromEnvironment.service;
    const connection = { ...fromEnvironment, ...(service ? readService(service, environment) : {}), ...given };
    return {
        help: values.help,
        prompt: values.password,
        role: values.role,
        listen: whole(values.listen, 0, 65535, '--listen'),
        every: whole(values.every, 1, 3600, '--every'),
        connection: complete(connection),
    };
}

function parse(argv) {
    try {
        return parseArgs({
            args: argv,
            allowPositionals: true,
            options: {
                help: { type: 'boolean' },
                host: { type: 'string', short: 'h' },
                port: { type: 'string', short: 'p' },
                username: { type: 'string', short: 'U' },
                dbname: { type: 'string', short: 'd' },
                password: { type: 'boolean', short: 'W' },
                role: { type: 'string' },
                listen: { type: 'string', default: '0' },
                every: { type: 'string', default: '5' },
            },
        });
    } catch (error) {
        throw new UsageError(error.message);
    }
}

function whole(text, least, most, name) {
    const number = /^[0-9]+$/.test(text) ? Number(text) : NaN;
    if (!(number >= least && number <= most)) {
        throw new UsageError(`${name} wants a whole number from ${least} to ${most}`);
    }
    return number;
}

// A name of a database, "host=... dbname=...", or postgresql://...
export function connectionString(text) {
    let parameters;
    if (/^postgres(ql)?:\/\//.test(text)) {
        parameters = fromUri(text);
    } else if (text.includes('=')) {
        parameters = fromConninfo(text);
    } else {
        parameters = text ? { dbname: text } : {};
    }
    return known(parameters);
}

function known(parameters) {
    for (const name of Object.keys(parameters)) {
        if (IGNORED.has(name)) delete parameters[name];
        else if (!KNOWN.has(name)) throw new UsageError(`connection parameter '${name}' is not understood`);
    }
    return parameters;
}

function fromUri(text) {
    let uri;
    try {
        uri = new URL(text);
    } catch {
        throw new UsageError('the connection URI can\'t be read');
    }
    const parameters = {};
    const set = (name, value) => {
        if (value) parameters[name] = decodeURIComponent(value);
    };
    set('user', uri.username);
    set('password', uri.password);
    set('host', uri.hostname.replace(/^\[(.*)\]$/, '$1'));
    set('port', uri.port);
    set('dbname', uri.pathname.slice(1));
    for (const [name, value] of uri.searchParams) parameters[name] = value;
    return parameters;
}

function fromConninfo(text) {
    const parameters = {};
    const part = /\s*([a-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)/gy;
    let end = 0;
    for (let match = part.exec(text); match; match = part.exec(text)) {
        parameters[match[1]] = (match[2] ?? match[3]).replace(/\\(.)/g, '$1');
        end = part.lastIndex;
    }
    if (text.slice(end).trim() !== '') throw new UsageError('the connection string can\'t be read');
    return parameters;
}

function readService(name, environment) {
    const file = environment.PGSERVICEFILE || join(homedir(), '.pg_service.conf');
    let section = null;
    const parameters = {};
    for (const line of existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []) {
        const text = line.trim();
        if (text.startsWith('[') && text.endsWith(']')) section = text.slice(1, -1);
        else if (section === name && text && !text.startsWith('#')) {
            const at = text.indexOf('=');
            parameters[text.slice(0, at).trim()] = text.slice(at + 1).trim();
        }
    }
    if (Object.keys(parameters).length === 0) throw new UsageError(`service '${name}' is not in ${file}`);
    return known(parameters);
}

function complete(connection) {
    const port = whole(connection.port ?? '5432', 1, 65535, 'the port');
    const user = connection.user ?? userInfo().username;
    const host = connection.host ?? socketFolder(port) ?? 'localhost';
    if (host.includes(',')) throw new UsageError('one host is wanted, not a list');
    return { ...connection, host, port, user, dbname: connection.dbname ?? user };
}

function socketFolder(port) {
    return ['/var/run/postgresql', '/tmp'].find((folder) => existsSync(`${folder}/.s.PGSQL.${port}`));
}
