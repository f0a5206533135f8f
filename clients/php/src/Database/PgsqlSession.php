<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Idempotency\Postgres\Error\DatabaseAway;
use Idempotency\Postgres\Error\DatabaseLate;
use Idempotency\Postgres\Error\SqlError;
use PgSql\Connection;
use PgSql\Result;

/** ext-pgsql can wait with a limit: a connection that exceeds it is closed. */
final class PgsqlSession extends Session
{
    public function __construct(private ?Connection $own) {}

    public function connection(): Connection
    {
        return $this->own ?? throw new DatabaseAway('the connection is closed');
    }

    public function query(string $text, array $values, float $within = INF): array
    {
        $connection = $this->connection();
        $end = hrtime(true) / 1e9 + $within;
        if (!@pg_send_query_params($connection, $text, $values)) {
            throw new SqlError(pg_last_error($connection) ?: 'the connection is lost', null);
        }
        $rows = [];
        $error = null;
        do {
            $this->await($connection, $end);
            $result = pg_get_result($connection);
            if ($result !== false) {
                $error ??= self::errorOf($result);
                $rows = pg_num_fields($result) > 0 ? pg_fetch_all($result) : $rows;
            }
        } while ($result !== false);
        if ($error !== null) {
            throw $error;
        }
        return $rows;
    }

    private function await(Connection $connection, float $end): void
    {
        while (pg_connection_busy($connection)) {
            $left = $end - hrtime(true) / 1e9;
            if ($left <= 0) {
                $this->cut($connection);
                throw new DatabaseLate('the database did not answer in time');
            }
            $read = [pg_socket($connection)];
            $none = [];
            $wait = (int) (min($left, 3600) * 1e6);
            if ($read[0] === false || @stream_select($read, $none, $none, intdiv($wait, 1_000_000), $wait % 1_000_000) === false) {
                pg_connection_status($connection) === PGSQL_CONNECTION_OK ?: throw new SqlError('the connection is lost', null);
            }
        }
    }

    /** To close a connection, ext-pgsql would wait for the answer that does not come. */
    private function cut(Connection $connection): void
    {
        if (function_exists('socket_import_stream') && ($socket = @socket_import_stream(pg_socket($connection)))) {
            @socket_shutdown($socket);
        }
        $this->close();
    }

    private static function errorOf(Result $result): ?SqlError
    {
        if (!in_array(pg_result_status($result), [PGSQL_FATAL_ERROR, PGSQL_BAD_RESPONSE], true)) {
            return null;
        }
        $state = pg_result_error_field($result, PGSQL_DIAG_SQLSTATE);
        return new SqlError(trim((string) pg_result_error($result)), is_string($state) && $state !== '' ? $state : null);
    }

    public function isGone(): bool
    {
        if ($this->own === null || pg_connection_status($this->own) !== PGSQL_CONNECTION_OK) {
            return true;
        }
        $read = [pg_socket($this->own)];
        $none = [];
        if ($read[0] !== false && @stream_select($read, $none, $none, 0) > 0) {
            @pg_connection_busy($this->own); // reads what has come
        }
        return pg_connection_status($this->own) !== PGSQL_CONNECTION_OK;
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
        $read = [pg_socket($connection)];
        $none = [];
        $read[0] !== false && @stream_select($read, $none, $none, (int) $seconds, (int) (fmod($seconds, 1) * 1e6));
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
