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
export function digest(method: string, target: string, type: string | null, body: Uint8Array): Buffer {
  const hash = createHash('sha256').update('idempotency fingerprint 1\n');
  for (const part of [method, target, type, body]) {
    if (part === null) {
      hash.update('-\n');
      continue;
    }
    const bytes = typeof part === 'string' ? Buffer.from(part) : part;
    hash.update(`${bytes.length}:`).update(bytes).update('\n');
  }
  return hash.digest();
}
