<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/**
 * The lease of a claim, by a clock of ours that ends before the server's. PHP has no threads, so a beat comes when the
 * work gives occasion for it. @internal
 */
final class Lease
{
    private float $until = 0;
    private float $beatAt = 0;
    private ?\Throwable $why = null;
    private bool $aborted = false;

    /**
     * @param \Closure(float): mixed $extend within so many seconds
     * @param \Closure(): void $onLost
     */
    public function __construct(
        private readonly float $lease,
        float $sent,
        private readonly \Closure $extend,
        private readonly \Closure $onLost,
    ) {
        $this->succeeded($sent);
    }

    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /** A request that was sent then has extended the lease. */
    public function succeeded(float $sent): void
    {
        $this->until = $sent + $this->lease;
        $this->beatAt = $sent + $this->lease / 3;
    }

    /** Extends the lease if a third of it has passed. False if the work must stop. */
    public function isHeld(): bool
    {
        $now = self::now();
        if ($this->why === null && $now >= $this->until) {
            $this->lose(new Error\LeaseLost('the lease may have ended'));
        } elseif ($this->why === null && $now >= $this->beatAt) {
            $this->beat($now);
        }
        return $this->why === null && !$this->aborted;
    }

    private function beat(float $sent): void
    {
        try {
            ($this->extend)(min($this->lease / 6, $this->until - $sent)); // not beyond the lease
            $this->succeeded($sent);
        } catch (\Throwable $error) {
            // A failed beat says nothing about the owner of the claim.
            $this->beatAt = self::now() + $this->lease / 10;
            Failure::isClaimLost($error) && $this->lose($error);
        }
    }

    public function check(): void
    {
        if (!$this->isHeld()) {
            throw $this->isLost()
                ? new Error\LeaseLost('the claim is lost: nothing more may be done', 0, $this->why)
                : new \RuntimeException('the worker has been aborted');
        }
    }

    /** Whether the work has been told to stop. */
    public function isLost(): bool
    {
        return $this->why !== null;
    }

    /** Tells the work to stop, although the claim is still ours. */
    public function abort(): void
    {
        $this->aborted = true;
    }

    public function lose(\Throwable $why): void
    {
        if ($this->why === null) {
            $this->why = $why;
            ($this->onLost)();
        }
    }
}
