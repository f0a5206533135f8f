<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Claim, work and answer in one transaction. @internal */
final readonly class Transactions
{
    /** For a COMMIT that no other statement of ours precedes: one in a failed transaction rolls back, and succeeds. */
    private const CHECK = 'SELECT 1';

    private float $within;

    public function __construct(private Database\Connection $database, private Settings $settings)
    {
        $this->within = (float) $settings->databaseTimeout;
    }

    /** @param callable(TransactionalClaim): Answer $work */
    public function run(Request $request, callable $work): Result
    {
        $result = $this->claimed($request, function (Database\Session $own, Record $record) use ($request, $work): Answer {
            $this->settings->onClaim?->__invoke($record);
            $connection = $own->connection();
            $attempt = $record->attempt ?? 1;
            $claim = new TransactionalClaim($connection, $record->key, $request->scope, $request->principal, $attempt);
            return $this->worked($own, $work, $claim);
        });
        $undone = $result->outcome === Result::NOT_KEPT && $result->answer?->raised ? $result->answer : null;
        if ($undone === null || !in_array($this->settings->verdictOn($undone), [Verdict::Keep, Verdict::Unknown], true)) {
            return $result;
        }
        // Its work is rolled back. If another request has claimed the key meanwhile, its answer counts.
        return $this->claimed($request, static fn (): Answer => $undone, true);
    }

    /** @param callable(Transaction, Record): Answer $answerOf */
    private function claimed(Request $request, callable $answerOf, bool $keepsRaised = false): Result
    {
        $call = fn (bool $lost, bool $last): Result => $this->within(
            function (Database\Session $own) use ($request, $answerOf, $keepsRaised, $lost, $last): Result {
                // A duplicate waits within the first statement.
                $rows = $own->query(Contract::BEGIN, $request->values(null), $this->within + (float) $request->wait);
                $record = Record::of($rows[0]);
                if ($record->outcome === 'in_progress' && $lost && !$last) {
                    throw new Error\DatabaseAway('the transaction that was lost has not ended: the server may notice later');
                }
                if ($record->outcome !== 'execute') {
                    return Result::ofRecord($record);
                }
                $answer = $answerOf($own, $record);
                if ($answer->raised && !$keepsRaised) {
                    return new Result(Result::NOT_KEPT, $answer, $record);
                }
                return $this->ended($own, $request, $record, $answer);
            },
        );
        return Again::call($this->settings, $call);
    }

    /**
     * The work of a claim that was committed before: its result commits together with its effects.
     *
     * @param callable(object): Answer $work gets the connection of the transaction
     */
    public function workOff(Request $request, Record $record, callable $work): Result
    {
        try {
            return $this->within(function (Database\Session $own) use ($request, $record, $work): Result {
                $answer = $this->worked($own, $work, $own->connection());
                return $answer->raised
                    ? new Result(Result::NOT_KEPT, $answer, $record)
                    : $this->ended($own, $request, $record, $answer);
            });
        } catch (Error\Thrown $thrown) {
            throw $thrown->cause;
        }
    }

    private function ended(Database\Session $own, Request $request, Record $record, Answer $answer): Result
    {
        $verdict = $this->settings->verdictOn($answer);
        if ($verdict === Verdict::Keep) {
            $own->query(Contract::COMPLETE, Ends::completion($request, $record, $answer, $this->settings), $this->within);
        } elseif ($verdict === Verdict::Unknown) {
            $own->query(Contract::UNKNOWN, Ends::unknown($request, $record, "status $answer->status"), $this->within);
        } else {
            return new Result(Result::NOT_KEPT, $answer, $record);
        }
        $own->commit($this->within);
        return new Result($verdict === Verdict::Keep ? Result::EXECUTED : Result::NOT_KEPT, $answer, $record);
    }

    /** @param callable(object): mixed $work gets the connection of the transaction; true if it was done now */
    public function once(Request $request, callable $work): bool
    {
        $values = [$request->key, $request->scope, $request->principal];
        return Again::call($this->settings, fn (): bool => $this->within(function (Database\Session $own) use ($values, $work): bool {
            $first = $own->query(Contract::ONCE, $values, $this->within)[0]['first'];
            if (!in_array($first, [true, 't', 1, '1'], true)) {
                return false;
            }
            $this->let($own, static fn (): mixed => $work($own->connection()), INF);
            $own->query(self::CHECK, [], $this->within);
            $own->commit($this->within);
            return true;
        }));
    }

    /**
     * A transaction without a claim, with the same limits and repeats, except after a COMMIT without an answer.
     *
     * @param callable(TransactionalClaim): Answer $work
     */
    public function unclaimed(callable $work, ?string $key, string $scope, string $principal): Answer
    {
        return Again::call($this->settings, fn (): Answer => $this->within(
            function (Database\Session $own) use ($key, $scope, $principal, $work): Answer {
                $claim = new TransactionalClaim($own->connection(), $key, $scope, $principal, 1, false);
                $answer = $this->worked($own, $work, $claim);
                if ($answer->raised || !in_array($this->settings->verdictOn($answer), [Verdict::Keep, Verdict::Unknown], true)) {
                    return $answer;
                }
                $own->query(self::CHECK, [], $this->within);
                $this->commitWithoutRecord($own);
                return $answer;
            },
        ));
    }

    private function commitWithoutRecord(Database\Session $own): void
    {
        try {
            $own->commit($this->within);
        } catch (\Throwable $error) {
            throw Failure::isConnectionLost($error)
                ? new Error\InDoubt('it is not known whether the transaction committed', 0, $error)
                : $error;
        }
    }

    /** A transaction that rolls back unless `call` has committed it. */
    private function within(callable $call): mixed
    {
        $own = $this->database->begin($this->within);
        try {
            return $call($own);
        } finally {
            $own->rollBack($this->within);
        }
    }

    /** The answer of the work, or of its rejection. */
    private function worked(Database\Session $own, callable $work, object $claim): Answer
    {
        $limit = (float) ($this->settings->handlerTimeout ?? Contract::HANDLER_TIMEOUT_MS / 1000);
        return $this->let($own, static function () use ($work, $claim): Answer {
            try {
                return $work($claim);
            } catch (Error\Rejection $rejection) {
                return $rejection->answer;
            }
        }, $limit);
    }

    private function let(Database\Session $own, callable $work, float $limit): mixed
    {
        try {
            return TimeLimit::run($limit, $work);
        } catch (Error\HandlerLate $late) {
            throw new Error\Thrown($late, false);
        } catch (\Throwable $error) {
            $gone = $own->isGone() && !Failure::isIdleTimeout($error);
            throw new Error\Thrown($error, $gone || Failure::isConflict($error));
        }
    }
}
