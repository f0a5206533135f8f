<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

/** Where records are, and the connection of handlers. `within` is a limit in seconds, for drivers that can keep it. */
interface Database
{
    /** BEGIN, on a connection that works. */
    public function begin(float $within): Transaction;

    /**
     * One statement that is its own transaction.
     *
     * @param list<string|null> $values
     * @return list<array<string, mixed>>
     */
    public function statement(string $text, array $values, float $within): array;

    /** Another connection to it, for a worker's own statements. */
    public function another(): Connection;
}
