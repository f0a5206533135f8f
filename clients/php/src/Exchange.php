<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A framework's part: the request, and a way to run the handler and catch its answer. @internal */
final readonly class Exchange
{
    private const PIECE = 1024; // so that what a piece unpacks to is not much beyond the limit

    /** As it was sent, with the query string. */
    public string $target;
    /** @var array<string, list<string|null>> by names in lower case */
    private array $headers;

    /**
     * @param object $request the argument of the options' functions
     * @param array<string, list<string|null>> $headers
     * @param string $raw the target as the server got it, where PHP has it: frameworks normalize escapes
     * @param string $route its pattern or path
     * @param \Closure(int): string $read a piece of the body as it was sent; the empty string at its end
     * @param \Closure(): (list<string|null>|null) $form the parts of a form of which PHP leaves no body
     * @param \Closure(string, TransactionalClaim|LeasedClaim): Answer $run runs the handler, each time anew
     * @param (\Closure(\Throwable): ?Answer)|null $raised the framework's answer to an exception of the handler
     */
    public function __construct(
        public object $request,
        public string $method,
        array $headers,
        string $raw,
        string $target,
        public string $route,
        private \Closure $read,
        private \Closure $form,
        public \Closure $run,
        public ?\Closure $raised = null,
    ) {
        $this->headers = array_change_key_case($headers);
        $this->target = str_starts_with($raw, '/') ? $raw : $target;
    }

    /** @return list<string> */
    public function values(string $header): array
    {
        return array_values(array_filter($this->headers[strtolower($header)] ?? [], is_string(...)));
    }

    private function field(string $name): string
    {
        return implode(', ', $this->values($name));
    }

    /** The body, taken piece by piece and decoded. The limit counts decoded bytes. */
    public function body(int $limit): string
    {
        $inflate = match (strtolower(trim($this->field('Content-Encoding')))) {
            '', 'identity' => null,
            'gzip', 'x-gzip' => inflate_init(ZLIB_ENCODING_GZIP),
            'deflate' => inflate_init(ZLIB_ENCODING_DEFLATE),
            default => throw new Error\HttpProblem('content_encoding'),
        };
        $isBroken = new Error\HttpProblem('bad_body', 'The body is not what Content-Encoding says.');
        $isTooLarge = new Error\HttpProblem('body_too_large');
        $length = $this->field('Content-Length');
        $length = ctype_digit($length) ? (int) $length : 0;
        $body = $inflate === null && $length > $limit ? throw $isTooLarge : '';
        $taken = 0;
        // A stream may wait until it has as much as was requested.
        while (($data = ($this->read)(min(65536, max(1, $limit + 1 - $taken)))) !== '') {
            $taken += strlen($data);
            foreach ($inflate === null ? [$data] : str_split($data, self::PIECE) as $piece) {
                $decoded = $inflate === null ? $piece : @inflate_add($inflate, $piece);
                $body .= $decoded === false ? throw $isBroken : $decoded;
                strlen($body) <= $limit ?: throw $isTooLarge;
            }
        }
        if ($taken < $length && ($this->form)() === null) {
            throw new Error\HttpProblem('bad_body', 'The body ended too early.');
        }
        $hasEnded = $inflate === null || inflate_get_status($inflate) === ZLIB_STREAM_END;
        $hasMore = $inflate !== null && inflate_get_read_len($inflate) !== $taken;
        return $hasEnded && !$hasMore ? $body : throw $isBroken;
    }

    /**
     * The JSON, exactly, or a digest; many libraries send the type without a body.
     *
     * @param (callable(object, string): string)|null $fingerprint the route's own
     * @return array{string|null, string|null}
     */
    public function identity(string $body, ?callable $fingerprint): array
    {
        $media = Form::mediaType($this->field('Content-Type')) ?? '';
        $isJson = $body !== '' && preg_match('~^(application/json|[^/]+/[^/]+\+json)$~D', $media) === 1;
        if ($isJson && (preg_match('//u', $body) !== 1 || str_contains($body, "\0"))) { // no driver would send a NUL
            throw new Error\HttpProblem('bad_json');
        }
        $own = $fingerprint === null ? null : hash('sha256', $fingerprint($this->request, $body), true);
        return [$isJson ? $body : null, $own ?? ($isJson ? null : $this->digest($body))];
    }

    /** The fingerprint of a body that is not JSON, see docs/fingerprint.md. */
    public function digest(string $body): string
    {
        $type = $this->field('Content-Type');
        $media = Form::mediaType($type);
        $form = $body === '' ? ($this->form)() : null;
        $form ??= $media === 'multipart/form-data' ? Form::parts($type, $body) : null;
        $hash = hash_init('sha256');
        hash_update($hash, "idempotency fingerprint 1\n");
        foreach ([$this->method, $this->target, $media, ...($form ?? [$body])] as $part) {
            hash_update($hash, $part === null ? "-\n" : strlen($part) . ":$part\n");
        }
        return hash_final($hash, true);
    }

    /**
     * The token of the one field `Authorization: Bearer TOKEN`; null if there is none, or two.
     *
     * @param list<string|null> $sent
     */
    public static function bearer(array $sent): ?string
    {
        $one = count($sent) === 1 ? (string) $sent[0] : '';
        return preg_match('~^[ \t]*bearer +([A-Za-z0-9._\~+/-]+=*)[ \t]*$~iD', $one, $found) ? $found[1] : null;
    }
}

/** A form has another boundary each time, so its parts identify it: name, file name, media type, content. @internal */
final class Form
{
    /** Type and subtype, in lower case. */
    public static function mediaType(string $contentType): ?string
    {
        $media = strtolower(trim(explode(';', $contentType, 2)[0]));
        return $media === '' ? null : $media;
    }

    /** @return list<string|null>|null four for each part; null if the body is not what its type says */
    public static function parts(string $contentType, string $body): ?array
    {
        $boundary = self::parameter($contentType, 'boundary') ?? '';
        $pieces = explode("\r\n--$boundary", "\r\n$body"); // the first mark may begin the body
        $end = array_pop($pieces);
        $hasMarks = $boundary !== '' && array_shift($pieces) === '' && str_starts_with($end, '--') && strlen($end) <= 4;
        $parts = $hasMarks ? array_map(self::part(...), $pieces) : [];
        return $parts && !in_array(null, $parts, true) ? array_merge(...$parts) : null;
    }

    /** @return list<string|null>|null of a part, from the end of its boundary's line on */
    private static function part(string $data): ?array
    {
        [$head, $content] = explode("\r\n\r\n", $data, 2) + [1 => null];
        $field = static fn (string $name): ?string =>
            preg_match("/(*CRLF)^[ \t]*{$name}[ \t]*:(.*)/im", $head, $found) ? trim($found[1]) : null;
        $disposition = $field('content-disposition');
        if (!str_starts_with($data, "\r\n") || $content === null || $disposition === null) {
            return null;
        }
        $names = [self::parameter($disposition, 'name'), self::parameter($disposition, 'filename')];
        return [...$names, self::mediaType($field('content-type') ?? ''), $content];
    }

    /**
     * The same of a form that PHP has parsed itself, so that its body is gone: its fields, then its files, in the order
     * of PHP's arrays.
     *
     * @param array<string, mixed> $fields
     * @param array<string, mixed> $files
     * @param callable(object|null): array{?string, ?string, string} $part file name, media type and content
     * @return list<string|null>|null
     */
    public static function parsed(array $fields, array $files, callable $part): ?array
    {
        $text = static fn (mixed $value): array => [null, null, (string) $value];
        return [...self::flat($fields, $text), ...self::flat($files, $part)] ?: null;
    }

    /** @return list<string|null> by names as in a form: a[b][0] */
    private static function flat(array $tree, callable $part, ?string $prefix = null): array
    {
        $flat = [];
        foreach ($tree as $name => $value) {
            $path = $prefix === null ? (string) $name : $prefix . "[$name]";
            array_push($flat, ...(is_array($value) ? self::flat($value, $part, $path) : [$path, ...$part($value)]));
        }
        return $flat;
    }

    /** A parameter of a field's value, without its quotes. */
    private static function parameter(string $value, string $name): ?string
    {
        $pattern = '/;[ \t]*' . $name . '[ \t]*=[ \t]*(?:"((?:[^"\\\\]|\\\\.)*)"|([^;" \t]*))/is';
        if (!preg_match($pattern, $value, $found, PREG_UNMATCHED_AS_NULL)) {
            return null;
        }
        return $found[1] === null ? $found[2] : preg_replace('/\\\\(["\\\\])/', '$1', $found[1]);
    }
}
