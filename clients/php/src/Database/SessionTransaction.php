<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

/** A transaction that BEGIN and COMMIT delimit. */
final readonly class SessionTransaction implements Transaction
{
    public function __construct(private Session $session)
    {
    }

    public function connection(): object
    {
        return $this->session->connection();
    }

    public function query(string $text, array $values, float $within): array
    {
        return $this->session->run($text, $values, $within);
    }

    public function commit(float $within): void
    {
        $this->session->run('COMMIT', [], $within);
    }

    public function rollBack(float $within): void
    {
        try {
            if ($this->session->isGone()) {
                $this->session->close();
            } elseif (!$this->session->isIdle()) {
                $this->session->run('ROLLBACK', [], $within);
            }
        } catch (\Throwable) {
            $this->session->close();
        }
    }

    public function isGone(): bool
    {
        return $this->session->isGone();
    }
}
