<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A form has another boundary each time, so its parts identify it: name, file name, media type, content. @internal */
final class Form
{
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
        if (!str_starts_with($data, "\r\n") || $content === null) {
            return null;
        }
        $fields = [];
        foreach (explode("\r\n", substr($head, 2)) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $fields[strtolower(trim($name))] ??= trim($value);
        }
        $disposition = $fields['content-disposition'] ?? null;
        if ($disposition === null) {
            return null;
        }
        $media = Identity::mediaType($fields['content-type'] ?? null);
        return [self::parameter($disposition, 'name'), self::parameter($disposition, 'filename'), $media, $content];
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
        $parts = [];
        foreach (self::flat($fields) as $name => $value) {
            array_push($parts, $name, null, null, (string) $value);
        }
        foreach (self::flat($files) as $name => $file) {
            array_push($parts, $name, ...$part($file));
        }
        return $parts ?: null;
    }

    /**
     * @param array<array-key, mixed> $tree
     * @return array<string, mixed> by names as in a form: a[b][0]
     */
    private static function flat(array $tree, ?string $prefix = null): array
    {
        $flat = [];
        foreach ($tree as $name => $value) {
            $path = $prefix === null ? (string) $name : $prefix . "[$name]";
            $flat += is_array($value) ? self::flat($value, $path) : [$path => $value];
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
