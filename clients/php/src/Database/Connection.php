<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Idempotency\Postgres\Error\DatabaseAway;

/** A PDO or an ext-pgsql connection, made when it is needed, and made again when it is lost. */
class Connection implements Database
{
    private ?Session $session = null;

    /** @param \Closure(int): object $connect takes the seconds that a connection attempt may last */
    public function __construct(private readonly \Closure $connect) {}

    /** @param array<int, mixed> $options of PDO */
    public static function pdo(string $dsn, ?string $user = null, ?string $password = null, array $options = []): self
    {
        return new self(static fn (int $seconds): \PDO => new \PDO(
            $dsn,
            $user,
            $password,
            $options + [\PDO::ATTR_TIMEOUT => $seconds],
        ));
    }

    /** @param string $parameters a connection string of libpq */
    public static function pgsql(string $parameters): self
    {
        return new self(static fn (int $seconds): object => @pg_connect(
            "connect_timeout=$seconds $parameters",
            PGSQL_CONNECT_FORCE_NEW,
        ) ?: throw new DatabaseAway((string) (error_get_last()['message'] ?? 'pg_connect has failed')));
    }

    public function begin(float $within): Transaction
    {
        $wasUsed = $this->session !== null;
        $session = $this->session($within);
        try {
            if (!$session->isIdle()) {
                throw new \LogicException('idempotency: a transaction is already open on this connection');
            }
            $session->begin($within);
        } catch (\Throwable $error) {
            if (!$wasUsed || !$session->isGone()) {
                throw $error;
            }
            $session->close(); // it was lost while it was idle, so nothing has been done
            return $this->begin($within);
        }
        return $session;
    }

    public function statement(string $text, array $values, float $within): array
    {
        $session = $this->session($within);
        if (!$session->isIdle()) {
            throw new \LogicException('idempotency: a leased claim needs a connection without a transaction');
        }
        return $session->query($text, $values, $within);
    }

    public function another(): Connection
    {
        return new self($this->connect);
    }

    /** Waits for a notification, for so many seconds or until a signal comes. */
    public function isNotified(float $seconds): bool
    {
        if ($this->session === null) {
            usleep((int) ($seconds * 1e6));
            return false;
        }
        try {
            return $this->session->isNotified($seconds) || $this->session->isGone() && $this->forget();
        } catch (\Throwable) {
            return $this->forget();
        }
    }

    /** The next statement makes another one. */
    private function forget(): bool
    {
        $this->session?->close();
        $this->session = null;
        return false;
    }

    private function session(float $within): Session
    {
        if ($this->session?->isGone()) {
            $this->forget();
        }
        return $this->session ??= Session::of(($this->connect)(max(2, (int) ceil($within))));
    }
}
