<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The work's view of a leased claim. */
readonly class LeasedClaim
{
    public bool $protected;

    /**
     * @param int $attempt 1 for the first, plus one for each attempt after a failure or a crash
     * @param string|null $recoveryPoint the name of the last step that an attempt has done
     * @param Lease|null $lease none where it runs without a claim, by the route's options
     */
    public function __construct(
        public ?string $key,
        public string $scope,
        public string $principal,
        public int $attempt = 1,
        public ?string $recoveryPoint = null,
        private ?Lease $lease = null,
    ) {
        $this->protected = $lease !== null;
    }

    /**
     * Does a part of the work, and notes that it is done, with its result, a value of JSON.
     *
     * A later attempt gets the result, and does not repeat the part. A crash between work and note repeats it: a
     * service that it calls needs a key, too; derive one from this claim's. Each step extends the lease.
     *
     * @param callable(): mixed $work
     */
    public function step(string $name, callable $work): mixed
    {
        return $this->lease === null ? $work() : $this->lease->step($name, $work);
    }

    /**
     * Ends the claim: it is not known whether the work had its effect.
     *
     * Repeats get `unknown` until an operator decides. `reference` is the provider's name for the attempt. The work's
     * answer is still sent, but not stored. Only the first call counts.
     */
    public function unknown(?string $error = null, ?string $reference = null): void
    {
        $this->lease?->endAsUnknown($error, $reference);
    }

    /** Whether the work may go on. Extends the lease if a third of it has passed: call it in loops. */
    public function isHeld(): bool
    {
        return $this->lease?->isHeld() ?? true;
    }

    /** The same, and throws LeaseLost if the work must stop. */
    public function check(): void
    {
        $this->lease?->check();
    }

    /** @return array<string, mixed> the results of the steps that are done, by name */
    public function state(): array
    {
        return $this->lease?->state ?? [];
    }
}

/**
 * A claim with a lease, from its grant to its end, by a clock of ours that ends before the server's. PHP has no
 * threads, so a beat comes when the work gives occasion for it. @internal
 */
final class Lease
{
    /** @var array<string, mixed> */
    public array $state;
    private float $until;
    private float $beatAt;
    private ?\Throwable $lostBy = null;
    private bool $isAborted = false;
    private bool $isUnknown = false;

    /** @param bool $inTransaction the work rolls back if it fails, and has no steps */
    public function __construct(
        private readonly Database\Connection $database,
        private readonly Settings $settings,
        public readonly Record $record,
        float $sent,
        private readonly bool $inTransaction = false,
    ) {
        $this->state = $record->state;
        $this->extended($sent);
    }

    /**
     * Does the work, and ends the claim by its result.
     *
     * @param callable(): (Answer|Result) $work a Result where it has ended the claim itself
     */
    public function settle(callable $work): Result
    {
        $limit = $this->settings->handlerTimeout ?? Contract::LEASED_HANDLER_TIMEOUT_MS / 1000;
        try {
            $answer = $this->settings->answerOf(static fn () => TimeLimit::run($limit, $work));
        } catch (\Throwable $error) {
            if (!$this->isUnknown && ($this->isLost() || !$this->failBecauseOf($error))) {
                return new Result('in_progress');
            }
            throw $error;
        }
        return match (true) {
            $answer instanceof Result => $answer,
            $this->isUnknown => new Result(Result::NOT_KEPT, $answer, $this->record),
            default => $this->ended($answer),
        };
    }

    private function ended(Answer $answer): Result
    {
        $verdict = $this->settings->verdictOn($answer);
        $isKept = $verdict === Verdict::Keep;
        try {
            $ending = $this->record->ending($verdict, $answer, $this->settings);
            $isOurs = !$this->isLost() && ($ending === null
                ? $this->fail("status $answer->status", $verdict !== Verdict::Free)
                : $this->end(...$ending));
        } catch (\Throwable $error) {
            // The answer cannot be kept, but the work is done.
            $isKept && !$error instanceof Error\DatabaseAway && $this->failBecauseOf($error);
            throw $error;
        }
        $result = new Result($isKept ? Result::EXECUTED : Result::NOT_KEPT, $answer, $this->record);
        return $isOurs ? $result : new Result('in_progress');
    }

    /** The caller learns of the error even if it cannot be recorded. False if the claim is lost. */
    private function failBecauseOf(\Throwable $error): bool
    {
        try {
            return $this->fail($error->getMessage() ?: $error::class, !$error instanceof Error\NothingHappened);
        } catch (\Throwable) {
            return true;
        }
    }

    /** @param bool $uncertain the work may have had effects */
    private function fail(string $reason, bool $uncertain): bool
    {
        $this->database->rollBack($this->settings->databaseTimeout); // the work may have left a transaction open
        $values = $this->record->values(Request::text($reason));
        return $this->end(Contract::FAIL, [...$values, $uncertain && !$this->inTransaction ? 'true' : 'false']);
    }

    /**
     * False if the claim is lost.
     *
     * @param list<string|null> $values
     */
    private function end(string $statement, array $values): bool
    {
        $within = $this->settings->databaseTimeout;
        try {
            $this->settings->repeat(fn (): array => $this->database->statement($statement, $values, $within));
            return true;
        } catch (\Throwable $error) {
            Failure::of($error) === Failure::ClaimLost ? $this->lose($error) : throw $error;
            return false;
        }
    }

    public function step(string $name, callable $work): mixed
    {
        $this->refuseTransaction();
        if (array_key_exists($name, $this->state)) {
            return $this->state[$name];
        }
        if ($this->isUnknown) {
            throw new \LogicException('idempotency: the claim has ended as unknown');
        }
        $this->check();
        $result = $work();
        $state = [$name => $result] + $this->state;
        $json = json_encode((object) $state, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION);
        $sent = TimeLimit::now();
        $this->end(Contract::CHECKPOINT, $this->record->values($name, $json)) || $this->check();
        $this->extended($sent);
        $this->state = $state;
        return $result;
    }

    public function endAsUnknown(?string $error, ?string $reference): void
    {
        $this->refuseTransaction();
        if (!$this->isUnknown) {
            $this->end(Contract::UNKNOWN, $this->record->unknown($error, $reference)) || $this->check();
            $this->isUnknown = true;
        }
    }

    private function refuseTransaction(): void
    {
        if ($this->inTransaction) {
            throw new \LogicException('idempotency: a transaction has no steps, and a known end: use Kind::Leased');
        }
    }

    /** A request that was sent then has extended the lease. */
    private function extended(float $sent): void
    {
        $this->until = $sent + $this->settings->lease;
        $this->beatAt = $sent + $this->settings->lease / 3;
    }

    /** Extends the lease if a third of it has passed. False if the work must stop. */
    public function isHeld(): bool
    {
        $now = TimeLimit::now();
        if ($now >= $this->until) {
            $this->lose(new Error\LeaseLost('the lease may have ended'));
        } elseif ($now >= $this->beatAt && !$this->isLost()) {
            $this->beat($now);
        }
        return !$this->isLost() && !$this->isAborted;
    }

    private function beat(float $sent): void
    {
        $own = $this->record;
        $values = [$own->key, $own->token, $own->scope, $own->principal];
        $lease = $this->settings->lease;
        $within = min($this->settings->databaseTimeout, $lease / 6, $this->until - $sent); // not beyond the lease
        try {
            $this->database->statement(Contract::EXTEND, $values, $within);
            $this->extended($sent);
        } catch (\Throwable $error) {
            // A failed beat says nothing about the owner of the claim.
            $this->beatAt = TimeLimit::now() + $lease / 10;
            Failure::of($error) === Failure::ClaimLost && $this->lose($error);
        }
    }

    public function check(): void
    {
        if (!$this->isHeld()) {
            throw $this->isLost()
                ? new Error\LeaseLost('the claim is lost: nothing more may be done', 0, $this->lostBy)
                : new \RuntimeException('the worker has been aborted');
        }
    }

    public function isLost(): bool
    {
        return $this->lostBy !== null;
    }

    /** Tells the work to stop, although the claim is still ours. */
    public function abort(): void
    {
        $this->isAborted = true;
    }

    private function lose(\Throwable $why): void
    {
        if (!$this->isLost()) {
            $this->lostBy = $why;
            $this->settings->onLeaseLost?->__invoke($this->record);
        }
    }
}
