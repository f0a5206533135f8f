<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

use Idempotency\Postgres\Database\Session;

/** Claim, work and answer in one transaction. @internal */
final class Transactions
{
    /** For a COMMIT that no other statement of ours precedes: one in a failed transaction rolls back, and succeeds. */
    private const CHECK = 'SELECT 1';

    private readonly float $within;
    private ?bool $mayRunAgain = null;

    public function __construct(private readonly Database\Connection $database, private readonly Settings $settings)
    {
        $this->within = (float) $settings->databaseTimeout;
    }

    /** @param callable(TransactionalClaim): Answer $work */
    public function run(Request $request, callable $work): Result
    {
        $result = $this->claimed($request, function (Session $own, Record $record) use ($work): Answer {
            $this->settings->onClaim?->__invoke($record);
            return $this->worked($own, $work, new TransactionalClaim($own->connection(), ...$record->names()));
        });
        $answer = $result->answer;
        if ($answer === null || !$answer->raised || !$this->settings->commits($answer)) {
            return $result;
        }
        // Its work is rolled back. If another request has claimed the key meanwhile, its answer counts.
        return $this->claimed($request, static fn (): Answer => $answer, true);
    }

    /** @param callable(Session, Record): Answer $answerOf */
    private function claimed(Request $request, callable $answerOf, bool $isUndone = false): Result
    {
        $try = function (Session $own, bool $lost, bool $last) use ($request, $answerOf, $isUndone): Result {
            // A duplicate waits within the first statement.
            $within = $this->within + (float) $request->wait;
            $record = $request->record($own->query(Contract::BEGIN, $request->values(null), $within));
            if ($record->outcome === 'in_progress' && $lost && !$last) {
                // The server may notice later than we do.
                throw new Error\DatabaseAway('the transaction that was lost has not ended');
            }
            return $record->outcome === 'execute'
                ? $this->ended($own, $record, $answerOf($own, $record), $isUndone)
                : Result::ofRecord($record);
        };
        return $this->repeated($try);
    }

    /**
     * The work of a claim that was committed before: its result commits together with its effects.
     *
     * @param callable(object): Answer $work gets the connection of the transaction
     */
    public function workOff(Record $record, callable $work): Result
    {
        $try = fn (Session $own) => $this->ended($own, $record, $this->worked($own, $work, $own->connection()));
        return Again::afterConflicts($this->settings, fn (): Result => $this->within($try));
    }

    /** @param bool $isUndone the work of an answer that was raised has been rolled back before */
    private function ended(Session $own, Record $record, Answer $answer, bool $isUndone = false): Result
    {
        $verdict = $answer->raised && !$isUndone ? null : $this->settings->verdictOn($answer);
        if ($verdict === Verdict::Keep) {
            $own->open()->query(Contract::COMPLETE, $record->completion($answer, $this->settings), $this->within);
        } elseif ($verdict === Verdict::Unknown) {
            $own->open()->query(Contract::UNKNOWN, $record->unknown("status $answer->status"), $this->within);
        } else {
            return new Result(Result::NOT_KEPT, $answer, $record);
        }
        $own->commit($this->within);
        return new Result($verdict === Verdict::Keep ? Result::EXECUTED : Result::NOT_KEPT, $answer, $record);
    }

    /** @param callable(object): mixed $work gets the connection of the transaction; true if it was done now */
    public function once(Request $request, callable $work): bool
    {
        return $this->repeated(function (Session $own) use ($request, $work): bool {
            $values = [$request->key, $request->scope, $request->principal];
            $isFirst = fn (): bool => Record::isTrue($own->query(Contract::ONCE, $values, $this->within)[0]['first']);
            if (!$isFirst()) {
                return false;
            }
            $this->let($own, static fn (): mixed => $work($own->connection()), INF);
            if ($own->open() && $isFirst()) {
                throw new \LogicException('idempotency: the work has rolled back its transaction');
            }
            $own->commit($this->within);
            return true;
        });
    }

    /**
     * A transaction without a claim, with the same limits and repeats, except after a COMMIT without an answer.
     *
     * @param callable(TransactionalClaim): Answer $work
     */
    public function unclaimed(callable $work, ?string ...$names): Answer
    {
        return $this->repeated(function (Session $own) use ($names, $work): Answer {
            $claim = new TransactionalClaim($own->connection(), ...$names, protected: false);
            $answer = $this->worked($own, $work, $claim);
            if ($answer->raised || !$this->settings->commits($answer)) {
                return $answer;
            }
            $own->open()->query(self::CHECK, [], $this->within);
            try {
                $own->commit($this->within);
            } catch (\Throwable $error) {
                throw Failure::isConnectionLost($error)
                    ? new Error\InDoubt('it is not known whether the transaction committed', 0, $error)
                    : $error;
            }
            return $answer;
        });
    }

    private function repeated(callable $call): mixed
    {
        return Again::call($this->settings, fn (bool ...$tries): mixed => $this->within($call, ...$tries));
    }

    /** A transaction that rolls back unless `call` has committed it. */
    private function within(callable $call, bool ...$tries): mixed
    {
        $own = $this->database->begin($this->within);
        try {
            return $call($own, ...$tries);
        } finally {
            $own->rollBack($this->within);
        }
    }

    /** The answer of the work, or to its exception. */
    private function worked(Session $own, callable $work, object $claim): Answer
    {
        $limit = (float) ($this->settings->handlerTimeout ?? Contract::HANDLER_TIMEOUT_MS / 1000);
        try {
            return $this->let($own, static fn (): Answer => $work($claim), $limit);
        } catch (Error\Thrown $thrown) {
            if ($thrown->mayRunAgain && !$thrown->cause instanceof Error\Rejection) {
                throw $thrown;
            }
            $own->rollBack($this->within); // the framework's listeners may use the connection
            try {
                return $this->settings->answerTo($thrown->cause);
            } catch (\Throwable $error) {
                throw new Error\Thrown($error, false);
            }
        }
    }

    private function let(Session $own, callable $work, float $limit): mixed
    {
        $isFresh = $own->isFresh();
        if ($this->mayRunAgain !== null && !($this->mayRunAgain && $isFresh)) {
            throw new Error\Thrown(new Error\DatabaseAway('entities were in memory, so the work runs once'), false);
        }
        $this->mayRunAgain = $isFresh;
        try {
            return TimeLimit::run($limit, $work);
        } catch (Error\HandlerLate $late) {
            throw new Error\Thrown($late, false);
        } catch (\Throwable $error) {
            // A limit that each run would exceed is no reason to run again.
            $isGone = $own->isGone() && Failure::sqlState($error) !== '25P03';
            throw new Error\Thrown($error, $isGone || Failure::isConflict($error));
        }
    }
}
