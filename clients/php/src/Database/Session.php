<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

/** One connection, by PDO, by ext-pgsql or by Doctrine, and the transactions on it. */
abstract class Session implements Transaction
{
    /** Whether no transaction is open. */
    abstract public function isIdle(): bool;

    /** Waits for a notification, for so many seconds or until a signal comes. */
    abstract public function isNotified(float $seconds): bool;

    abstract public function close(): void;

    public function begin(float $within): void
    {
        $this->query('BEGIN', [], $within);
    }

    public function commit(float $within): void
    {
        $this->query('COMMIT', [], $within);
    }

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

    public static function of(object $connection): self
    {
        return match (true) {
            $connection instanceof self => $connection,
            $connection instanceof \PDO => new PdoSession($connection),
            $connection instanceof \PgSql\Connection => new PgsqlSession($connection),
            default => throw new \InvalidArgumentException('idempotency: neither PDO nor ext-pgsql: ' . $connection::class),
        };
    }
}
