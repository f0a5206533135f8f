// The body of a request: read up to a limit, decoded, and its part of the request's identity.
import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { HttpProblem } from './problem.js';

/** The limit counts decoded bytes; reading ends at the limit. */
export async function readBody(
  stream: Readable, headers: { [name: string]: string | string[] | undefined }, limit: number,
): Promise<Buffer> {
  const encoding = String(headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'identity' && Number(headers['content-length'] ?? 0) > limit) throw tooLarge();
  const decoder = decoderOf(encoding);
  const chunks: Buffer[] = [];
  let size = 0;
  await new Promise<void>((resolve, reject) => {
    const source: Readable = decoder ?? stream;
    const stop = (error: Error) => {
      source.removeAllListeners('data');
      if (decoder) {
        stream.unpipe(decoder);
        decoder.destroy();
      }
      stream.pause();
      reject(error);
    };
    source.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) stop(tooLarge());
      else chunks.push(chunk);
    });
    source.on('end', resolve);
    decoder?.on('error', () => stop(new HttpProblem('bad_body', 'The body is not what Content-Encoding says.')));
    stream.on('error', stop);
    stream.on('aborted', () => stop(new HttpProblem('bad_body', 'The body ended too early.')));
    if (decoder) stream.pipe(decoder);
  });
  return Buffer.concat(chunks);
}

function decoderOf(encoding: string) {
  switch (encoding) {
    case 'identity': return null;
    case 'gzip': case 'x-gzip': return createGunzip();
    case 'deflate': return createInflate();
    case 'br': return createBrotliDecompress();
    default: throw new HttpProblem('content_encoding');
  }
}

const tooLarge = () => new HttpProblem('body_too_large');

/** Type and subtype, in lower case; null if there is none. */
export function mediaType(contentType: string | undefined): string | null {
  const type = contentType?.split(';', 1)[0]!.trim().toLowerCase();
  return type ? type : null;
}

export const isJson = (type: string | null): boolean =>
  type !== null && (type === 'application/json' || /^[^/]+\/[^/]+\+json$/.test(type));

export const isForm = (contentType: string | undefined): boolean => mediaType(contentType) === 'multipart/form-data';

/** The text of a JSON body, exactly. A text that is not UTF-8 is not JSON. */
export function textOf(body: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    throw notJson();
  }
}

export const notJson = () => new HttpProblem('bad_json');

/** The fingerprint of a body that is not JSON: docs/fingerprint.md, with the media type as an extra part. */
export function digest(method: string, target: string, contentType: string | undefined, body: Buffer): Buffer {
  const type = mediaType(contentType);
  const parts = isForm(contentType) ? partsOf(contentType!, body) : null;
  const hash = createHash('sha256').update('idempotency fingerprint 1\n');
  for (const part of [method, target, type, ...parts?.flatMap((one) => [one.name, one.fileName, one.type, one.content]) ?? [body]]) {
    if (part === null) {
      hash.update('-\n');
      continue;
    }
    const bytes = typeof part === 'string' ? Buffer.from(part) : part;
    hash.update(`${bytes.length}:`).update(bytes).update('\n');
  }
  return hash.digest();
}

// ---- forms ----

/** A part of a form. Each sending has another boundary, so the parts identify a form, and not its bytes. */
export interface Part { name: string | null; fileName: string | null; type: string | null; content: Buffer }

/** The parameter of a field's value, without its quotes. */
function parameter(value: string, name: string): string | null {
  const found = new RegExp(`;[ \\t]*${name}[ \\t]*=[ \\t]*(?:"((?:[^"\\\\]|\\\\.)*)"|([^;" \\t]*))`, 'i').exec(value);
  return found ? found[2] ?? found[1]!.replace(/\\(["\\])/g, '$1') : null;
}

/** Null if the body is not what its type says. */
export function partsOf(contentType: string, body: Buffer): Part[] | null {
  const boundary = parameter(contentType, 'boundary');
  if (!boundary) return null;
  const mark = Buffer.from(`\r\n--${boundary}`, 'latin1');
  const whole = Buffer.concat([Buffer.from('\r\n'), body]); // the first mark may begin the body
  const parts: Part[] = [];
  let at = whole.indexOf(mark);
  if (at !== 0) return null;
  for (;;) {
    at += mark.length;
    if (whole.subarray(at, at + 2).toString('latin1') === '--') return whole.length <= at + 4 && parts.length > 0 ? parts : null;
    const end = whole.indexOf(mark, at);
    const part = end < 0 ? null : partOf(whole.subarray(at, end));
    if (part === null) return null;
    parts.push(part);
    at = end;
  }
}

/** A part from the end of its boundary's line on. */
function partOf(bytes: Buffer): Part | null {
  if (bytes.subarray(0, 2).toString('latin1') !== '\r\n') return null;
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const fields = bytes.subarray(2, end).toString('latin1').split('\r\n');
  const value = (name: string) => fields.find((field) => field.slice(0, field.indexOf(':')).trim().toLowerCase() === name)?.replace(/^[^:]*:/, '').trim();
  const disposition = value('content-disposition');
  if (disposition === undefined) return null;
  const text = (name: string) => {
    const found = parameter(disposition, name);
    return found === null ? null : Buffer.from(found, 'latin1').toString();
  };
  return { name: text('name'), fileName: text('filename'), type: mediaType(value('content-type')), content: bytes.subarray(end + 4) };
}
