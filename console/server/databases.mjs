// The databases of the server: the one that was named at the start, and others that a page switches to.
import { INSTALLED } from './about.mjs';
import { Database } from './database.mjs';
import { Counts } from './overview.mjs';
import { Sampler } from './samples.mjs';

const LOOKED_AT = 100; // databases
const REMEMBERED_MS = 60000;

const THERE = `
SELECT datname::text AS name FROM pg_catalog.pg_database
 WHERE datallowconn AND NOT datistemplate AND pg_catalog.has_database_privilege(oid, 'CONNECT')
 ORDER BY datname LIMIT ${LOOKED_AT}`;

// The views of the edition without C run its owner's code with the rights of the role that looks. So it
// is offered where the owner is that role, or a superuser; another one has to be named at the start.
const VERSION = `SELECT version FROM (${INSTALLED}) AS i WHERE safe`;

export class Databases {
    #used = new Map(); // name => { database, sampler, counts, first }
    #list = null; // { at, answer }

    constructor(first, every) {
        this.first = first;
        this.every = every;
        this.#use(first);
    }

    #use(database) {
        const sampler = new Sampler(database, this.every);
        const used = { database, sampler, counts: new Counts(database), first: this.first.name };
        this.#used.set(database.name, used);
        sampler.start();
        return used;
    }

    // That of the name, null if the server has none of that name. A session is opened by its first query.
    async of(name) {
        const known = this.#used.get(name ?? this.first.name);
        if (known) return known;
        const { databases } = await this.list();
        if (!databases.some((one) => one.name === name)) return null;
        return this.#used.get(name) ?? this.#use(this.first.inDatabase(name));
    }

    // Databases with the extension.
    async list() {
        if (this.#list && Date.now() - this.#list.at < REMEMBERED_MS) return this.#list.answer;
        const answer = this.#look();
        this.#list = { at: Date.now(), answer };
        const { problem } = await answer;
        if (problem) this.#list = null;
        return answer;
    }

    // One after the other, and not past a refused password: each try could count against the role.
    async #look() {
        const there = await this.first.part(THERE);
        if (there.problem) return { databases: [], problem: there.problem };
        const databases = [];
        for (const { name } of there.rows) {
            const own = this.#used.get(name)?.database;
            const database = own ?? this.first.inDatabase(name);
            const found = await database.part(VERSION);
            if (!own) await database.end();
            if (found.problem?.kind === 'password') break;
            if (found.rows?.length > 0) databases.push({ name, version: found.rows[0].version });
        }
        return { databases };
    }

    stop() {
        for (const { sampler } of this.#used.values()) sampler.stop();
    }

    end() {
        return Promise.all([...this.#used.values()].map(({ database }) => database.end()));
    }
}
