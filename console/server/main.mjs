// The console's program: reads its arguments, connects to the database, and serves the page on the
// loopback until it is stopped. It writes no key, scope or request anywhere.
import { parseArguments, usage, UsageError } from './arguments.mjs';
import { Database } from './database.mjs';
import { Databases } from './databases.mjs';
import { serve } from './http.mjs';
import { askForPassword } from './password.mjs';

const ATTEMPTS = 3; // as often as one may mistype a password

function say(text) {
    process.stderr.write(`${text}\n`);
}

// At a terminal, the user may enter the password that the server asks for. The page shows any other
// problem and keeps trying.
async function connect(database, forcePrompt) {
    for (let attempt = 0; attempt <= ATTEMPTS; attempt++) {
        if (attempt > 0 || forcePrompt) {
            database.password = await askForPassword(database.user);
        }
        const problem = await database.check();
        if (!problem) return;
        say(`idempotency console: ${problem.message}`);
        if (problem.kind !== 'password' || !process.stdin.isTTY) return;
    }
}

async function main() {
    const options = parseArguments(process.argv.slice(2), process.env);
    if (options.help) {
        process.stdout.write(usage(process.env.IDEM_COMMAND ?? 'script/console'));
        return;
    }
    const database = new Database(options.connection, { role: options.role, expected: process.env.IDEM_VERSION });
    await connect(database, options.prompt);
    const databases = new Databases(database, options.every);
    const { address, close } = await serve({ databases, port: options.listen });
    database.onChange = (problem) =>
        say(`idempotency console: ${problem ? problem.message : 'connected'}`);
    say(`idempotency console: role ${options.role ?? database.user}, database ${database.name} on ${database.place}; it only reads.`);
    say('This address shows everything that the role can see. Ctrl-C ends it.');
    process.stdout.write(`${address}\n`);
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
        process.once(signal, () => {
            databases.stop();
            close();
            // A server that is gone may never close its end.
            setTimeout(() => process.exit(0), 1000);
            databases.end().finally(() => process.exit(0));
        });
    }
}

main().catch((error) => {
    say(error instanceof UsageError ? `idempotency console: ${error.message}; see --help` : `idempotency console: ${error.message}`);
    process.exit(2);
});
