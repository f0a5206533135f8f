// Reads a key as idem_parse_key does: a String of RFC 9651, whose parameters are checked and ignored, or a bare
// value. The field is read raw: escapes and lists are not decoded.
import { randomBytes } from 'node:crypto';

const NAME = /^\*|^[a-z]/.source;
const BARE_ITEM = [
  /"(?:[ !#-[\]-~]|\\["\\])*"/, // String
  /:[A-Za-z0-9+/]*=*:/, // Byte Sequence
  /\?[01]/, // Boolean
  /@-?\d{1,15}(?![\d.])/, // Date
  /%"(?:[ !#$&-~]|%[0-9a-f]{2})*"/, // Display String
  /-?\d{1,12}\.\d{1,3}(?![\d.])/, // Decimal
  /-?\d{1,15}(?![\d.])/, // Integer
  /[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*/, // Token
].map((item) => item.source).join('|');
const PARAMETERS = `(?:; *(?:${NAME.replaceAll('^', '')})[a-z0-9_\\-.*]*(?:=(?:${BARE_ITEM}))?)*`;
const STRING = new RegExp(`^"((?:[ !#-[\\]-~]|\\\\["\\\\])*)"${PARAMETERS}$`);
const BARE = /^[!#-+\--:<-[\]-~]+$/;

/** The key in a field's value; null if it has none. */
export function parseKey(field: string): string | null {
  const value = field.replace(/^[ \t]+|[ \t]+$/g, '');
  const quoted = STRING.exec(value);
  const key = quoted ? quoted[1]!.replace(/\\(.)/g, '$1') : BARE.test(value) ? value : null;
  return key !== null && key.length <= 255 && /[^ ]/.test(key) ? key : null;
}

/** As a String of RFC 9651. Keys of ours and those that parseKey has read are ASCII. */
export const quoteKey = (key: string): string => `"${key.replace(/[\\"]/g, '\\$&')}"`;

/** A UUID of version 7: keys of one moment lie together in an index. */
export function newKey(now: number = Date.now()): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
