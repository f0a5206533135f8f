<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** How requests are executed. Times are seconds. */
final readonly class Settings
{
    /**
     * @param (\Closure(int): bool)|null $keep whether an answer with this status is stored; without it, `keeps` says so
     * @param (\Closure(Answer): (Verdict|string|null))|null $verdict instead of `keep`; null leaves it to `keep`
     * @param list<string> $dropHeaders
     * @param (\Closure(Record): void)|null $onClaim
     * @param (\Closure(Record): void)|null $onLeaseLost
     * @param (\Closure(\Throwable): ?Answer)|null $raised the framework's answer to an exception of the work
     */
    public function __construct(
        public int $attempts = Contract::ATTEMPTS,
        public int|float $databaseTimeout = Contract::DATABASE_TIMEOUT_MS / 1000,
        public ?\Closure $keep = null,
        public ?\Closure $verdict = null,
        public int|float|null $handlerTimeout = null,
        public int|float $lease = Contract::LEASE_MS / 1000,
        public array $dropHeaders = [],
        public ?\Closure $onClaim = null,
        public ?\Closure $onLeaseLost = null,
        public ?\Closure $raised = null,
    ) {}

    /** All statuses except those that another attempt may cure, and server faults. */
    public static function keeps(int $status): bool
    {
        return $status < 500 && !in_array($status, Contract::NOT_KEPT, true);
    }

    /** Null: the route has no opinion, and its status says that the answer is not to be kept. */
    public function verdictOn(Answer $answer): ?Verdict
    {
        $said = $this->verdict === null ? null : ($this->verdict)($answer);
        if ($said !== null) {
            return $said instanceof Verdict ? $said : Verdict::from($said);
        }
        $keep = $this->keep ?? self::keeps(...);
        $isFault = $answer->raised && $answer->status >= 500;
        return $answer->status === null || !$isFault && $keep($answer->status) ? Verdict::Keep : null;
    }

    /** Whether the effects of the work stay. */
    public function commits(Answer $answer): bool
    {
        return in_array($this->verdictOn($answer), [Verdict::Keep, Verdict::Unknown], true);
    }

    /**
     * The answer of the work, or to its exception; throws it where it has none.
     *
     * @template T
     * @param callable(): T $work
     * @return T|Answer
     * @internal
     */
    public function answerOf(callable $work): mixed
    {
        try {
            return $work();
        } catch (\Throwable $error) {
            $rejected = $error instanceof Error\Rejection ? $error->answer : null;
            return $rejected ?? $this->raised?->__invoke($error) ?? throw $error;
        }
    }

    /**
     * Repeats a call after a conflict or a lost connection. Also after a COMMIT without an answer: the same key gets
     * `replay` if it was committed, `execute` if not.
     *
     * @template T
     * @param callable(bool $lost, bool $last): T $call lost: an earlier try has lost its connection
     * @param bool $onlyConflicts nothing else; the error is then the last run's own
     * @return T
     * @internal
     */
    public function repeat(callable $call, bool $onlyConflicts = false): mixed
    {
        $late = 0;
        $lost = false;
        for ($attempt = 1; true; $attempt++) {
            try {
                return $call($lost, $attempt >= $this->attempts);
            } catch (Error\Thrown $raised) {
                [$cause, $mayRunAgain] = [$raised->cause, $raised->mayRunAgain];
            } catch (\Throwable $raised) {
                [$cause, $mayRunAgain] = [$raised, Failure::of($raised)->isTransient()];
            }
            $isConflict = Failure::of($cause) === Failure::Conflict;
            $lost = $lost || !$isConflict;
            // Each of these has used the whole time; a second one asks for the result of a COMMIT.
            $late += $raised instanceof Error\DatabaseLate ? 1 : 0;
            $isLast = $attempt >= $this->attempts || $late === 2;
            if (!$mayRunAgain || $onlyConflicts && ($isLast || !$isConflict)) {
                throw $cause;
            }
            if ($isLast) {
                throw new Error\DatabaseAway('the database could not do it', 0, $cause);
            }
            usleep((int) (20_000 * 2 ** ($attempt - 1) * (0.5 + mt_rand() / mt_getrandmax())));
        }
    }
}

/** What becomes of an answer. */
enum Verdict: string
{
    case Keep = 'keep';
    case Free = 'free';
    case Unknown = 'unknown';
}
