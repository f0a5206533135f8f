<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Takes a body piece by piece and decodes it. The limit counts decoded bytes. */
final class BodyReader
{
    private const ENCODINGS = ['gzip' => ZLIB_ENCODING_GZIP, 'x-gzip' => ZLIB_ENCODING_GZIP, 'deflate' => ZLIB_ENCODING_DEFLATE];
    private const PIECE = 1024; // so that what a piece unpacks to is not much beyond the limit

    private string $body = '';
    private ?\InflateContext $inflate = null;
    private int $taken = 0;

    public function __construct(string $encoding, string $length, private readonly int $limit)
    {
        $name = strtolower(trim($encoding));
        if (!in_array($name, ['', 'identity'], true)) {
            $encoding = self::ENCODINGS[$name] ?? throw new Error\HttpProblem('content_encoding');
            $this->inflate = inflate_init($encoding) ?: null;
        } elseif (ctype_digit($length) && (strlen($length) > 18 || (int) $length > $limit)) {
            throw new Error\HttpProblem('body_too_large');
        }
    }

    public function feed(string $data): void
    {
        if ($this->inflate === null) {
            $this->append($data);
            return;
        }
        foreach (str_split($data, self::PIECE) as $piece) {
            $this->append($this->inflated($piece));
        }
    }

    private function inflated(string $piece): string
    {
        $this->taken += strlen($piece);
        $ended = inflate_get_status($this->inflate) === ZLIB_STREAM_END;
        $decoded = $ended ? false : @inflate_add($this->inflate, $piece);
        if ($decoded === false) {
            throw self::broken();
        }
        return $decoded;
    }

    private function append(string $data): void
    {
        $this->body .= $data;
        if (strlen($this->body) > $this->limit) {
            throw new Error\HttpProblem('body_too_large');
        }
    }

    /** After the last piece. */
    public function body(): string
    {
        if ($this->inflate !== null) {
            $ended = inflate_get_status($this->inflate) === ZLIB_STREAM_END;
            if (!$ended || inflate_get_read_len($this->inflate) !== $this->taken) {
                throw self::broken();
            }
        }
        return $this->body;
    }

    private static function broken(): Error\HttpProblem
    {
        return new Error\HttpProblem('bad_body', 'The body is not what Content-Encoding says.');
    }
}
