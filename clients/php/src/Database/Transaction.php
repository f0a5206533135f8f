<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

/** A transaction that has begun. */
interface Transaction
{
    /** The handler's view of it. */
    public function connection(): object;

    /**
     * @param list<string|null> $values
     * @return list<array<string, mixed>>
     */
    public function query(string $text, array $values, float $within): array;

    public function commit(float $within): void;

    /** Never fails: a connection that cannot roll back is closed, which does. */
    public function rollBack(float $within): void;

    public function isGone(): bool;
}
