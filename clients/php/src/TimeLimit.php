<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/**
 * The limit of the work. PHP has no threads: where it has ext-pcntl (as on the command line), an alarm ends the work;
 * else the limit counts when the work returns. @internal
 */
final class TimeLimit
{
    private const LONGEST_ALARM = 86_400;

    public static function run(float $limit, callable $work): mixed
    {
        $end = Lease::now() + $limit;
        $tooLate = static fn () => throw new Error\HandlerLate("the handler did not answer within $limit s");
        $disarm = self::arm($limit, $tooLate);
        try {
            return $work();
        } finally {
            $disarm();
            if (Lease::now() > $end) {
                $tooLate();
            }
        }
    }

    private static function arm(float $limit, \Closure $onAlarm): \Closure
    {
        $isPossible = function_exists('pcntl_alarm') && $limit < self::LONGEST_ALARM;
        if (!$isPossible || pcntl_signal_get_handler(SIGALRM) !== SIG_DFL) {
            return static fn (): null => null;
        }
        $wasAsync = pcntl_async_signals(true);
        $disarm = static function () use ($wasAsync): void {
            pcntl_alarm(0);
            pcntl_signal(SIGALRM, SIG_DFL);
            pcntl_async_signals($wasAsync);
        };
        pcntl_signal(SIGALRM, static fn () => [$disarm(), $onAlarm()]); // it may come just before `run` disarms
        pcntl_alarm((int) ceil($limit));
        return $disarm;
    }
}
