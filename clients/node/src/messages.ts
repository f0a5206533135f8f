// Messages of PostgreSQL's extended query protocol. All of a call are one buffer, so that they are one write.
import type { Value } from './statements.js';

const SPACE = 16_384;
let space = Buffer.allocUnsafe(SPACE);

/** One call's, in the order of its methods. `bytes` ends it; only one is written at a time. */
export class Messages {
  #at = 0;
  #start = 0; // of the message's length

  parse(name: string, text: string): void {
    this.#begin('P');
    this.#text(name);
    this.#text(text);
    this.#int16(0); // the server knows the types
    this.#end();
  }

  /** Bytes in binary format, everything else as text. Results are text. */
  bind(name: string, values: readonly Value[]): void {
    this.#begin('B');
    this.#text(''); // the portal
    this.#text(name);
    this.#int16(values.length);
    for (const value of values) this.#int16(Buffer.isBuffer(value) ? 1 : 0);
    this.#int16(values.length);
    for (const value of values) this.#value(value);
    this.#int16(0);
    this.#end();
  }

  /** The portal's columns. */
  describe(): void {
    this.#begin('D');
    this.#text('P');
    this.#end();
  }

  execute(): void {
    this.#begin('E');
    this.#text('');
    this.#int32(0); // all rows
    this.#end();
  }

  sync(): void {
    this.#begin('S');
    this.#end();
  }

  bytes(): Buffer {
    const own = space.subarray(0, this.#at);
    if (own.length <= SPACE) return Buffer.from(own);
    space = Buffer.allocUnsafe(SPACE); // a large answer's is not kept
    return own;
  }

  #begin(kind: string): void {
    this.#room(5);
    space[this.#at] = kind.charCodeAt(0);
    this.#start = this.#at + 1;
    this.#at += 5;
  }

  #end(): void { space.writeInt32BE(this.#at - this.#start, this.#start); }

  #value(value: Value): void {
    if (value === null) return this.#int32(-1);
    const size = Buffer.byteLength(value);
    this.#int32(size);
    this.#room(size);
    this.#at += typeof value === 'string' ? space.write(value, this.#at) : value.copy(space, this.#at);
  }

  #text(value: string): void {
    this.#room(Buffer.byteLength(value) + 1);
    this.#at += space.write(value, this.#at);
    space[this.#at] = 0;
    this.#at += 1;
  }

  #int16(value: number): void {
    this.#room(2);
    this.#at = space.writeInt16BE(value, this.#at);
  }

  #int32(value: number): void {
    this.#room(4);
    this.#at = space.writeInt32BE(value, this.#at);
  }

  #room(size: number): void {
    if (this.#at + size <= space.length) return;
    const larger = Buffer.allocUnsafe(2 * (this.#at + size));
    space.copy(larger, 0, 0, this.#at);
    space = larger;
  }
}
