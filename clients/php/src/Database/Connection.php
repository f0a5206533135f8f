<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Idempotency\Postgres\Error\DatabaseAway;

/**
 * A PDO or an ext-pgsql connection to the database of the records, made when it is needed, and made again when it is
 * lost. `within` is a limit in seconds, for drivers that can keep it.
 */
class Connection
{
    private const UNREADABLE = '/ connection (info string|option)|\bURI\b|percent-encoded|invalid port number/';

    private ?Session $session = null;
    private ?Session $listening = null;

    /** @param \Closure(int): object $connect takes the seconds that a connection attempt may last */
    public function __construct(private readonly \Closure $connect) {}

    /** @param array<int, mixed> $options of PDO */
    public static function pdo(string $dsn, ?string $user = null, ?string $password = null, array $options = []): self
    {
        $timeout = \PDO::ATTR_TIMEOUT;
        return new self(static fn (int $limit) => new \PDO($dsn, $user, $password, $options + [$timeout => $limit]));
    }

    /** @param string $parameters a connection string of libpq, or its URI */
    public static function pgsql(string $parameters): self
    {
        return new self(static function (int $limit) use ($parameters): object {
            set_error_handler(static fn (int $level, string $message) => throw new DatabaseAway($message));
            try {
                return pg_connect(self::limited($parameters, $limit), PGSQL_CONNECT_FORCE_NEW);
            } finally {
                restore_error_handler();
            }
        });
    }

    /** A limit of the caller counts more. */
    private static function limited(string $parameters, int $limit): string
    {
        $isUri = preg_match('~^postgres(?:ql)?://(?:[^@/]*@)?[^?]*(\?)?~', $parameters, $found) === 1;
        $separator = isset($found[1]) ? '&' : '?';
        return match (true) {
            !$isUri => "connect_timeout=$limit $parameters",
            str_contains($parameters, 'connect_timeout=') => $parameters,
            default => "$parameters{$separator}connect_timeout=$limit",
        };
    }

    /** BEGIN, on a connection that works. */
    public function begin(float $within): Session
    {
        $wasUsed = $this->session !== null;
        $session = $this->session($within);
        try {
            $session->idle()->begin($within);
            return $session;
        } catch (\Throwable $error) {
            if (!$wasUsed || !$session->isGone()) {
                throw $error;
            }
            $session->close(); // it was lost while it was idle, so nothing has been done
            return $this->begin($within);
        }
    }

    /**
     * One statement that is its own transaction.
     *
     * @param list<string|null> $values
     * @return list<array<string, mixed>>
     */
    public function statement(string $text, array $values, float $within): array
    {
        return $this->session($within)->idle()->query($text, $values, $within);
    }

    /** Another connection to the database, for a worker's own statements. */
    public function another(): self
    {
        return new self($this->connect);
    }

    /** Sends LISTEN once for each session. */
    public function listen(string $channel, float $within): void
    {
        $session = $this->session($within);
        if ($session !== $this->listening) {
            $session->idle()->query('LISTEN "' . strtr($channel, ['"' => '""']) . '"', [], $within);
            $this->listening = $session;
        }
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
        $this->session = $this->listening = null;
        return false;
    }

    private function session(float $within): Session
    {
        if ($this->session?->isGone()) {
            $this->forget();
        }
        return $this->session ??= Session::of($this->connected(max(2, (int) ceil($within))));
    }

    /** Libpq's message about settings that it cannot read has a part of them, which may be one of the password. */
    private function connected(int $limit): object
    {
        try {
            return ($this->connect)($limit);
        } catch (\Throwable $error) {
            $isUnreadable = preg_match(self::UNREADABLE, $error->getMessage()) === 1;
            throw $isUnreadable ? new DatabaseAway('the connection settings cannot be read') : $error;
        }
    }
}
