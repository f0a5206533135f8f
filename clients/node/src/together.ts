// Several statements with parameters in one message of PostgreSQL's protocol, as a query class of pg.
import { createHash } from 'node:crypto';
import { type Row, type Statement, Unprepared, sqlstate } from './database.js';
import { Messages } from './messages.js';

interface Connection {
  stream: { writable: boolean; write(bytes: Buffer): unknown };
  on(event: 'parseComplete', listener: () => void): unknown;
  off(event: 'parseComplete', listener: () => void): unknown;
}
interface Client { connection: Connection; query(query: Together): unknown }
type Fields = readonly { name: string; dataTypeID: number }[];

const BOOLEAN = 16; // the type's oid
const LOST = '26000'; // there is no such prepared statement
const TAKEN = '42P05'; // there is one already

const names = new Map<string, string>();

/** The same name always means the same text, also behind a pooler. */
function nameOf(text: string): string {
  let name = names.get(text);
  if (name === undefined) names.set(text, name = `idempotency_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`);
  return name;
}

/**
 * The statements that each connection has prepared. Where sessions lose them, or a pooler hands out other
 * sessions, no statement of this pool is prepared any more.
 */
export class Prepared {
  #on = true;
  readonly #known = new WeakMap<object, Map<string, Fields | null>>();

  /** By name, with the columns, once they are known. None: statements have no names. */
  of(connection: object): Map<string, Fields | null> | null {
    if (!this.#on) return null;
    let known = this.#known.get(connection);
    if (known === undefined) this.#known.set(connection, known = new Map());
    return known;
  }

  giveUp(): void { this.#on = false; }
}

/** One Sync after all of them: PostgreSQL skips those after one that fails. */
export class Together {
  readonly #rows: Row[] = [];
  readonly #known: Map<string, Fields | null> | null;
  #fields: Fields | null = null;
  #answered = 0;
  #tag = '';
  callback: (error: Error | null) => void = () => {};

  private constructor(readonly statements: readonly Statement[], readonly ahead: readonly Statement[], connection: Connection, prepared: Prepared) {
    this.#known = prepared.of(connection);
  }

  /**
   * The rows of the only statement that returns some. A COMMIT at the end that has rolled back throws. Those
   * `ahead` are prepared, but not run.
   */
  static async run(client: Client, statements: readonly Statement[], prepared: Prepared, ahead: readonly Statement[] = []): Promise<Row[]> {
    const own = new Together(statements, ahead, client.connection, prepared);
    await new Promise<void>((resolve, reject) => {
      own.callback = (error) => (error ? reject(error) : resolve());
      client.query(own);
    }).catch((error: unknown) => {
      if (!own.#known || ![LOST, TAKEN].includes(sqlstate(error) ?? '')) throw error;
      prepared.giveUp();
      throw new Unprepared('a prepared statement is lost', { cause: error });
    });
    if (statements.at(-1)!.text === 'COMMIT' && own.#tag !== 'COMMIT') throw new Error('idempotency: COMMIT has rolled back');
    return own.#rows;
  }

  submit(connection: Connection): null {
    const messages = new Messages();
    if (this.#known) this.#prepare(connection, this.#known, messages);
    for (const { text, values } of this.statements) {
      const name = this.#known ? nameOf(text) : '';
      if (!name) messages.parse(name, text);
      messages.bind(name, values);
      if (!this.#known?.get(name)) messages.describe();
      messages.execute();
    }
    messages.sync();
    if (connection.stream.writable) connection.stream.write(messages.bytes()); // else pg reports the end
    return null;
  }

  /** Those that this connection does not know yet. */
  #prepare(connection: Connection, known: Map<string, Fields | null>, messages: Messages): void {
    const missing = [...this.statements, ...this.ahead].filter(({ text }) => !known.has(nameOf(text)));
    if (missing.length === 0) return;
    for (const { text } of missing) messages.parse(nameOf(text), text);
    const parsed = () => {
      known.set(nameOf(missing.shift()!.text), null);
      if (missing.length === 0) stop();
    };
    const stop = () => { connection.off('parseComplete', parsed); };
    connection.on('parseComplete', parsed);
    const { callback } = this;
    this.callback = (error) => { stop(); callback(error); };
  }

  handleRowDescription({ fields }: { fields: Fields }): void { this.#fields = fields; }

  /** As text, whatever types the application has parsers for. */
  handleDataRow({ fields }: { fields: (string | null)[] }): void {
    const columns = this.#columns();
    const row: Row = {};
    columns.forEach(({ name, dataTypeID }, i) => {
      const value = fields[i] ?? null;
      row[name] = dataTypeID === BOOLEAN && value !== null ? value === 't' : value;
    });
    this.#rows.push(row);
  }

  handleCommandComplete({ text }: { text: string }): void {
    this.#known?.set(nameOf(this.statements[this.#answered]!.text), this.#columns());
    this.#tag = text;
    this.#answered += 1;
    this.#fields = null;
  }

  /** Of the statement that is being answered. */
  #columns(): Fields {
    return this.#fields ?? this.#known?.get(nameOf(this.statements[this.#answered]!.text)) ?? [];
  }

  handleEmptyQuery(): void {}

  handlePortalSuspended(): void {}

  /** pg asks nothing more of a query that has failed. */
  handleError(error: Error): void { this.callback(error); }

  handleReadyForQuery(): void { this.callback(null); }
}
