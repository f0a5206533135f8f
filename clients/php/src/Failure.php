<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** What a database's error means, independent of the driver. @internal */
enum Failure
{
    /** A serialization failure or a deadlock. */
    case Conflict;
    /** The connection is lost, or none could be made, or it is to a standby, which takes no claim. */
    case ConnectionLost;
    /** There is no claim with this token. */
    case ClaimLost;
    /** No call like this can succeed: a right, a function, the database or a value is wrong. */
    case Mistake;
    case Other;

    public static function of(\Throwable $error): self
    {
        $state = self::sqlState($error);
        $isAway = $error instanceof Error\DatabaseAway || $error instanceof Error\SqlError && $error->sqlState === null;
        $isOf = static fn (string $classes): bool => preg_match("/^($classes)/", $state ?? '') === 1;
        return match (true) {
            $isOf('40') => self::Conflict,
            $isAway || $isOf('08|53|57P|25006') => self::ConnectionLost,
            $isOf('ID404|ID409') => self::ClaimLost,
            $state === null || $isOf('0A|22|28|3D|3F|42') => self::Mistake,
            default => self::Other,
        };
    }

    /** Another try may succeed. */
    public function isTransient(): bool
    {
        return $this === self::Conflict || $this === self::ConnectionLost;
    }

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
}
