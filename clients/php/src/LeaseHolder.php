<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A claim with a lease, from its grant to its end. @internal */
final class LeaseHolder
{
    public readonly Lease $lease;
    /** @var array<string, mixed> */
    public array $state;
    private bool $unknown = false;

    /** @param bool $inTransaction the work rolls back if it fails, and has no steps */
    public function __construct(
        private readonly Database\Connection $database,
        private readonly Settings $settings,
        public readonly Record $record,
        float $sent,
        private readonly bool $inTransaction = false,
    ) {
        $this->state = $record->state;
        $values = [$record->key, $record->token, $record->scope, $record->principal];
        $limit = $settings->databaseTimeout;
        $this->lease = new Lease(
            (float) $settings->lease,
            $sent,
            static fn (float $within) => $database->statement(Contract::EXTEND, $values, min($limit, $within)),
            static fn () => $settings->onLeaseLost?->__invoke($record),
        );
    }

    /** @param callable(LeasedClaim): Answer $work */
    public static function run(
        Database\Connection $database,
        Request $request,
        callable $work,
        Settings $settings,
    ): Result {
        $sent = 0.0;
        $record = Again::call($settings, static function () use ($database, $request, $settings, &$sent): Record {
            $sent = Lease::now();
            $within = $settings->databaseTimeout + (float) $request->wait;
            return $request->record($database->statement(Contract::BEGIN, $request->values($settings->lease), $within));
        });
        if ($record->outcome !== 'execute') {
            return Result::ofRecord($record);
        }
        $settings->onClaim?->__invoke($record);
        $own = new self($database, $settings, $record, $sent);
        $names = $record->names() + ['recoveryPoint' => $record->recoveryPoint];
        return $own->settle(static fn (): Answer => $work(new LeasedClaim(...$names, holder: $own)));
    }

    /**
     * Does the work, and ends the claim by its result.
     *
     * @param callable(): (Answer|Result) $work a Result where it has ended the claim itself
     */
    public function settle(callable $work): Result
    {
        try {
            $limit = (float) ($this->settings->handlerTimeout ?? Contract::LEASED_HANDLER_TIMEOUT_MS / 1000);
            $answer = TimeLimit::run($limit, $work);
        } catch (\Throwable $raised) {
            try {
                $answer = $this->settings->answerTo($raised);
            } catch (\Throwable $error) {
                if (!$this->unknown && ($this->lease->isLost() || !$this->failBecauseOf($error))) {
                    return new Result('in_progress');
                }
                throw $error;
            }
        }
        return $answer instanceof Result ? $answer : $this->ended($answer);
    }

    private function ended(Answer $answer): Result
    {
        $verdict = $this->unknown ? null : $this->settings->verdictOn($answer);
        $isOurs = $this->unknown || !$this->lease->isLost() && match ($verdict) {
            Verdict::Keep => $this->complete($answer),
            Verdict::Unknown => $this->end(Contract::UNKNOWN, $this->record->unknown("status $answer->status")),
            default => $this->fail("status $answer->status", $verdict !== Verdict::Free),
        };
        $outcome = $verdict === Verdict::Keep ? Result::EXECUTED : Result::NOT_KEPT;
        return $isOurs ? new Result($outcome, $answer, $this->record) : new Result('in_progress');
    }

    private function complete(Answer $answer): bool
    {
        try {
            return $this->end(Contract::COMPLETE, $this->record->completion($answer, $this->settings));
        } catch (\Throwable $error) {
            // The answer cannot be kept, but the work is done.
            $error instanceof Error\DatabaseAway || $this->failBecauseOf($error);
            throw $error;
        }
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
        $within = (float) $this->settings->databaseTimeout;
        try {
            Again::call($this->settings, fn (): array => $this->database->statement($statement, $values, $within));
            return true;
        } catch (\Throwable $error) {
            Failure::isClaimLost($error) ? $this->lease->lose($error) : throw $error;
            return false;
        }
    }

    public function step(string $name, callable $work): mixed
    {
        $this->refuseTransaction();
        if (array_key_exists($name, $this->state)) {
            return $this->state[$name];
        }
        if ($this->unknown) {
            throw new \LogicException('idempotency: the claim has ended as unknown');
        }
        $this->lease->check();
        $result = $work();
        $state = [$name => $result] + $this->state;
        $json = json_encode((object) $state, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION);
        $sent = Lease::now();
        $this->held(Contract::CHECKPOINT, $this->record->values($name, $json));
        $this->lease->succeeded($sent);
        $this->state = $state;
        return $result;
    }

    public function endAsUnknown(?string $error, ?string $reference): void
    {
        $this->refuseTransaction();
        if (!$this->unknown) {
            $this->held(Contract::UNKNOWN, $this->record->unknown($error, $reference));
            $this->unknown = true;
        }
    }

    private function refuseTransaction(): void
    {
        if ($this->inTransaction) {
            throw new \LogicException('idempotency: a transaction has no steps, and a known end: use Kind::Leased');
        }
    }

    /**
     * Tells the work to stop if the server reports the claim as lost.
     *
     * @param list<string|null> $values
     */
    private function held(string $statement, array $values): void
    {
        if (!$this->end($statement, $values)) {
            $this->lease->check();
        }
    }
}
