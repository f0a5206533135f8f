// The connection to the database: a few read-only sessions, and the problem when they fail.
import pg from 'pg';
import { mayGoWithoutTls, tlsOptions } from './tls.mjs';

const SESSIONS = 3;
const CONNECT_MS = 5000;
const STATEMENT_MS = 5000;
const SILENCE_MS = 15000; // a server that is gone without a word

// Session settings, which override those of the role, the database and the user's PGOPTIONS. Names
// in the queries are qualified, so no object in a user's search_path is run.
const SETTINGS = {
    default_transaction_read_only: 'on',
    statement_timeout: `${STATEMENT_MS}`,
    lock_timeout: '2000',
    idle_in_transaction_session_timeout: '30000',
    search_path: 'pg_catalog',
    TimeZone: 'UTC',
    DateStyle: 'ISO',
    IntervalStyle: 'postgres',
};

const BOOL = 16;
const NUMBERS = new Set([20, 21, 23, 26, 700, 701]);
const JSONS = new Set([114, 3802]);

// Timestamps, intervals and other types stay the server's text.
const types = {
    getTypeParser(type) {
        if (type === BOOL) return (text) => text === 't';
        if (NUMBERS.has(type)) return Number;
        if (JSONS.has(type)) return JSON.parse;
        return (text) => text;
    },
};

export class Database {
    // Called with a problem when the connection is lost, and with null when it is back.
    onChange = () => {};
    #pool = null;
    #tls;
    #attempt = null;
    #admitted = false;
    #refused = null; // a refused password or role: trying again by itself could lock the account
    #lost = null;

    constructor(connection, { role, expected } = {}) {
        this.connection = connection;
        this.role = role;
        this.expected = expected; // the extension's version that this console knows
        this.user = connection.user;
        this.name = connection.dbname;
        this.place = `${connection.host}:${connection.port}`;
        this.password = connection.password;
        this.#tls = tlsOptions(connection);
        if (connection.passfile) process.env.PGPASSFILE = connection.passfile;
    }

    // The same server and role, another database.
    inDatabase(name) {
        const { connection, role, expected } = this;
        return new Database({ ...connection, dbname: name, password: this.password }, { role, expected });
    }

    #config() {
        const settings = { ...SETTINGS, ...(this.role ? { role: this.role } : {}) };
        const options = Object.entries(settings)
            .map(([name, value]) => `-c ${name}=${value.replace(/[\\ ]/g, '\\$&')}`);
        return {
            host: this.connection.host,
            port: this.connection.port,
            user: this.user,
            database: this.name,
            password: this.password,
            ssl: this.#tls,
            options: [this.connection.options ?? '', ...options].join(' ').trim(),
            application_name: 'idempotency console',
            connectionTimeoutMillis: CONNECT_MS,
            query_timeout: SILENCE_MS,
            keepAlive: true,
            idleTimeoutMillis: 60000,
            max: SESSIONS,
            types,
        };
    }

    // Until a session is admitted, one connects and the others wait for it: a wrong password counts
    // once.
    async #connect() {
        while (this.#attempt) await this.#attempt;
        if (this.#refused) throw this.#refused;
        if (this.#admitted) return this.#open();
        let done;
        this.#attempt = new Promise((resolve) => { done = resolve; });
        try {
            const client = await this.#open();
            this.#admitted = true;
            return client;
        } catch (error) {
            throw this.#noteLoss(error);
        } finally {
            this.#attempt = null;
            done();
        }
    }

    async #open() {
        if (!this.#pool) {
            this.#pool = new pg.Pool(this.#config());
            // An idle session that ends: the next query notices it.
            this.#pool.on('error', () => {});
            // A session cut during a query reports it twice: to the query, and here, where an
            // unhandled event would end the program.
            this.#pool.on('connect', (client) => client.on('error', () => {}));
        }
        try {
            return await this.#pool.connect();
        } catch (error) {
            if (this.#tls && mayGoWithoutTls(this.connection) && /does not support SSL/.test(error.message)) {
                this.#tls = false;
                await this.#forgetPool();
                return this.#open();
            }
            throw error;
        }
    }

    async #forgetPool() {
        const pool = this.#pool;
        this.#pool = null;
        await pool?.end().catch(() => {});
    }

    // The rows of one statement, run in a read-only transaction.
    async rows(text, values = []) {
        let client;
        try {
            client = await this.#connect();
        } catch (error) {
            throw this.#noteLoss(error);
        }
        let broken = false;
        try {
            await client.query('BEGIN READ ONLY');
            const { rows } = await client.query(text, values);
            await client.query('COMMIT');
            this.#noteSuccess();
            return rows;
        } catch (error) {
            broken = isOfConnection(error);
            if (!broken) broken = !(await client.query('ROLLBACK').then(() => true, () => false));
            throw broken ? this.#noteLoss(error) : error;
        } finally {
            client.release(broken);
        }
    }

    #noteLoss(error) {
        error.ofConnection = true;
        const problem = describe(error, this);
        if (problem.kind === 'password' || problem.kind === 'refused') this.#refused = error;
        this.#admitted = false;
        if (this.#lost !== problem.message) this.onChange(problem);
        this.#lost = problem.message;
        return error;
    }

    #noteSuccess() {
        if (this.#lost) this.onChange(null);
        this.#lost = null;
    }

    // After an operator has mended the cause. Also reads the password file again.
    async retry() {
        this.#refused = null;
        await this.#forgetPool();
    }

    // Null, or why there is no connection.
    async check() {
        await this.retry();
        try {
            await this.rows('SELECT 1');
            return null;
        } catch (error) {
            return describe(error, this);
        }
    }

    describe(error) {
        return describe(error, this);
    }

    // The answer in the page's format: { rows } or { problem }.
    async part(text, values) {
        try {
            return { rows: await this.rows(text, values) };
        } catch (error) {
            return { problem: describe(error, this) };
        }
    }

    end() {
        return this.#forgetPool();
    }
}

function isOfConnection(error) {
    return !(error instanceof pg.DatabaseError) || /^(08|57P)/.test(error.code);
}

const WITHOUT_PASSWORD = /client password must be a|no password supplied/;

// kind: selects the page's text next to the server's message.
export function describe(error, { user }) {
    const code = error.code ?? '';
    const problem = { kind: 'error', message: error.message || String(code || error), sqlstate: error instanceof pg.DatabaseError ? code : null };
    if (error.hint) problem.hint = error.hint;
    if (WITHOUT_PASSWORD.test(error.message)) {
        return { ...problem, kind: 'password', message: `the server wants a password of role "${user}"` };
    }
    if (code === '28P01') problem.kind = 'password';
    else if (code.startsWith('28') || (error.ofConnection && ['42501', '22023', '42704'].includes(code))) {
        problem.kind = 'refused';
    } else if (error.ofConnection || isOfConnection(error)) problem.kind = 'away';
    else if (code === '42501') problem.kind = 'denied';
    else if (['42P01', '42703', '42883', '3F000'].includes(code)) problem.kind = 'absent';
    else if (code === '57014') problem.kind = 'timeout';
    return problem;
}
