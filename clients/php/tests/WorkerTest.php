<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Doctrine\DBAL\Configuration;
use Doctrine\DBAL\Driver\Middleware;
use Doctrine\DBAL\DriverManager;
use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Database\Doctrine;
use Idempotency\Postgres\Error\NothingHappened;
use Idempotency\Postgres\Error\Rejection;
use Idempotency\Postgres\Kind;
use Idempotency\Postgres\Work;
use Idempotency\Postgres\Worker;

require_once __DIR__ . '/DatabaseCase.php';

/** What the conformance suite cannot see, and each driver. */
final class WorkerTest extends DatabaseCase
{
    private string $scope;
    /** @var list<string> */
    private array $errors = [];

    protected function setUp(): void
    {
        parent::setUp();
        $this->scope = "work $this->key";
        $this->look->prepare("SELECT idem_policy_set(?, store_request => true, retry_base => '0', max_attempts => 4)")->execute([$this->scope]);
    }

    private function queue(): void
    {
        $this->look->beginTransaction();
        $this->look->prepare("SELECT idem_begin(?, '{\"to\": \"shop\"}', scope => ?, principal => 'me', method => 'POST', path => '/hook')")
            ->execute([$this->key, $this->scope]);
        $this->look->prepare("SELECT idem_fail(?, 'queued', retryable => true, scope => ?, principal => 'me', retry_after => '0')")
            ->execute([$this->key, $this->scope]);
        $this->look->commit();
    }

    /** Works until `handle` has been called so often, and what it did is recorded. */
    private function work(\Closure $make, \Closure $handle, int $times = 1, mixed ...$options): void
    {
        $this->queue();
        $handler = function (Work $work) use ($handle, &$worker, &$times): mixed {
            --$times === 0 && $worker->stop();
            return $handle($work);
        };
        $onError = function (\Throwable $error, ?Work $work): void {
            $this->errors[] = "{$error->getMessage()} {$work?->key}";
        };
        $worker = new Worker($make(), $this->scope, $handler, ...$options + ['poll' => 0.01, 'onError' => $onError]);
        $worker->run();
    }

    /** @return list<mixed> */
    private function stored(): array
    {
        $found = $this->look->prepare('SELECT status, status_code, attempt, error FROM idempotency.records WHERE key = ?');
        $found->execute([$this->key]);
        return $found->fetch(\PDO::FETCH_NUM);
    }

    /** @dataProvider databases */
    public function testWorkAndResultCommitTogether(\Closure $make): void
    {
        $this->work($make, static function (Work $work): void {
            self::pay($work->connection);
            $work->attempt === 2 && throw new \RuntimeException('again');
        }, 2, channel: 'work "to" do');
        self::assertSame(['completed', null, 3, null], $this->stored());
        self::assertSame([1, ["again $this->key"]], [$this->payments(), $this->errors]);
    }

    /** @dataProvider databases */
    public function testRejectionUndoesTheWorkAndIsStored(\Closure $make): void
    {
        $this->work($make, static function (Work $work): never {
            self::pay($work->connection);
            throw new Rejection(422);
        });
        self::assertSame(['completed', 422, 2, null], $this->stored());
        self::assertSame(0, $this->payments());
    }

    /** @dataProvider databases */
    public function testConnectionsThatAreLostInAPause(\Closure $make): void
    {
        pcntl_async_signals(true);
        pcntl_signal(SIGALRM, function (): void {
            $this->look->exec('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()');
            $this->queue();
        });
        pcntl_alarm(1);
        $worker = new Worker($make(), $this->scope, static function (Work $work) use (&$worker): void {
            $worker->stop();
        }, poll: 1.5, channel: 'pause', onError: static fn () => null);
        $worker->run();
        pcntl_signal(SIGALRM, SIG_DFL);
        self::assertSame(['completed', null, 2, null], $this->stored());
    }

    /** @dataProvider databases */
    public function testStepsOfALeasedWorker(\Closure $make): void
    {
        $steps = 0;
        $this->work($make, static function (Work $work) use (&$steps): Answer {
            $work->step('one', static function () use (&$steps): int {
                return ++$steps;
            });
            $work->attempt === 2 && throw new NothingHappened('more to do');
            return new Answer(200, [], json_encode($work->state()));
        }, 2, mode: Kind::Leased);
        self::assertSame([['completed', 200, 3, null], 1], [$this->stored(), $steps]);
    }

    /** A middleware may have the password. */
    public function testItsOwnConnectionHasTheConfigurationOfDoctrine(): void
    {
        $middleware = $this->createMock(Middleware::class);
        $middleware->expects(self::exactly(2))->method('wrap')->willReturnArgument(0);
        $configuration = (new Configuration())->setMiddlewares([$middleware]);
        $dbal = DriverManager::getConnection(self::dbal('pdo_pgsql')->getParams(), $configuration);
        new Worker(new Doctrine($dbal), $this->scope, static fn () => null);
    }

    private static function pgsql(): Connection
    {
        return Connection::pgsql('dbname=' . self::name());
    }

    public function testWhatTheHandlerGets(): void
    {
        $told = null;
        $this->work(self::pgsql(...), static function (Work $work) use (&$told): void {
            $told = $work;
        });
        $said = [$told->key, $told->scope, $told->principal, $told->attempt, $told->method, $told->path, $told->request, $told->error];
        self::assertSame([$this->key, $this->scope, 'me', 2, 'POST', '/hook', ['to' => 'shop'], 'queued'], $said);
        self::assertSame([null, null, [], true], [$told->operation, $told->recoveryPoint, $told->state(), is_int($told->token)]);
    }

    public function testATransactionHasNoSteps(): void
    {
        $this->work(self::pgsql(...), static fn (Work $work): mixed => $work->step('one', static fn (): int => 1));
        self::assertStringContainsString('Kind::Leased', $this->stored()[3]);
    }

    public function testAnAbortIsToldAndLeavesNoClaim(): void
    {
        $this->queue();
        $worker = new Worker(self::pgsql(), $this->scope, static function (Work $work) use (&$worker): void {
            $worker->abort();
            $worker->abort();
            self::assertFalse($work->isHeld());
            $work->check();
        }, mode: Kind::Leased, onError: static fn () => null);
        $worker->run();
        self::assertSame(['retryable', null, 2, 'the worker has been aborted'], $this->stored());
    }

    public function testAStopBeforeItRuns(): void
    {
        $worker = new Worker(self::pgsql(), $this->scope, static fn () => null);
        $worker->stop();
        $worker->stop();
        $worker->run();
        $this->addToAssertionCount(1);
    }

    public function testAMistakeEndsIt(): void
    {
        $this->expectExceptionMessage('scope');
        (new Worker(self::pgsql(), ' ', static fn () => null))->run();
    }

    /** @dataProvider mistakes */
    public function testOptionsAreChecked(string $name, mixed $value): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage("`$name` has to be");
        new Worker(self::pgsql(), $this->scope, static fn () => null, ...[$name => $value]);
    }

    public function mistakes(): array
    {
        return [['size', 2], ['lease', 0], ['poll', -1], ['channel', ''], ['handlerTimeout', 0], ['databaseTimeout', -1]];
    }
}
