// Several statements with parameters in one message of PostgreSQL's protocol, as a query class of pg.
import type { Row, Statement } from './database.js';
import type { Value } from './statements.js';

/** The parts of pg's connection that pg-cursor uses, too. */
interface Connection {
  stream: { cork?: () => void; uncork?: () => void };
  parse(statement: { text: string; name: string; types?: number[] }): void;
  bind(portal: { portal: string; statement: string; values: Value[]; binary: boolean; valueMapper: (value: Value) => Value }): void;
  describe(portal: { type: 'P'; name: string }): void;
  execute(portal: { portal: string; rows: number }): void;
  sync(): void;
}
interface Client { query(query: Together): unknown }

const BOOLEAN = 16; // the type's oid

/** One Sync after all of them: PostgreSQL skips those after one that fails. */
export class Together {
  #names: { name: string; dataTypeID: number }[] = [];
  #rows: Row[] = [];
  #tag = '';
  callback: (error: Error | null) => void = () => {};

  private constructor(readonly statements: readonly Statement[]) {}

  /** The rows of the only statement that returns some. A COMMIT at the end that has rolled back throws. */
  static async run(client: Client, statements: readonly Statement[]): Promise<Row[]> {
    const own = new Together(statements);
    await new Promise<void>((resolve, reject) => {
      own.callback = (error) => (error ? reject(error) : resolve());
      client.query(own);
    });
    if (statements.at(-1)!.text === 'COMMIT' && own.#tag !== 'COMMIT') throw new Error('idempotency: COMMIT has rolled back');
    return own.#rows;
  }

  submit(connection: Connection): null {
    connection.stream.cork?.();
    try {
      for (const { text, values } of this.statements) {
        connection.parse({ text, name: '' });
        connection.bind({ portal: '', statement: '', values, binary: false, valueMapper: (value) => value });
        connection.describe({ type: 'P', name: '' });
        connection.execute({ portal: '', rows: 0 });
      }
      connection.sync();
    } finally {
      connection.stream.uncork?.();
    }
    return null;
  }

  handleRowDescription(message: { fields: { name: string; dataTypeID: number }[] }): void { this.#names = message.fields; }

  /** As text, whatever types the application has parsers for. */
  handleDataRow(message: { fields: (string | null)[] }): void {
    this.#rows.push(Object.fromEntries(this.#names.map(({ name, dataTypeID }, i) => {
      const value = message.fields[i] ?? null;
      return [name, dataTypeID === BOOLEAN && value !== null ? value === 't' : value];
    })));
  }

  handleCommandComplete(message: { text: string }): void { this.#tag = message.text; }

  handleEmptyQuery(): void {}

  handlePortalSuspended(): void {}

  /** pg asks nothing more of a query that has failed. */
  handleError(error: Error): void { this.callback(error); }

  handleReadyForQuery(): void { this.callback(null); }
}
