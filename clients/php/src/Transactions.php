<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

use Idempotency\Postgres\Database\Session;

/** The work's view of a claim in its transaction. */
final readonly class TransactionalClaim
{
    /**
     * @param object|null $connection of the transaction that holds the claim: PDO, PgSql\Connection or Doctrine's
     * @param bool $protected false if it runs without a claim, by the route's options
     */
    public function __construct(
        public ?object $connection,
        public ?string $key,
        public string $scope,
        public string $principal,
        public int $attempt = 1,
        public bool $protected = true,
    ) {}
}

/** Claim, work and answer in one transaction. @internal */
final class Transactions
{
    private readonly float $within;
    private ?bool $mayRunAgain = null;

    public function __construct(private readonly Database\Connection $database, private readonly Settings $settings)
    {
        $this->within = $settings->databaseTimeout;
    }

    /**
     * @param callable(TransactionalClaim): Answer $work
     * @param Answer|null $raised by the work, which has been rolled back before
     */
    public function run(Request $request, callable $work, ?Answer $raised = null): Result
    {
        $result = $this->repeated(function (Session $own, bool $lost, bool $last) use ($request, $work, $raised) {
            $record = $request->claim($own->query(...), $this->within, null);
            if ($record->outcome === 'in_progress' && $lost && !$last) {
                // The server may notice later than we do.
                throw new Error\DatabaseAway('the transaction that was lost has not ended');
            }
            if ($record->outcome !== 'execute') {
                return Result::ofRecord($record);
            }
            if ($raised !== null) {
                return $this->ended($own, $record, $raised, true);
            }
            $this->settings->onClaim?->__invoke($record);
            $claim = new TransactionalClaim($own->connection(), ...$record->names());
            return $this->ended($own, $record, $this->worked($own, $work, $claim));
        });
        // If another request claims the key before the second transaction, its answer counts.
        $isUndone = $raised === null && $result->answer?->raised && $this->settings->commits($result->answer);
        return $isUndone ? $this->run($request, $work, $result->answer) : $result;
    }

    /**
     * The work of a claim that was committed before: its result commits together with its effects.
     *
     * @param callable(object): Answer $work gets the connection of the transaction
     * @return Answer|Result an Answer where it has rolled back
     */
    public function workOff(Record $record, callable $work): Answer|Result
    {
        $try = fn (Session $own) => $this->ended($own, $record, $this->worked($own, $work, $own->connection()));
        $result = $this->repeated($try, onlyConflicts: true);
        return $result->outcome === Result::EXECUTED ? $result : $result->answer;
    }

    /** @param bool $isUndone the work of an answer that was raised has been rolled back before */
    private function ended(Session $own, Record $record, Answer $answer, bool $isUndone = false): Result
    {
        $verdict = $answer->raised && !$isUndone ? null : $this->settings->verdictOn($answer);
        $ending = $record->ending($verdict, $answer, $this->settings);
        if ($ending !== null) {
            $own->open()->query(...$ending, within: $this->within);
            $own->commit($this->within);
        }
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
     * A transaction without a claim, with the same limits and repeats, except after a COMMIT without an answer: no
     * record tells its result, so a repetition might do the work twice.
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
            $own->open()->query('SELECT 1', [], $this->within); // COMMIT hides that a transaction has failed
            try {
                $own->commit($this->within);
            } catch (\Throwable $error) {
                $isKnown = !$error instanceof Error\DatabaseAway && Failure::of($error) !== Failure::ConnectionLost;
                $inDoubt = new Error\DatabaseAway('it is not known whether the transaction committed', 0, $error);
                throw $isKnown ? $error : new Error\Thrown($inDoubt, false);
            }
            return $answer;
        });
    }

    /** Each time in a transaction that rolls back unless `call` has committed it. */
    private function repeated(callable $call, bool $onlyConflicts = false): mixed
    {
        return $this->settings->repeat(function (bool ...$tries) use ($call): mixed {
            $own = $this->database->begin($this->within);
            try {
                return $call($own, ...$tries);
            } finally {
                $own->rollBack($this->within);
            }
        }, $onlyConflicts);
    }

    /** The answer of the work, or to its exception. */
    private function worked(Session $own, callable $work, object $claim): Answer
    {
        $limit = $this->settings->handlerTimeout ?? Contract::HANDLER_TIMEOUT_MS / 1000;
        try {
            return $this->let($own, static fn (): Answer => $work($claim), $limit);
        } catch (Error\Thrown $thrown) {
            if ($thrown->mayRunAgain && !$thrown->cause instanceof Error\Rejection) {
                throw $thrown;
            }
            $own->rollBack($this->within); // the framework's listeners may use the connection
            try {
                return $this->settings->answerOf(static fn () => throw $thrown->cause);
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
        } catch (\Throwable $error) {
            // A limit that each run would exceed is no reason to run again.
            $isLate = $error instanceof Error\HandlerLate || Failure::sqlState($error) === '25P03';
            throw new Error\Thrown($error, !$isLate && ($own->isGone() || Failure::of($error) === Failure::Conflict));
        }
    }
}
