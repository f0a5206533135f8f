// Options are checked where a route is made: a name that is not known, or a value that means nothing, throws there.
import { PROBLEMS } from './contract.js';

type Check = (value: unknown) => boolean;
interface Kind { readonly fits: Check; readonly wanted: string }

const number = (least: number, wanted: string): Kind =>
  ({ fits: (value) => typeof value === 'number' && Number.isFinite(value) && value >= least, wanted });
const milliseconds = number(0, 'a number of milliseconds');
const duration: Kind = { fits: (value) => milliseconds.fits(value) && value !== 0, wanted: 'a number of milliseconds above 0' };
const integer = (least: number): Kind =>
  ({ fits: (value) => Number.isSafeInteger(value) && (value as number) >= least, wanted: `a whole number of at least ${least}` });
const call: Kind = { fits: (value) => typeof value === 'function', wanted: 'a function' };
const text: Kind = { fits: (value) => typeof value === 'string' && value !== '', wanted: 'a string' };
const flag: Kind = { fits: (value) => typeof value === 'boolean', wanted: 'true or false' };
const texts: Kind = { fits: (value) => Array.isArray(value) && value.every((one) => typeof one === 'string'), wanted: 'an array of strings' };
// Others would switch the protection off.
const methods: Kind = {
  fits: (value) => texts.fits(value) && (value as string[]).length > 0 && (value as string[]).every((one) => /^[A-Z-]+$/.test(one)),
  wanted: 'an array of methods in upper case',
};
const header: Kind = { fits: (value) => typeof value === 'string' && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(value), wanted: 'the name of a header field' };
const oneOf = (...words: string[]): Kind =>
  ({ fits: (value) => words.includes(value as string), wanted: words.map((word) => `'${word}'`).join(', ') });

const statuses: Kind = {
  fits: (value) => typeof value === 'object' && value !== null && Object.entries(value).every(([word, status]) =>
    Object.hasOwn(PROBLEMS, word) && (status === undefined || (Number.isInteger(status) && status >= 400 && status <= 599))),
  wanted: `an object of statuses from 400 to 599 by outcome (${Object.keys(PROBLEMS).join(', ')})`,
};

const KINDS: Record<string, Kind> = {
  scope: text,
  principal: { ...call, wanted: 'a function of the request' },
  methods, exclude: texts,
  missingKey: oneOf('refuse', 'pass', 'generate', 'derive'),
  window: duration, ttl: duration, lease: duration, wait: milliseconds, databaseTimeout: duration, handlerTimeout: duration,
  attempts: integer(1), maxRequestBytes: integer(0), maxAnswerBytes: integer(0),
  fingerprint: call, keep: call, verdict: call,
  onExecute: call, onReplay: call, onRefusal: call, onLeaseLost: call,
  statuses, keyHeader: header, replayHeader: header,
  echoKey: flag, omitLargeAnswers: flag, unprotectedWithoutDatabase: flag,
};

const OF_WORKERS: Record<string, Kind> = {
  scope: text, channel: text, holder: text, mode: oneOf('transactional', 'leased'),
  size: { fits: (value) => integer(1).fits(value) && (value as number) <= 1000, wanted: 'a whole number from 1 to 1000' },
  lease: duration, poll: duration, handlerTimeout: duration, databaseTimeout: duration, onError: call,
};

export function checkOptions(options: object): void {
  checkAll(options, 'principal', KINDS);
}

export function checkWorker(options: object): void {
  checkAll(options, 'scope', OF_WORKERS);
}

function checkAll(options: object, required: string, kinds: Record<string, Kind>): void {
  for (const [name, value] of Object.entries({ [required]: undefined, ...options })) {
    if (!Object.hasOwn(kinds, name)) throw new TypeError(`idempotency: there is no option \`${name}\`. The options are ${Object.keys(kinds).join(', ')}`);
    const kind = kinds[name]!;
    if (value === undefined && name !== required) continue;
    if (!kind.fits(value)) throw new TypeError(`idempotency: \`${name}\` has to be ${kind.wanted}`);
  }
}
