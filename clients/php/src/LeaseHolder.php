<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A claim with a lease, from its grant to its end. @internal */
final class LeaseHolder
{
    public readonly Lease $lease;
    /** @var array<string, mixed> */
    private array $state;
    private bool $unknown = false;

    public function __construct(
        private readonly Database\Connection $database,
        private readonly Request $request,
        public readonly Record $record,
        private readonly Settings $settings,
        float $sent,
        private readonly bool $uncertain = true,
    ) {
        $this->state = $record->state;
        $values = [$record->key, $record->token, $request->scope, $request->principal];
        $this->lease = new Lease(
            (float) $settings->lease,
            $sent,
            fn (float $within) => $database->statement(Contract::EXTEND, $values, min($settings->databaseTimeout, $within)),
            fn () => $settings->onLeaseLost?->__invoke($record),
        );
    }

    /** @param callable(LeasedClaim): Answer $work */
    public static function run(Database\Connection $database, Request $request, callable $work, Settings $settings): Result
    {
        $sent = 0.0;
        $record = Again::call($settings, static function () use ($database, $request, $settings, &$sent): Record {
            $sent = Lease::now();
            $within = $settings->databaseTimeout + (float) $request->wait;
            return Record::of($database->statement(Contract::BEGIN, $request->values($settings->lease), $within)[0]);
        });
        if ($record->outcome !== 'execute') {
            return Result::ofRecord($record);
        }
        $settings->onClaim?->__invoke($record);
        return (new self($database, $request, $record, $settings, $sent))->settle(static fn (self $own): Answer => $work($own->claim()));
    }

    /**
     * Does the work, and ends the claim by its result.
     *
     * @param callable(self): (Answer|Result) $work a Result where it has ended the claim itself
     */
    public function settle(callable $work): Result
    {
        $lost = new Result('in_progress');
        try {
            $limit = (float) ($this->settings->handlerTimeout ?? Contract::LEASED_HANDLER_TIMEOUT_MS / 1000);
            $answer = TimeLimit::run($limit, fn (): Answer|Result => $work($this));
        } catch (Error\Rejection $rejection) {
            $answer = $rejection->answer;
        } catch (\Throwable $error) {
            if (!$this->unknown && ($this->lease->isLost() || !$this->failBecauseOf($error))) {
                return $lost;
            }
            throw $error;
        }
        if ($answer instanceof Result) {
            return $answer;
        }
        if ($this->unknown) {
            return new Result(Result::NOT_KEPT, $answer, $this->record);
        }
        if ($this->lease->isLost()) {
            return $lost;
        }
        $verdict = $this->settings->verdictOn($answer);
        if ($verdict === Verdict::Keep) {
            return $this->complete($answer) ? new Result(Result::EXECUTED, $answer, $this->record) : $lost;
        }
        $left = $this->leave($verdict, "status $answer->status");
        return $left ? new Result(Result::NOT_KEPT, $answer, $this->record) : $lost;
    }

    private function claim(): LeasedClaim
    {
        [$request, $record] = [$this->request, $this->record];
        $names = [$record->key, $request->scope, $request->principal];
        return new LeasedClaim(...[...$names, $record->attempt ?? 1, $record->recoveryPoint, true, $this]);
    }

    private function complete(Answer $answer): bool
    {
        try {
            return $this->end(Contract::COMPLETE, Ends::completion($this->request, $this->record, $answer, $this->settings));
        } catch (Error\DatabaseAway $away) {
            throw $away;
        } catch (\Throwable $error) {
            // The answer cannot be kept, but the work is done.
            $this->failBecauseOf($error);
            throw $error;
        }
    }

    /** Without an answer. */
    private function leave(?Verdict $verdict, string $reason): bool
    {
        if ($verdict === Verdict::Unknown) {
            return $this->end(Contract::UNKNOWN, Ends::unknown($this->request, $this->record, $reason));
        }
        return $this->fail($reason, $verdict !== Verdict::Free);
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
        return $this->end(Contract::FAIL, [
            $this->record->key, Ends::text($reason), $this->request->scope, $this->request->principal,
            $this->record->token, $uncertain && $this->uncertain ? 'true' : 'false',
        ]);
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

    /** @return array<string, mixed> */
    public function state(): array
    {
        return $this->state;
    }

    public function step(string $name, callable $work): mixed
    {
        if (array_key_exists($name, $this->state)) {
            return $this->state[$name];
        }
        if ($this->unknown) {
            throw new \LogicException('idempotency: the claim has ended as unknown');
        }
        $this->lease->check();
        $result = $work();
        $state = [$name => $result] + $this->state;
        $sent = Lease::now();
        $this->held(Contract::CHECKPOINT, [
            $this->record->key, $name, json_encode((object) $state, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION),
            $this->request->scope, $this->request->principal, $this->record->token,
        ]);
        $this->lease->succeeded($sent);
        $this->state = $state;
        return $result;
    }

    public function endAsUnknown(?string $error, ?string $reference): void
    {
        if (!$this->unknown) {
            $this->held(Contract::UNKNOWN, Ends::unknown($this->request, $this->record, $error, $reference));
            $this->unknown = true;
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
