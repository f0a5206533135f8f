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

    /** The answer to an exception of the work; throws it where it has none. */
    public function answerTo(\Throwable $error): Answer
    {
        $rejected = $error instanceof Error\Rejection ? $error->answer : null;
        return $rejected ?? $this->raised?->__invoke($error) ?? throw $error;
    }

    /** All statuses except those that another attempt may cure, and server faults. */
    public static function keeps(int $status): bool
    {
        return $status < 500 && !in_array($status, Contract::NOT_KEPT, true);
    }

    /** Whether the effects of the work stay. */
    public function commits(Answer $answer): bool
    {
        return in_array($this->verdictOn($answer), [Verdict::Keep, Verdict::Unknown], true);
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
}
