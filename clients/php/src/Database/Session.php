<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

/** One connection, by PDO or by ext-pgsql. */
abstract class Session
{
    /** The driver's own connection. */
    abstract public function connection(): object;

    /**
     * One statement of the contract.
     *
     * @param list<string|null> $values
     * @return list<array<string, mixed>>
     */
    abstract public function run(string $text, array $values, float $within): array;

    /** Whether the connection has ended, as far as one look without a round trip can tell. */
    abstract public function isGone(): bool;

    /** Whether no transaction is open. */
    abstract public function isIdle(): bool;

    /** Waits for a notification, for so many seconds or until a signal comes. */
    abstract public function isNotified(float $seconds): bool;

    abstract public function close(): void;

    public static function of(object $connection): self
    {
        return match (true) {
            $connection instanceof \PDO => new PdoSession($connection),
            $connection instanceof \PgSql\Connection => new PgsqlSession($connection),
            default => throw new \InvalidArgumentException('idempotency: neither PDO nor ext-pgsql: ' . $connection::class),
        };
    }
}
