// The parts that need no framework, and the types.
export type { Answer, Claim, Name, Refusal } from './claim.js';
export { type Database, type Ending, type Row, type Statement, DatabaseAway, LeaseLost } from './database.js';
export {
  HandlerLate, type Leased, type LeasedSettings, NothingHappened, Rejection, type Request, type Result, type Settings, type Verdict, leased,
  once, transactionally,
} from './flows.js';
export {
  AnswerTooLarge, type Context, type Event, type Hook, type LeasedRequest, type Options, type Transactional,
} from './middleware.js';
export { parseKey, quoteKey } from './key.js';
export type { Statuses, Word } from './problem.js';
export {
  type Handler, type LeasedWork, type TransactionalWork, type Work, type Worker, type WorkerOptions, worker,
} from './worker.js';
