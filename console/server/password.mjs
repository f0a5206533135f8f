// Asks for the password at the terminal, without an echo.
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';

export function askForPassword(user) {
    const silent = new Writable({ write: (chunk, encoding, done) => done() });
    const lines = createInterface({ input: process.stdin, output: silent, terminal: true });
    process.stderr.write(`Password for role ${user}: `);
    return new Promise((resolve, reject) => {
        lines.on('SIGINT', () => {
            process.stderr.write('\n');
            process.exit(130);
        });
        lines.on('close', () => reject(new Error('no password was given')));
        lines.question('', (answer) => {
            process.stderr.write('\n');
            resolve(answer);
            lines.close();
        });
    });
}
