<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Repeats after a conflict or a lost connection. @internal */
final class Again
{
    /**
     * Also after a COMMIT without an answer: the same key gets `replay` if it was committed, `execute` if not.
     *
     * @template T
     * @param callable(bool $lost, bool $last): T $call lost: an earlier try has lost its connection
     * @return T
     */
    public static function call(Settings $settings, callable $call): mixed
    {
        $late = 0;
        $lost = false;
        for ($attempt = 1; true; $attempt++) {
            try {
                return $call($lost, $attempt >= $settings->attempts);
            } catch (Error\Thrown $raised) {
                $cause = $raised->mayRunAgain ? $raised->cause : throw $raised->cause;
            } catch (\Throwable $raised) {
                $mayRunAgain = Failure::isTransient($raised) && !$raised instanceof Error\InDoubt;
                $cause = $mayRunAgain ? $raised : throw $raised;
            }
            $lost = $lost || !Failure::isConflict($cause);
            // Each of these has used the whole time; a second one asks for the result of a COMMIT.
            $late += $raised instanceof Error\DatabaseLate ? 1 : 0;
            if ($attempt >= $settings->attempts || $late === 2) {
                throw new Error\DatabaseAway('the database could not do it', 0, $cause);
            }
            self::pause($attempt);
        }
    }

    /**
     * Only after a conflict. The error is the last run's own.
     *
     * @template T
     * @param callable(): T $call
     * @return T
     */
    public static function afterConflicts(Settings $settings, callable $call): mixed
    {
        for ($attempt = 1; true; $attempt++) {
            try {
                return $call();
            } catch (\Throwable $raised) {
                $cause = $raised instanceof Error\Thrown ? $raised->cause : $raised;
                $mayRunAgain = $attempt < $settings->attempts && Failure::isConflict($cause);
                $mayRunAgain ? self::pause($attempt) : throw $cause;
            }
        }
    }

    private static function pause(int $attempt): void
    {
        usleep((int) (20_000 * 2 ** ($attempt - 1) * (0.5 + mt_rand() / mt_getrandmax())));
    }
}
