<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Idempotency\Postgres\Error;
use PgSql\Connection;
use PgSql\Result;

/** ext-pgsql can wait with a limit: a connection that exceeds it is closed. */
final class PgsqlSession extends Session
{
    public function __construct(private ?Connection $own) {}

    public function connection(): Connection
    {
        return $this->own ?? throw new Error\DatabaseAway('the connection is closed');
    }

    public function query(string $text, array $values, float $within): array
    {
        $connection = $this->connection();
        $end = hrtime(true) / 1e9 + $within;
        if (!@pg_send_query_params($connection, $text, $values)) {
            throw new Error\SqlError(pg_last_error($connection) ?: 'the connection is lost', null);
        }
        $rows = [];
        $error = null;
        while ($result = $this->next($connection, $end)) {
            $error ??= self::errorOf($result);
            $rows = pg_num_fields($result) > 0 ? pg_fetch_all($result) : $rows;
        }
        return $error === null ? $rows : throw $error;
    }

    private function next(Connection $connection, float $end): Result|false
    {
        while (pg_connection_busy($connection)) {
            $left = $end - hrtime(true) / 1e9;
            if ($left <= 0) {
                $this->cut($connection);
                throw new Error\DatabaseLate('the database did not answer in time');
            }
            $came = self::wait($connection, min($left, 3600));
            if ($came === false && pg_connection_status($connection) !== PGSQL_CONNECTION_OK) {
                throw new Error\SqlError('the connection is lost', null);
            }
        }
        return pg_get_result($connection);
    }

    /** For bytes of the server. False if a signal has come, or the connection is lost. */
    private static function wait(Connection $connection, float $seconds): int|false
    {
        $read = [pg_socket($connection)];
        $none = [];
        $rest = (int) (fmod($seconds, 1) * 1e6);
        return $read[0] === false ? false : @stream_select($read, $none, $none, (int) $seconds, $rest);
    }

    /** To close a connection, ext-pgsql would wait for the answer that does not come. */
    private function cut(Connection $connection): void
    {
        if (function_exists('socket_import_stream') && ($socket = @socket_import_stream(pg_socket($connection)))) {
            @socket_shutdown($socket);
        }
        $this->close();
    }

    private static function errorOf(Result $result): ?Error\SqlError
    {
        if (!in_array(pg_result_status($result), [PGSQL_FATAL_ERROR, PGSQL_BAD_RESPONSE], true)) {
            return null;
        }
        $state = pg_result_error_field($result, PGSQL_DIAG_SQLSTATE) ?: null;
        return new Error\SqlError(trim((string) pg_result_error($result)), $state);
    }

    public function isGone(): bool
    {
        $isOpen = fn (): bool => $this->own !== null && pg_connection_status($this->own) === PGSQL_CONNECTION_OK;
        if ($isOpen() && self::wait($this->own, 0) > 0) {
            @pg_connection_busy($this->own); // reads what has come
        }
        return !$isOpen();
    }

    public function isIdle(): bool
    {
        return pg_transaction_status($this->connection()) === PGSQL_TRANSACTION_IDLE;
    }

    public function isNotified(float $seconds): bool
    {
        $connection = $this->connection();
        if (pg_get_notify($connection) !== false) {
            return true;
        }
        self::wait($connection, $seconds);
        return pg_get_notify($connection) !== false;
    }

    public function close(): void
    {
        if ($this->own !== null) {
            pg_close($this->own);
            $this->own = null;
        }
    }
}
