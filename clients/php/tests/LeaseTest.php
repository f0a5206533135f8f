<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Error\LeaseLost;
use Idempotency\Postgres\Error\SqlError;
use Idempotency\Postgres\Lease;
use Idempotency\Postgres\Record;
use Idempotency\Postgres\Settings;
use Idempotency\Postgres\TimeLimit;
use PHPUnit\Framework\TestCase;

/** The lease by our clock, which the tests set back instead of waiting. It is long, as a test may stand still. */
final class LeaseTest extends TestCase
{
    /** @var list<float> */
    private array $beats = [];
    private int $lost = 0;

    /** @param float $passed how much of the 6000 s */
    private function lease(float $passed, ?\Exception $error = null): Lease
    {
        $database = new class ($this->beats, $error) extends Connection {
            public function __construct(private array &$beats, private readonly ?\Exception $error)
            {
            }

            public function statement(string $text, array $values, float $within): array
            {
                $this->beats[] = $within;
                return $this->error === null ? [] : throw $this->error;
            }
        };
        $row = ['key' => 'k', 'scope' => 's', 'principal' => 'p', 'recovery_point' => null, 'state' => null];
        $settings = new Settings(databaseTimeout: 2000, lease: 6000, onLeaseLost: function (): void {
            $this->lost++;
        });
        return new Lease($database, $settings, new Record($row), TimeLimit::now() - $passed);
    }

    public function testNoBeatBeforeAThird(): void
    {
        self::assertTrue($this->lease(1000)->isHeld());
        self::assertSame([], $this->beats);
    }

    public function testOneBeatAfterAThird(): void
    {
        $lease = $this->lease(3000);
        self::assertSame([true, true], [$lease->isHeld(), $lease->isHeld()]);
        self::assertSame([1000.0], $this->beats);
    }

    public function testABeatEndsWithTheLease(): void
    {
        self::assertTrue($this->lease(5500, new \RuntimeException('no answer'))->isHeld());
        self::assertEqualsWithDelta(500, $this->beats[0], 100);
    }

    public function testTheServerSaysThatItIsLost(): void
    {
        $lease = $this->lease(3000, new SqlError('no claim', 'ID409'));
        self::assertSame([false, false, 1], [$lease->isHeld(), $lease->isHeld(), $this->lost]);
    }

    public function testItMayHaveEnded(): void
    {
        $lease = $this->lease(6100);
        try {
            $lease->check();
            self::fail('it is lost');
        } catch (LeaseLost) {
            self::assertSame([[], 1, true], [$this->beats, $this->lost, $lease->isLost()]);
        }
    }
}
