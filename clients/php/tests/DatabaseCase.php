<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Doctrine\DBAL\DriverManager;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Database\Doctrine;
use PHPUnit\Framework\TestCase;

/** PGHOST, PGPORT and PGUSER name a server with the extension; each run has a database of its own. */
abstract class DatabaseCase extends TestCase
{
    private static ?string $name = null;
    protected string $key;
    protected \PDO $look;

    public static function name(): string
    {
        if (self::$name === null) {
            self::$name = 'idempotency_php_' . bin2hex(random_bytes(6));
            self::connect(getenv('PGDATABASE') ?: 'postgres')->exec('CREATE DATABASE ' . self::$name . " TEMPLATE template0 ENCODING 'UTF8'");
            self::connect(self::$name)->exec('CREATE EXTENSION idempotency; CREATE TABLE payment (account text, amount integer);'
                . ' CREATE TABLE stock (item text, n integer); CREATE TABLE invoice (id text, amount integer)');
            $admin = self::connect(getenv('PGDATABASE') ?: 'postgres');
            register_shutdown_function(static function () use ($admin): void {
                // DROP waits 5 s for the sessions that it ends.
                $admin->query("SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE datname = '" . self::$name . "'")->fetchAll();
                $admin->exec('DROP DATABASE ' . self::$name . ' WITH (FORCE)');
            });
        }
        return self::$name;
    }

    public static function connect(string $database): \PDO
    {
        return new \PDO(self::dsn($database), getenv('PGUSER') ?: 'postgres');
    }

    public static function dsn(string $database): string
    {
        return sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST') ?: '127.0.0.1', getenv('PGPORT') ?: '5432', $database);
    }

    /** @param array<string, mixed> $more */
    public static function dbal(string $driver, array $more = []): \Doctrine\DBAL\Connection
    {
        return DriverManager::getConnection($more + [
            'driver' => $driver, 'host' => getenv('PGHOST') ?: '127.0.0.1', 'port' => (int) (getenv('PGPORT') ?: 5432),
            'user' => getenv('PGUSER') ?: 'postgres', 'dbname' => self::name(),
        ]);
    }

    /** @return array<string, array{\Closure}> */
    public function databases(): array
    {
        $user = getenv('PGUSER') ?: 'postgres';
        return [
            'pgsql' => [static fn () => Connection::pgsql('dbname=' . self::name())],
            'pdo' => [static fn () => Connection::pdo(self::dsn(self::name()), $user)],
            'doctrine on pdo_pgsql' => [static fn () => new Doctrine(self::dbal('pdo_pgsql'))],
            'doctrine on pgsql' => [static fn () => new Doctrine(self::dbal('pgsql'))],
        ];
    }

    protected function setUp(): void
    {
        $this->look = self::connect(self::name());
        $this->look->exec('TRUNCATE payment');
        $this->key = bin2hex(random_bytes(8));
    }

    /** PHPUnit keeps each test to the end, and its connections with it. */
    protected function tearDown(): void
    {
        unset($this->look);
        gc_collect_cycles();
    }

    protected static function pay(object $connection, int $amount = 1): void
    {
        $sql = "INSERT INTO payment VALUES ('tenant', $amount)";
        match (true) {
            $connection instanceof \PgSql\Connection => pg_query($connection, $sql),
            $connection instanceof \PDO => $connection->exec($sql),
            default => $connection->executeStatement($sql),
        };
    }

    protected function payments(): int
    {
        return (int) $this->look->query('SELECT count(*) FROM payment')->fetchColumn();
    }

    protected function status(): ?string
    {
        $found = $this->look->prepare('SELECT status FROM idempotency.records WHERE key = ?');
        $found->execute([$this->key]);
        return $found->fetchColumn() ?: null;
    }
}
