<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The body of a request, taken piece by piece and decoded. The limit counts decoded bytes. @internal */
final class Body
{
    private const PIECE = 1024; // so that what a piece unpacks to is not much beyond the limit

    public static function read(Exchange $exchange, int $limit): string
    {
        $inflate = self::decoder($exchange->field('Content-Encoding'));
        $length = $exchange->field('Content-Length');
        $length = ctype_digit($length) ? (int) $length : 0;
        if ($inflate === null && $length > $limit) {
            throw new Error\HttpProblem('body_too_large');
        }
        $body = '';
        $taken = 0;
        // A stream may wait until it has as much as was requested.
        while (($data = ($exchange->read)(min(65536, max(1, $limit + 1 - $taken)))) !== '') {
            $taken += strlen($data);
            foreach ($inflate === null ? [$data] : str_split($data, self::PIECE) as $piece) {
                $body .= $inflate === null ? $piece : self::inflated($inflate, $piece);
                if (strlen($body) > $limit) {
                    throw new Error\HttpProblem('body_too_large');
                }
            }
        }
        if ($taken < $length && ($exchange->form)() === null) {
            throw new Error\HttpProblem('bad_body', 'The body ended too early.');
        }
        if ($inflate !== null && (!self::hasEnded($inflate) || inflate_get_read_len($inflate) !== $taken)) {
            throw self::broken();
        }
        return $body;
    }

    private static function decoder(string $encoding): ?\InflateContext
    {
        return match (strtolower(trim($encoding))) {
            '', 'identity' => null,
            'gzip', 'x-gzip' => inflate_init(ZLIB_ENCODING_GZIP),
            'deflate' => inflate_init(ZLIB_ENCODING_DEFLATE),
            default => throw new Error\HttpProblem('content_encoding'),
        };
    }

    private static function inflated(\InflateContext $inflate, string $piece): string
    {
        $decoded = self::hasEnded($inflate) ? false : @inflate_add($inflate, $piece);
        return $decoded === false ? throw self::broken() : $decoded;
    }

    private static function hasEnded(\InflateContext $inflate): bool
    {
        return inflate_get_status($inflate) === ZLIB_STREAM_END;
    }

    private static function broken(): Error\HttpProblem
    {
        return new Error\HttpProblem('bad_body', 'The body is not what Content-Encoding says.');
    }
}
