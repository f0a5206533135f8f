<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Doctrine\DBAL\Connections\PrimaryReadReplicaConnection;
use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Database\Doctrine;
use Idempotency\Postgres\Error\DatabaseAway;
use Idempotency\Postgres\Error\HandlerLate;
use Idempotency\Postgres\Error\Rejection;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\Request;
use Idempotency\Postgres\Result;
use Idempotency\Postgres\Settings;
use Idempotency\Postgres\TransactionalClaim;

use function Idempotency\Postgres\leased;
use function Idempotency\Postgres\once;
use function Idempotency\Postgres\transactionally;

require_once __DIR__ . '/DatabaseCase.php';

/** The three functions on each driver, and handlers that break rules in PHP's ways. */
final class FlowsTest extends DatabaseCase
{
    private function transact(Connection $database, callable $work, Settings $settings = new Settings()): Result
    {
        return transactionally($database, new Request($this->key, 'pay', 'tenant', json: '{"amount": 1}'), $work, $settings);
    }

    private static function paid(TransactionalClaim $claim): Answer
    {
        self::pay($claim->connection);
        return new Answer(201, [['X-One', '1'], ['X-Two', 'a'], ['x-two', 'b']], "paid \0\xff");
    }

    private function assertFree(): void
    {
        self::assertSame([0, null], [$this->payments(), $this->status()]);
    }

    /** @dataProvider databases */
    public function testTransactionally(\Closure $make): void
    {
        $database = $make();
        $first = $this->transact($database, self::paid(...));
        $again = $this->transact($database, self::paid(...));
        self::assertSame(['executed', 'replay'], [$first->outcome, $again->outcome]);
        self::assertSame("paid \0\xff", $again->answer->body);
        self::assertSame(['a', 'b'], $again->answer->values('X-Two'));
        self::assertSame(1, $this->payments());
    }

    /** @dataProvider databases */
    public function testOnce(\Closure $make): void
    {
        $database = $make();
        $work = static fn (object $connection) => self::pay($connection);
        self::assertSame([true, false], [once($database, $this->key, $work), once($database, $this->key, $work)]);
        self::assertSame(1, $this->payments());
    }

    /**
     * Libpq takes a text to its first NUL: without a refusal, "a\0b" would be "a".
     *
     * @dataProvider databases
     */
    public function testNoTextIsCutAtANul(\Closure $make): void
    {
        $database = $make();
        foreach (["$this->key\0a", "$this->key\0b"] as $key) {
            try {
                once($database, $key, static fn () => null);
                self::fail('another message has this key');
            } catch (\InvalidArgumentException $error) {
                self::assertStringContainsString('NUL', $error->getMessage());
            }
        }
        $this->expectException(\InvalidArgumentException::class);
        transactionally($database, new Request($this->key, 'pay', "tenant\0of another"), self::paid(...));
    }

    public function testBodiesWherePdoMakesTextOfAllValues(): void
    {
        $options = [\PDO::ATTR_STRINGIFY_FETCHES => true];
        $database = Connection::pdo(self::dsn(self::name()), getenv('PGUSER') ?: 'postgres', null, $options);
        $work = static fn (): Answer => new Answer(201, [], '{"a": "\u00e9\\\\ \101"}' . "\0\xff");
        [$first, $again] = [$this->transact($database, $work), $this->transact($database, $work)];
        self::assertSame(['replay', $first->answer->body], [$again->outcome, $again->answer->body]);
    }

    /** A replica refuses writes; DBAL reads from one until it is told otherwise. */
    public function testPrimaryOfDoctrine(): void
    {
        $role = "reader_$this->key";
        $this->look->exec("CREATE ROLE $role LOGIN SUPERUSER; ALTER ROLE $role SET default_transaction_read_only = on");
        try {
            $params = self::dbal('pdo_pgsql')->getParams();
            $dbal = self::dbal('pdo_pgsql', [
                'wrapperClass' => PrimaryReadReplicaConnection::class, 'primary' => $params, 'replica' => [['user' => $role] + $params],
            ]);
            $dbal->fetchOne('SELECT 1');
            $request = new Request($this->key, 'lease');
            self::assertSame('executed', leased(new Doctrine($dbal), $request, static fn (): Answer => new Answer(201))->outcome);
            $dbal->close();
        } finally {
            $this->look->exec("DROP ROLE $role");
        }
    }

    /** @dataProvider databases */
    public function testLeased(\Closure $make): void
    {
        $database = $make();
        $runs = 0;
        $work = static function (LeasedClaim $claim) use (&$runs): Answer {
            $result = $claim->step('one', static function () use (&$runs): array {
                $runs++;
                return ['list' => [], 'charge' => 1.0];
            });
            return new Answer($claim->attempt === 1 ? 503 : 201, [], json_encode($result));
        };
        $request = new Request($this->key, 'lease', 'tenant');
        self::assertSame('not_kept', leased($database, $request, $work)->outcome);
        $this->look->prepare("SELECT idem_resolve(?, 'release', scope => 'lease', principal => 'tenant', even_if_running => true)")
            ->execute([$this->key]);
        $second = leased($database, $request, $work);
        self::assertSame(['executed', '{"list":[],"charge":1}', 1], [$second->outcome, $second->answer->body, $runs]);
    }

    /** @dataProvider databases */
    public function testRejectionIsKeptWithoutTheWork(\Closure $make): void
    {
        $database = $make();
        $work = static function (TransactionalClaim $claim): Answer {
            self::pay($claim->connection);
            throw new Rejection(409, 'no funds');
        };
        self::assertSame('executed', $this->transact($database, $work)->outcome);
        self::assertSame('no funds', $this->transact($database, $work)->answer->body);
        self::assertSame(0, $this->payments());
    }

    public function testAVerdictSeesThatAnAnswerWasRaised(): void
    {
        $settings = new Settings(verdict: static fn (Answer $answer): ?string => $answer->raised ? 'keep' : null);
        $work = static fn (): Answer => throw new Rejection(429, 'slower');
        $database = Connection::pgsql('dbname=' . self::name());
        self::assertSame('executed', $this->transact($database, $work, $settings)->outcome);
        self::assertSame('replay', $this->transact($database, $work, $settings)->outcome);
    }

    public function testErrorsThatPdoWouldHideAreRefused(): void
    {
        $options = [\PDO::ATTR_ERRMODE => \PDO::ERRMODE_SILENT];
        $database = Connection::pdo(self::dsn(self::name()), getenv('PGUSER') ?: 'postgres', null, $options);
        $this->expectException(\InvalidArgumentException::class);
        $this->transact($database, self::paid(...));
    }

    public function testErrorsThatTheHandlerHidesInPdo(): void
    {
        $database = Connection::pdo(self::dsn(self::name()), getenv('PGUSER') ?: 'postgres');
        $hide = static function (\PDO $pdo): void {
            self::pay($pdo);
            $pdo->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_SILENT);
            $pdo->exec('INSERT INTO nowhere VALUES (1)');
        };
        $calls = [
            fn () => $this->transact($database, static fn ($claim) => [$hide($claim->connection), new Answer(201)][1]),
            fn () => once($database, $this->key, $hide),
        ];
        foreach ($calls as $call) {
            try {
                $call();
                self::fail('it is no success');
            } catch (\PDOException $error) {
                self::assertSame('25P02', $error->getCode());
            }
            $this->assertFree();
        }
        self::assertSame('executed', $this->transact($database, self::paid(...))->outcome);
        self::assertSame(1, $this->payments());
    }

    /** @dataProvider databases */
    public function testMessageWhoseWorkRollsBack(\Closure $make): void
    {
        $database = $make();
        foreach (['ROLLBACK', 'ROLLBACK; BEGIN'] as $sql) {
            $work = static fn (object $connection) => match (true) {
                $connection instanceof \PgSql\Connection => pg_query($connection, $sql),
                $connection instanceof \PDO => $connection->exec($sql),
                default => $connection->getNativeConnection() instanceof \PDO
                    ? $connection->getNativeConnection()->exec($sql) : pg_query($connection->getNativeConnection(), $sql),
            };
            try {
                once($database, $this->key, $work);
                self::fail('it is no success');
            } catch (\LogicException) {
                self::assertNull($this->status());
            }
        }
    }

    /** @dataProvider databases */
    public function testHandlerIsLate(\Closure $make): void
    {
        $work = static function (TransactionalClaim $claim): Answer {
            self::pay($claim->connection);
            for ($i = 0; $i < 30; $i++) {
                usleep(50_000); // an alarm ends one
            }
            return new Answer(201);
        };
        try {
            $this->transact($make(), $work, new Settings(handlerTimeout: 0.5));
            self::fail('it was late');
        } catch (HandlerLate) {
            $this->assertFree();
        }
    }

    /** @dataProvider databases */
    public function testTransactionThatIsOpenBefore(\Closure $make): void
    {
        $database = $make();
        $open = $database->begin(5);
        try {
            $this->transact($database, self::paid(...));
            self::fail('it is refused');
        } catch (\LogicException) {
            $open->rollBack(5);
        }
        self::assertSame('executed', $this->transact($database, self::paid(...))->outcome);
    }

    /** @dataProvider databases */
    public function testConnectionThatDiedWhileIdle(\Closure $make): void
    {
        $database = $make();
        $this->transact($database, self::paid(...));
        $kill = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()';
        $this->look->exec($kill);
        $settings = new Settings(attempts: 1);
        self::assertSame('replay', $this->transact($database, self::paid(...), $settings)->outcome);
    }

    public function testDatabaseThatSaysNothing(): void
    {
        $silent = stream_socket_server('tcp://127.0.0.1:0');
        $port = explode(':', stream_socket_get_name($silent, false))[1];
        $this->expectException(DatabaseAway::class);
        $this->transact(Connection::pgsql("host=127.0.0.1 port=$port"), self::paid(...), new Settings(attempts: 1, databaseTimeout: 1));
    }

    public function testNestedTransactionsOfDoctrine(): void
    {
        foreach (['pdo_pgsql', 'pgsql'] as $driver) {
            $this->setUp();
            $dbal = self::dbal($driver);
            $result = $this->transact(new Doctrine($dbal), static function (TransactionalClaim $claim) use ($dbal): Answer {
                $dbal->transactional(static fn () => self::pay($dbal));
                return new Answer(201);
            });
            self::assertSame(['executed', 1], [$result->outcome, $this->payments()]);
            self::assertFalse($dbal->isTransactionActive());
        }
    }

    /** @dataProvider brokenNesting */
    public function testNestedTransactionsThatDoNotFit(string ...$calls): void
    {
        $resets = 0;
        $dbal = self::dbal('pdo_pgsql');
        $database = new Doctrine($dbal, static function () use (&$resets): void {
            $resets++;
        });
        try {
            $this->transact($database, static function (TransactionalClaim $claim) use ($dbal, $calls): Answer {
                self::pay($claim->connection);
                array_map(static fn (string $call) => $dbal->$call(), $calls);
                return new Answer(201);
            });
            self::fail('it is refused');
        } catch (\Exception) {
            $this->assertFree();
        }
        $this->look->exec('TRUNCATE payment');
        self::assertSame('executed', $this->transact($database, self::paid(...))->outcome);
        self::assertSame(1, min(1, $resets));
    }

    public function brokenNesting(): array
    {
        return [
            'left open' => ['beginTransaction'],
            'rolled back within' => ['beginTransaction', 'rollBack'],
            'rolled back' => ['rollBack'],
            'another one' => ['rollBack', 'beginTransaction'],
            'committed' => ['commit'],
        ];
    }

    /** @dataProvider endsOfLeasedWork */
    public function testTransactionThatLeasedWorkLeavesOpen(\Closure $end): void
    {
        foreach (['pdo_pgsql', 'pgsql'] as $driver) {
            $this->key .= $driver;
            $dbal = self::dbal($driver);
            try {
                leased(new Doctrine($dbal), new Request($this->key, 'lease'), static function () use ($dbal, $end): Answer {
                    $dbal->beginTransaction();
                    self::pay($dbal);
                    return $end();
                });
                self::fail('it is refused');
            } catch (\Exception) {
                self::assertSame([0, 'retryable', false], [$this->payments(), $this->status(), $dbal->isTransactionActive()]);
            }
            self::assertSame('executed', $this->transact(new Doctrine($dbal), static fn (): Answer => new Answer(201))->outcome);
        }
    }

    public function endsOfLeasedWork(): array
    {
        return [[static fn (): Answer => new Answer(201)], [static fn (): Answer => throw new \DomainException('no answer')]];
    }

    public function testTransactionThatIsOpenInAStep(): void
    {
        $dbal = self::dbal('pdo_pgsql');
        $this->expectException(\LogicException::class);
        leased(new Doctrine($dbal), new Request($this->key, 'lease'), static function (LeasedClaim $claim) use ($dbal): Answer {
            $dbal->beginTransaction();
            $claim->step('one', static fn () => 1);
            return new Answer(201);
        });
    }
}
