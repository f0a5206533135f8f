<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Doctrine\DBAL\Connection as Dbal;
use Doctrine\ORM\Configuration;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\Mapping\ClassMetadata;
use Doctrine\Persistence\AbstractManagerRegistry;
use Doctrine\Persistence\Mapping\Driver\StaticPHPDriver;
use Doctrine\Persistence\Proxy;
use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Database\Doctrine;
use Idempotency\Postgres\Error\DatabaseAway;
use Idempotency\Postgres\Request;
use Idempotency\Postgres\Result;

use function Idempotency\Postgres\transactionally;

require_once __DIR__ . '/DatabaseCase.php';

/** Entities in the memory of Doctrine's ORM, which outlive a transaction that is rolled back. */
final class OrmTest extends DatabaseCase
{
    private Dbal $dbal;
    private AbstractManagerRegistry $registry;
    private int $runs = 0;

    protected function setUp(): void
    {
        parent::setUp();
        $this->look->exec('CREATE TABLE IF NOT EXISTS account (id integer PRIMARY KEY, balance integer); TRUNCATE account');
        $this->look->exec('INSERT INTO account VALUES (1, 1000)');
        $this->dbal = self::dbal('pdo_pgsql');
        $this->registry = new Registry($this->dbal);
    }

    protected function tearDown(): void
    {
        unset($this->dbal, $this->registry);
        parent::tearDown();
    }

    private function entities(): EntityManagerInterface
    {
        return $this->registry->getManager();
    }

    private function balance(): int
    {
        return $this->look->query('SELECT balance FROM account')->fetchColumn();
    }

    /** Pays 100 by the entity, and fails at the first run with a conflict: after the work, or within it. */
    private function paid(Connection $database, ?Account $account, bool $closes): Result
    {
        return transactionally($database, new Request($this->key, 'pay'), function () use ($account, $closes): Answer {
            $account ??= $this->entities()->find(Account::class, 1);
            $account->balance -= 100;
            $this->entities()->flush();
            $this->runs++ === 0 && $this->conflict($closes);
            return new Answer(201);
        });
    }

    private function conflict(bool $closes): void
    {
        try {
            $this->dbal->executeStatement("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
        } catch (\Exception $error) {
            $closes && $this->entities()->close(); // as flush() does
            throw $error;
        }
    }

    /** @dataProvider adapters */
    public function testEntityThatWasReadBefore(\Closure $adapter): void
    {
        foreach ([false, true] as $closes) {
            $this->setUp();
            try {
                $this->paid($adapter($this->dbal, $this->registry), $this->entities()->find(Account::class, 1), $closes);
                self::fail('the caller has to repeat it');
            } catch (DatabaseAway) {
                self::assertSame([1, 1000, null], [$this->runs, $this->balance(), $this->status()]);
            }
            // The next request.
            $this->registry = new Registry($this->dbal);
            $again = $this->paid($adapter($this->dbal, $this->registry), $this->entities()->find(Account::class, 1), $closes);
            self::assertSame(['executed', 900], [$again->outcome, $this->balance()]);
            $this->runs = 0;
        }
    }

    public function adapters(): array
    {
        return [
            'alone' => [static fn (Dbal $dbal) => new Doctrine($dbal)],
            'with a callable' => [static fn (Dbal $dbal, $registry) => new Doctrine($dbal, [$registry, 'resetManager'])],
            'with the registry' => [static fn (Dbal $dbal, $registry) => new Doctrine($dbal, $registry)],
        ];
    }

    public function testEntityThatTheWorkReads(): void
    {
        foreach ([false, true] as $closes) {
            $this->setUp();
            $result = $this->paid(new Doctrine($this->dbal, $this->registry), null, $closes);
            self::assertSame(['executed', 2, 900], [$result->outcome, $this->runs, $this->balance()]);
            $this->runs = 0;
        }
    }

    /** @dataProvider connections */
    public function testConflictAtCommit(array $wrapper): void
    {
        $this->dbal = self::dbal('pdo_pgsql', $wrapper);
        $this->registry = new Registry($this->dbal);
        $this->look->exec("CREATE SEQUENCE tries; CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF nextval('tries') = 1 THEN RAISE SQLSTATE '40001'; END IF; RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER conflict AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION conflict()");
        try {
            $this->runs = 1;
            $result = $this->paid(new Doctrine($this->dbal, $this->registry), null, false);
            self::assertSame(['executed', 3, 900], [$result->outcome, $this->runs, $this->balance()]);
        } finally {
            $this->look->exec('DROP FUNCTION conflict CASCADE; DROP SEQUENCE tries');
        }
    }

    public function connections(): array
    {
        return ['as DBAL is' => [[]], 'one that counts down in any case' => [['wrapperClass' => CountsDown::class]]];
    }

    public function testWithoutTheRegistryItRunsOnce(): void
    {
        $this->expectException(DatabaseAway::class);
        try {
            $this->paid(new Doctrine($this->dbal), null, false);
        } finally {
            self::assertSame([1, 1000], [$this->runs, $this->balance()]);
        }
    }

    public function testAReplayLeavesTheManagerAlone(): void
    {
        $database = new Doctrine($this->dbal, $this->registry);
        $this->runs = 1;
        $this->paid($database, null, false);
        $own = $this->entities();
        self::assertSame(['replay', $own], [$this->paid($database, null, false)->outcome, $this->entities()]);
    }
}

/** Its transaction has ended, also where COMMIT has failed. */
final class CountsDown extends Dbal
{
    public function commit()
    {
        $level = $this->getTransactionNestingLevel();
        try {
            return parent::commit();
        } finally {
            (new \ReflectionProperty(Dbal::class, 'transactionNestingLevel'))->setValue($this, $level - 1);
        }
    }
}

final class Account
{
    public int $id;
    public int $balance;

    public static function loadMetadata(ClassMetadata $metadata): void
    {
        $metadata->setPrimaryTable(['name' => 'account']);
        $metadata->mapField(['fieldName' => 'id', 'type' => 'integer', 'id' => true]);
        $metadata->mapField(['fieldName' => 'balance', 'type' => 'integer']);
    }
}

/** As DoctrineBundle's. */
final class Registry extends AbstractManagerRegistry
{
    /** @var array<string, object> */
    private array $services;

    public function __construct(private readonly Dbal $dbal)
    {
        parent::__construct('doctrine', ['default' => 'connection'], ['default' => 'manager'], 'default', 'default', Proxy::class);
        $this->services = ['connection' => $dbal];
    }

    protected function getService(string $name)
    {
        return $this->services[$name] ??= EntityManager::create($this->dbal, $this->configuration());
    }

    protected function resetService(string $name): void
    {
        unset($this->services[$name]);
    }

    private function configuration(): Configuration
    {
        $configuration = new Configuration();
        $configuration->setMetadataDriverImpl(new StaticPHPDriver([]));
        $configuration->setProxyDir(sys_get_temp_dir());
        $configuration->setProxyNamespace('Proxies');
        return $configuration;
    }
}
