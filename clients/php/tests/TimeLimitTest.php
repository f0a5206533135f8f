<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Idempotency\Postgres\Error\HandlerLate;
use Idempotency\Postgres\TimeLimit;
use PHPUnit\Framework\TestCase;

/** @requires extension pcntl */
final class TimeLimitTest extends TestCase
{
    private function assertNothingIsLeft(): void
    {
        self::assertSame([SIG_DFL, false, 0], [pcntl_signal_get_handler(SIGALRM), pcntl_async_signals(), pcntl_alarm(0)]);
    }

    public function testAnAlarmInTheWork(): void
    {
        try {
            TimeLimit::run(60, static fn () => posix_kill(posix_getpid(), SIGALRM) && usleep(1));
            self::fail('it was late');
        } catch (HandlerLate) {
            $this->assertNothingIsLeft();
        }
    }

    /** It may come when the work has ended, and before anything else has put the signal back. */
    public function testAnAlarmPutsTheSignalBackBeforeItThrows(): void
    {
        TimeLimit::run(60, function (): void {
            try {
                pcntl_signal_get_handler(SIGALRM)();
                self::fail('it throws');
            } catch (HandlerLate) {
                $this->assertNothingIsLeft();
            }
        });
        $this->assertNothingIsLeft();
    }
}
