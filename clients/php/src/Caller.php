<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Caller;

use Idempotency\Postgres\Key;
use Idempotency\Postgres\Settings;
use Idempotency\Postgres\TimeLimit;
use Psr\Http\Message\ResponseInterface;

/** For callers of such services: one key for all sendings of a request, until its answer is final. Times in seconds. */
final readonly class Caller
{
    private const OPEN = ['in-progress', 'unknown', 'retry-later', 'unavailable', 'handler-late'];

    /**
     * @param int $attempts how often a request is sent
     * @param float $base the longest first pause; each further one may be twice as long, up to `cap`
     * @param float $giveUpAfter no pause begins that would end later than this after the first sending
     */
    public function __construct(
        private int $attempts = 8,
        private float $base = 0.2,
        private float $cap = 30.0,
        private float $giveUpAfter = 300.0,
        private string $keyHeader = 'Idempotency-Key',
    ) {}

    /**
     * Sends a request until its answer is final: after pauses that grow, no shorter than Retry-After.
     *
     * After a crash the application goes on with the key that `store` has got, as `key`.
     *
     * @param callable(array<string, string>): ResponseInterface $send gets the key's header field, and makes the same
     *     request each time, with a timeout; an exception means that there was no answer
     * @param (callable(string): mixed)|null $store gets the key before the first sending
     */
    public function call(callable $send, ?string $key = null, ?callable $store = null): ResponseInterface
    {
        $key ??= Key::generate();
        $store === null || $store($key);
        $end = TimeLimit::now() + $this->giveUpAfter;
        for ($sent = 1; true; $sent++) {
            $response = $error = null;
            try {
                $response = $send([$this->keyHeader => Key::quote($key)]);
                if (self::isFinal($response)) {
                    return $response;
                }
            } catch (\Exception $error) { // it may have taken effect
            }
            $most = min($this->cap, $this->base * 2 ** ($sent - 1));
            $pause = self::retryAfter($response) + $most * mt_rand() / mt_getrandmax();
            if ($sent >= $this->attempts || TimeLimit::now() + $pause > $end) {
                throw new NotFinal($key, $response, $error);
            }
            usleep((int) ($pause * 1e6));
        }
    }

    /** Whether a repeat with the same key would get this answer again. */
    public static function isFinal(ResponseInterface $response): bool
    {
        $isProblem = str_starts_with($response->getHeaderLine('Content-Type'), 'application/problem+json');
        $type = $isProblem ? json_decode((string) $response->getBody(), true)['type'] ?? '' : '';
        $isProblem && $response->getBody()->isSeekable() && $response->getBody()->rewind(); // for the caller
        $word = is_string($type) && preg_match('~/problems/idempotency/([a-z-]+)$~D', $type, $found) ? $found[1] : null;
        return match (true) {
            $response->getHeaderLine('Idempotent-Replayed') === 'true' => true,
            in_array($word, self::OPEN, true) => false,
            in_array($word, ['failed', 'exhausted'], true) => true,
            default => Settings::keeps($response->getStatusCode()),
        };
    }

    /** Seconds or a date, as seconds from now. */
    private static function retryAfter(?ResponseInterface $response): float
    {
        $field = $response?->getHeaderLine('Retry-After') ?? '';
        return ctype_digit($field) ? (float) $field : max(0.0, (float) ((strtotime($field) ?: 0) - time()));
    }
}

/** The answer is not known yet. A later call with the same key goes on; another key could do the work twice. */
final class NotFinal extends \RuntimeException
{
    public function __construct(
        public readonly string $key,
        public readonly ?ResponseInterface $response,
        ?\Throwable $previous,
    ) {
        parent::__construct("no final answer under the key $key", 0, $previous);
    }
}
