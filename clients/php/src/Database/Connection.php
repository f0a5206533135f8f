<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Idempotency\Postgres\Error;
use Idempotency\Postgres\TimeLimit;
use PgSql\Result;

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
        $isUri = preg_match('~^postgres(?:ql)?://(?:[^@/]*@)?[^?]*(\?)?~', $parameters, $found) === 1;
        $separator = isset($found[1]) ? '&' : '?';
        return new self(static function (int $limit) use ($parameters, $isUri, $separator): object {
            $limited = match (true) { // a limit of the caller counts more
                !$isUri => "connect_timeout=$limit $parameters",
                str_contains($parameters, 'connect_timeout=') => $parameters,
                default => "$parameters{$separator}connect_timeout=$limit",
            };
            set_error_handler(static fn (int $level, string $message) => throw new Error\DatabaseAway($message));
            try {
                return pg_connect($limited, PGSQL_CONNECT_FORCE_NEW);
            } finally {
                restore_error_handler();
            }
        });
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

    /** Whatever is open on it. Never fails. */
    public function rollBack(float $within): void
    {
        $this->session?->rollBack($within);
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
        try {
            return $this->session ??= Session::of(($this->connect)(max(2, (int) ceil($within))));
        } catch (\Throwable $error) {
            // Libpq's message about settings that it cannot read has a part of them, maybe one of the password.
            $isUnreadable = preg_match(self::UNREADABLE, $error->getMessage()) === 1;
            throw $isUnreadable ? new Error\DatabaseAway('the connection settings cannot be read') : $error;
        }
    }
}

/** One connection, by PDO, by ext-pgsql or by Doctrine, and the transactions on it. */
abstract class Session
{
    public function __construct(protected ?object $own) {}

    public static function of(object $connection): self
    {
        return match (true) {
            $connection instanceof self => $connection,
            $connection instanceof \PDO => new PdoSession($connection),
            $connection instanceof \PgSql\Connection => new PgsqlSession($connection),
            default => throw new \InvalidArgumentException('idempotency: not PDO or ext-pgsql: ' . $connection::class),
        };
    }

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

    /** The handler's view of it. */
    public function connection(): object
    {
        return $this->own ?? throw new Error\DatabaseAway('the connection is closed');
    }

    public function close(): void
    {
        $this->own = null;
    }

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
            $this->isIdle() || $this->query('ROLLBACK', [], $within);
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
}

/** PDO waits for an answer as long as libpq does: only a connection attempt has a limit. */
final class PdoSession extends Session
{
    public function __construct(\PDO $pdo)
    {
        if ($pdo->getAttribute(\PDO::ATTR_DRIVER_NAME) !== 'pgsql') {
            throw new \InvalidArgumentException('idempotency: PDO has to have the driver pgsql');
        }
        if ($pdo->getAttribute(\PDO::ATTR_ERRMODE) !== \PDO::ERRMODE_EXCEPTION) {
            throw new \InvalidArgumentException('idempotency: PDO needs ERRMODE_EXCEPTION, to show errors');
        }
        parent::__construct($pdo);
    }

    public function query(string $text, array $values, float $within): array
    {
        // A handler may have hidden errors, and ours would be hidden as well.
        $this->connection()->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_EXCEPTION);
        // Prepared statements would be another wait, and another session's behind a pooler.
        $options = [\PDO::PGSQL_ATTR_DISABLE_PREPARES => true, \PDO::ATTR_EMULATE_PREPARES => false];
        $statement = $this->connection()->prepare(preg_replace('/\$\d+/', '?', $text), $options);
        $statement->execute($values) ?: throw new Error\SqlError('a statement has failed', $statement->errorCode());
        $rows = $statement->columnCount() === 0 ? [] : $statement->fetchAll(\PDO::FETCH_ASSOC);
        return array_map(array_change_key_case(...), $rows);
    }

    public function isGone(): bool
    {
        $status = (string) $this->own?->getAttribute(\PDO::ATTR_CONNECTION_STATUS);
        return $this->own === null || str_starts_with($status, 'Bad');
    }

    public function isIdle(): bool
    {
        return !$this->connection()->inTransaction();
    }

    public function isNotified(float $seconds): bool
    {
        return $this->connection()->pgsqlGetNotify(\PDO::FETCH_ASSOC, (int) ceil($seconds * 1000)) !== false;
    }
}

/** ext-pgsql can wait with a limit: a connection that exceeds it is closed. */
final class PgsqlSession extends Session
{
    public function query(string $text, array $values, float $within): array
    {
        $end = TimeLimit::now() + $within;
        if (!@pg_send_query_params($this->connection(), $text, $values)) {
            throw new Error\SqlError(pg_last_error($this->connection()) ?: 'the connection is lost', null);
        }
        $rows = [];
        $error = null;
        while ($result = $this->next($end)) {
            if (in_array(pg_result_status($result), [PGSQL_FATAL_ERROR, PGSQL_BAD_RESPONSE], true)) {
                $state = pg_result_error_field($result, PGSQL_DIAG_SQLSTATE) ?: null;
                $error ??= new Error\SqlError(trim((string) pg_result_error($result)), $state);
            }
            $rows = pg_num_fields($result) > 0 ? pg_fetch_all($result) : $rows;
        }
        $decoded = static fn (array $row): array => ['body' => pg_unescape_bytea($row['body'] ?? '')] + $row;
        return $error === null ? array_map($decoded, $rows) : throw $error;
    }

    private function next(float $end): Result|false
    {
        while (pg_connection_busy($this->own)) {
            $left = $end - TimeLimit::now();
            if ($left <= 0) {
                // To close a connection, ext-pgsql would wait for the answer that does not come.
                $hasSockets = function_exists('socket_import_stream');
                $socket = $hasSockets ? @socket_import_stream(pg_socket($this->own)) : false;
                $socket && @socket_shutdown($socket);
                $this->close();
                throw new Error\DatabaseLate('the database did not answer in time');
            }
            if ($this->wait(min($left, 3600)) === false && !$this->isOpen()) {
                throw new Error\SqlError('the connection is lost', null);
            }
        }
        return pg_get_result($this->own);
    }

    /** For bytes of the server. False if a signal has come, or the connection is lost. */
    private function wait(float $seconds): int|false
    {
        $read = [pg_socket($this->own)];
        $none = [];
        $rest = (int) (fmod($seconds, 1) * 1e6);
        return $read[0] === false ? false : @stream_select($read, $none, $none, (int) $seconds, $rest);
    }

    private function isOpen(): bool
    {
        return $this->own !== null && pg_connection_status($this->own) === PGSQL_CONNECTION_OK;
    }

    public function isGone(): bool
    {
        $this->isOpen() && $this->wait(0) > 0 && @pg_connection_busy($this->own); // reads what has come
        return !$this->isOpen();
    }

    public function isIdle(): bool
    {
        return pg_transaction_status($this->connection()) === PGSQL_TRANSACTION_IDLE;
    }

    public function isNotified(float $seconds): bool
    {
        $isNotified = fn (): bool => pg_get_notify($this->connection()) !== false;
        return $isNotified() || $this->wait($seconds) > 0 && $isNotified();
    }

    public function close(): void
    {
        $this->own === null || pg_close($this->own);
        parent::close();
    }
}
