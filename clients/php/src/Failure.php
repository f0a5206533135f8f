<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** What a database's error means, independent of the driver. @internal */
final class Failure
{
    /** The SQLSTATE of the first driver's error in the chain: other services have codes of five characters, too. */
    public static function sqlState(\Throwable $error): ?string
    {
        $state = match (true) {
            $error instanceof Error\SqlError => $error->sqlState,
            $error instanceof \PDOException => self::ofPdo($error),
            $error instanceof \Doctrine\DBAL\Driver\Exception => $error->getSQLState(),
            default => null,
        };
        $previous = $error->getPrevious();
        return $state ?? ($previous === null ? null : self::sqlState($previous));
    }

    /** Libpq reports the last words of a server without a state, for which PDO says HY000. */
    private static function ofPdo(\PDOException $error): ?string
    {
        [$state, $code] = ($error->errorInfo ?? []) + [null, null];
        $state ??= preg_match('/^SQLSTATE\[(\w{5})\] \[7\]/', $error->getMessage(), $found) ? $found[1] : null;
        if ($state !== 'HY000' || $code !== 7) {
            return $state;
        }
        return str_contains($error->getMessage(), 'idle-in-transaction timeout') ? '25P03' : '08006';
    }

    /** The connection is lost, or none could be made, or it is to a standby, which takes no claim. */
    public static function isConnectionLost(\Throwable $error): bool
    {
        return $error instanceof Error\DatabaseAway
            || $error instanceof Error\SqlError && $error->sqlState === null
            || preg_match('/^(08|53|57P|25006)/', self::sqlState($error) ?? '') === 1;
    }

    /** A serialization failure or a deadlock. */
    public static function isConflict(\Throwable $error): bool
    {
        return str_starts_with(self::sqlState($error) ?? '', '40');
    }

    /** Another try may succeed. */
    public static function isTransient(\Throwable $error): bool
    {
        return self::isConflict($error) || self::isConnectionLost($error);
    }

    /** No call like this can succeed: a right, a function, the database or a value is wrong. */
    public static function isMistake(\Throwable $error): bool
    {
        $state = self::sqlState($error);
        return $state === null
            ? !self::isConnectionLost($error)
            : preg_match('/^(0A|22|28|3D|3F|42)/', $state) === 1;
    }

    /** There is no claim with this token. */
    public static function isClaimLost(\Throwable $error): bool
    {
        return in_array(self::sqlState($error), ['ID404', 'ID409'], true);
    }
}
