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

    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    public static function run(float $limit, callable $work): mixed
    {
        $end = self::now() + $limit;
        $tooLate = static fn () => throw new Error\HandlerLate("the handler did not answer within $limit s");
        $hasAlarm = function_exists('pcntl_alarm') && $limit < self::LONGEST_ALARM
            && pcntl_signal_get_handler(SIGALRM) === SIG_DFL;
        $wasAsync = $hasAlarm && pcntl_async_signals(true);
        $disarm = static function () use ($hasAlarm, $wasAsync): void {
            if ($hasAlarm) {
                pcntl_alarm(0);
                pcntl_signal(SIGALRM, SIG_DFL);
                pcntl_async_signals($wasAsync);
            }
        };
        if ($hasAlarm) {
            pcntl_signal(SIGALRM, static fn () => [$disarm(), $tooLate()]); // it may come just before the end
            pcntl_alarm((int) ceil($limit));
        }
        try {
            return $work();
        } finally {
            $disarm();
            self::now() <= $end || $tooLate();
        }
    }
}
