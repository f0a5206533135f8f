// The life of a key as one list: claims, ends of attempts, decisions, and what comes next.
import { dateOf, el, holder, moment, shown, span, word } from './build.mjs';
import { by, difference } from './decisions.mjs';

const line = (...parts) => el('div', { class: 'line' }, ...parts);
const faint = (...parts) => el('div', { class: 'faint' }, ...parts);

function attempt(row) {
    const begun = dateOf(row.begun);
    const ended = dateOf(row.ended);
    const took = begun && ended ? (ended - begun) / 1000 : null;
    return {
        at: row.ended ?? row.begun, tone: row.how,
        content: [
            line(`Attempt ${row.attempt} `, word(row.how), row.status_code ? ` ${row.status_code}` : ''),
            faint('by ', holder({ holder: null, ...row }), ', begun ', moment(row.begun), took === null ? '' : `, ${span(took)} long`),
            row.error ? el('div', { class: 'error' }, shown(row.error)) : null,
            row.reference ? faint('reference ', shown(row.reference)) : null,
            row.resolved_by ? faint('ended by ', shown(row.resolved_by)) : null,
        ],
    };
}

function decision(row) {
    return {
        at: row.decided_at, tone: 'decision',
        content: [line('Decision ', word(row.action), ' by ', by(row)), row.reason ? el('div', { class: 'reason' }, shown(row.reason)) : null, faint(difference(row) ?? '')],
    };
}

const UNENDED = ['in_progress', 'unknown'];

const same = (one, other) => dateOf(one)?.getTime() === dateOf(other)?.getTime();

// The moments of a record: when, what is said before it, and after it. The end of an attempt says when it
// began, so a claim is told where its attempt has not ended.
function moments(record, lease, attempts) {
    const unended = UNENDED.includes(record.status);
    const told = (at) => attempts.some((row) => same(row.begun, at));
    const again = !same(record.claimed_at, record.created_at);
    return [
        [told(record.created_at) ? null : record.created_at, '', 'First claim', again ? null : record],
        [again && !told(record.claimed_at) ? record.claimed_at : null, '', `Attempt ${record.attempt} claimed`, record],
        [record.lease_until ?? lease?.until, 'Lease ends', 'Lease ended'],
        [lease?.given_up_at, 'Is given up', 'Was to be given up'],
        [record.next_attempt_at, 'May be executed again', 'Could be executed again'],
        [unended ? null : record.expires_at, 'Answer is no longer replayed', 'Answer was no longer replayed'],
        [unended ? null : record.retained_until, 'Key is forgotten', 'Key was due to be forgotten'],
    ].filter(([at]) => at).map(([at, before, after, row]) => ({ at, tone: 'moment', rank: -1,
        content: [line(dateOf(at) > new Date() ? before : after), row && (row.holder || row.sealed_by) ? faint('by ', holder({ holder: null, ...row })) : null] }));
}

// The end of the last attempt, where no history is kept.
function ends(record, attempts) {
    const kept = !record?.finished_at || attempts.some((row) => row.attempt === record.attempt && same(row.ended, record.finished_at));
    return kept ? attempts : [...attempts, { ...record, begun: record.claimed_at, ended: record.finished_at, how: record.status }];
}

export function timeline({ record, lease, attempts, decisions }) {
    const ended = ends(record, attempts);
    const events = [...ended.map(attempt), ...decisions.map(decision), ...(record ? moments(record, lease, ended) : [])]
        .map((event) => ({ rank: 0, ...event, date: dateOf(event.at) })).filter((event) => event.date)
        .sort((one, other) => one.date - other.date || one.rank - other.rank);
    if (events.length === 0) return el('p', { class: 'empty' }, 'Nothing has happened to this key.');
    const now = new Date();
    return el('ol', { class: 'timeline', 'aria-label': 'Timeline' }, ...events.map((event) =>
        el('li', { class: `event ${event.tone} ${event.date > now ? 'coming' : ''}` },
            el('div', { class: 'when' }, moment(event.at), event.date > now ? el('span', {}, ` in ${span((event.date - now) / 1000)}`) : null),
            el('div', { class: 'what' }, ...event.content.filter(Boolean)))));
}
