<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

/** One connection, by PDO, by ext-pgsql or by Doctrine, and the transactions on it. */
abstract class Session
{
    /** The handler's view of it. */
    abstract public function connection(): object;

    /**
     * @param list<string|null> $values
     * @return list<array<string, mixed>>
     */
    abstract public function query(string $text, array $values, float $within): array;

    abstract public function isGone(): bool;

    /** Whether no transaction is open. */
    abstract public function isIdle(): bool;

    /** Waits for a notification, for so many seconds or until a signal comes. */
    abstract public function isNotified(float $seconds): bool;

    abstract public function close(): void;

    /** Whether no entity is in memory. ROLLBACK leaves it there: another run would lose its changes, or repeat them. */
    public function isFresh(): bool
    {
        return true;
    }

    public function begin(float $within): void
    {
        $this->query('BEGIN', [], $within);
    }

    public function commit(float $within): void
    {
        $this->query('COMMIT', [], $within);
    }

    /** Never fails: a connection that cannot roll back is closed, which does. */
    public function rollBack(float $within): void
    {
        try {
            if ($this->isGone()) {
                $this->close();
            } elseif (!$this->isIdle()) {
                $this->query('ROLLBACK', [], $within);
            }
        } catch (\Throwable) {
            $this->close();
        }
    }

    /** Where the work has ended the transaction, statements of ours would commit by themselves. */
    public function open(): self
    {
        return $this->isIdle() ? throw new \LogicException('idempotency: the work has ended its transaction') : $this;
    }

    /** Refuses a transaction that is not ours. */
    public function idle(): self
    {
        return $this->isIdle() ? $this : throw new \LogicException('idempotency: the connection is in a transaction');
    }

    public static function of(object $connection): self
    {
        return match (true) {
            $connection instanceof self => $connection,
            $connection instanceof \PDO => new PdoSession($connection),
            $connection instanceof \PgSql\Connection => new PgsqlSession($connection),
            default => throw new \InvalidArgumentException('idempotency: not PDO or ext-pgsql: ' . $connection::class),
        };
    }
}
