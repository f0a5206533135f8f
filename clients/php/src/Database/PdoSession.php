<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Idempotency\Postgres\Error\DatabaseAway;
use Idempotency\Postgres\Error\SqlError;

/** PDO waits for an answer as long as libpq does: only a connection attempt has a limit. */
final class PdoSession extends Session
{
    public function __construct(private ?\PDO $pdo)
    {
        if ($pdo?->getAttribute(\PDO::ATTR_DRIVER_NAME) !== 'pgsql') {
            throw new \InvalidArgumentException('idempotency: PDO has to have the driver pgsql');
        }
        if ($pdo->getAttribute(\PDO::ATTR_ERRMODE) !== \PDO::ERRMODE_EXCEPTION) {
            throw new \InvalidArgumentException('idempotency: PDO needs ERRMODE_EXCEPTION, to show errors');
        }
    }

    public function connection(): \PDO
    {
        return $this->pdo ?? throw new DatabaseAway('the connection is closed');
    }

    public function query(string $text, array $values, float $within): array
    {
        // A handler may have hidden errors, and ours would be hidden as well.
        $this->connection()->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_EXCEPTION);
        // Prepared statements would be another wait, and another session's behind a pooler.
        $options = [\PDO::PGSQL_ATTR_DISABLE_PREPARES => true, \PDO::ATTR_EMULATE_PREPARES => false];
        $statement = $this->connection()->prepare(preg_replace('/\$\d+/', '?', $text), $options);
        $statement->execute($values) ?: throw new SqlError('a statement has failed', $statement->errorCode());
        return $statement->columnCount() === 0 ? [] : array_map(
            static fn (array $row): array => array_change_key_case($row),
            $statement->fetchAll(\PDO::FETCH_ASSOC),
        );
    }

    public function isGone(): bool
    {
        $status = (string) $this->pdo?->getAttribute(\PDO::ATTR_CONNECTION_STATUS);
        return $this->pdo === null || str_starts_with($status, 'Bad');
    }

    public function isIdle(): bool
    {
        return !$this->connection()->inTransaction();
    }

    public function isNotified(float $seconds): bool
    {
        return $this->connection()->pgsqlGetNotify(\PDO::FETCH_ASSOC, (int) ceil($seconds * 1000)) !== false;
    }

    public function close(): void
    {
        $this->pdo = null;
    }
}
