<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Doctrine\DBAL\Connection as Dbal;

/** The application's connection of Doctrine DBAL, which owns BEGIN and COMMIT. @internal */
final class DoctrineSession extends Session
{
    public function __construct(private readonly Dbal $dbal, private readonly ?\Closure $afterRollBack) {}

    public function connection(): Dbal
    {
        return $this->dbal;
    }

    private function native(): Session
    {
        return Session::of($this->dbal->getNativeConnection());
    }

    public function query(string $text, array $values, float $within): array
    {
        return $this->native()->query($text, $values, INF); // a limit would close what is Doctrine's
    }

    public function begin(float $within): void
    {
        $wasUsed = $this->dbal->isConnected();
        try {
            $this->dbal->beginTransaction();
        } catch (\Throwable $error) {
            $this->dbal->close();
            $wasUsed ? $this->begin($within) : throw $error; // it may have been lost while it was idle
        }
    }

    public function commit(float $within): void
    {
        $this->dbal->commit();
    }

    public function open(): self
    {
        if ($this->dbal->getTransactionNestingLevel() !== 1 || $this->native()->isIdle()) {
            throw new \LogicException('idempotency: the work has left a nested transaction open, or ended its own');
        }
        return $this;
    }

    public function rollBack(float $within): void
    {
        try {
            $isOpen = $this->dbal->isTransactionActive();
            while ($this->dbal->isTransactionActive()) {
                $this->dbal->rollBack();
            }
            $isOpen && $this->afterRollBack?->__invoke();
        } catch (\Throwable) {
            $this->dbal->close();
        }
        if ($this->dbal->isConnected() && ($this->isGone() || !$this->native()->isIdle())) {
            $this->dbal->close();
        }
    }

    public function isGone(): bool
    {
        return $this->dbal->isConnected() && $this->native()->isGone();
    }

    public function isIdle(): bool
    {
        return !$this->dbal->isTransactionActive();
    }

    public function isNotified(float $seconds): bool
    {
        return $this->native()->isNotified($seconds);
    }

    public function close(): void
    {
        $this->dbal->close();
    }
}
