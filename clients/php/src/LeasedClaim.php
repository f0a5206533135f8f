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
     * @param LeaseHolder|null $holder none where it runs without a claim, by the route's options
     */
    public function __construct(
        public ?string $key,
        public string $scope,
        public string $principal,
        public int $attempt = 1,
        public ?string $recoveryPoint = null,
        private ?LeaseHolder $holder = null,
    ) {
        $this->protected = $holder !== null;
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
        return $this->holder === null ? $work() : $this->holder->step($name, $work);
    }

    /**
     * Ends the claim: it is not known whether the work had its effect.
     *
     * Repeats get `unknown` until an operator decides. `reference` is the provider's name for the attempt. The work's
     * answer is still sent, but not stored. Only the first call counts.
     */
    public function unknown(?string $error = null, ?string $reference = null): void
    {
        $this->holder?->endAsUnknown($error, $reference);
    }

    /** Whether the work may go on. Extends the lease if a third of it has passed: call it in loops. */
    public function isHeld(): bool
    {
        return $this->holder === null || $this->holder->lease->isHeld();
    }

    /** The same, and throws LeaseLost if the work must stop. */
    public function check(): void
    {
        $this->holder?->lease->check();
    }

    /** @return array<string, mixed> the results of the steps that are done, by name */
    public function state(): array
    {
        return $this->holder?->state ?? [];
    }
}
