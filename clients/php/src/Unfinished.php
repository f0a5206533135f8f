<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/**
 * A handler that ends the script (exit, a fatal error, the memory limit) commits nothing: 500, if PHP can still say it.
 * @internal
 */
final class Unfinished
{
    private static ?int $running = null;

    public static function watch(callable $work): mixed
    {
        if (self::$running === null) {
            register_shutdown_function(self::atShutdown(...));
        }
        self::$running = (self::$running ?? 0) + 1;
        try {
            return $work();
        } finally {
            self::$running--;
        }
    }

    private static function atShutdown(): void
    {
        if (self::$running > 0 && !headers_sent()) {
            while (ob_get_level() > 0 && @ob_end_clean());
            header_remove();
            http_response_code(500);
        }
    }
}
