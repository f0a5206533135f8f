// How often a request waits for the database before its answer, counted on the wire.
import net from 'node:net';

/** Forwards connections; everything that a client sends before PostgreSQL is ready again is one wait. */
export class Counter {
  waits = 0;
  parsed = []; // the names of Parse messages
  #atWork = new Set(); // functions, one for each connection: whether it waits, or is in a transaction
  #server = net.createServer((client) => this.#serve(client));

  constructor(host, port) { this.target = host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port }; }

  async listen() {
    await new Promise((done) => { this.#server.listen(0, '127.0.0.1', done); });
    return this.#server.address().port;
  }

  close() { this.#server.close(); }

  /** Waits for the ends of transactions that no answer waits for. */
  async idle() {
    while ([...this.#atWork].some((isAtWork) => isAtWork())) await new Promise((done) => { setTimeout(done, 1); });
  }

  #serve(client) {
    const server = net.connect(this.target);
    let started = false;
    let outstanding = 0; // Syncs and simple queries
    let flushed = false;
    let waiting = false;
    let inTransaction = false;
    const isAtWork = () => waiting || outstanding > 0 || inTransaction;
    this.#atWork.add(isAtWork);
    const fromClient = messages(() => started, (type, message) => {
      if (type === null) started = ![80877103, 80877104].includes(message.readInt32BE(4));
      if (type === 'P') this.parsed.push(message.toString('utf8', 5, message.indexOf(0, 5)));
      if ('QPBE'.includes(type) && !waiting) {
        waiting = true;
        this.waits += 1;
      }
      if (type === 'Q' || type === 'S') outstanding += 1;
      flushed = type === 'H';
    });
    const fromServer = messages(() => true, (type, message) => {
      if (type === 'Z' && outstanding > 0) outstanding -= 1;
      if (type === 'Z') inTransaction = message[5] !== 73; // "I": idle
      waiting &&= !flushed && !(type === 'Z' && outstanding === 0);
    });
    client.on('data', (data) => { fromClient(data); server.write(data); });
    server.on('data', (data) => { if (started) fromServer(data); client.write(data); });
    for (const [one, other] of [[client, server], [server, client]]) {
      one.on('error', () => {}).on('close', () => { other.destroy(); this.#atWork.delete(isAtWork); });
    }
  }
}

/** Cuts a stream into messages; those before the start have no type. */
function messages(isTyped, take) {
  let rest = Buffer.alloc(0);
  return (data) => {
    rest = Buffer.concat([rest, data]);
    for (;;) {
      const typed = isTyped();
      const head = typed ? 5 : 4;
      if (rest.length < head) return;
      const size = rest.readInt32BE(head - 4) + head - 4;
      if (rest.length < size) return;
      const message = rest.subarray(0, size);
      rest = rest.subarray(size);
      take(typed ? String.fromCharCode(message[0]) : null, message);
    }
  };
}
