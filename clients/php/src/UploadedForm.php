<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/**
 * A form that PHP has parsed itself, so that its body is gone: its fields, then its files, in the order of PHP's arrays.
 * @internal
 */
final class UploadedForm
{
    /**
     * @param array<string, mixed> $fields
     * @param array<string, array{?string, ?string, string}> $files file name, media type and content
     * @return list<string|null>|null
     */
    public static function parts(array $fields, array $files): ?array
    {
        $parts = [];
        foreach (self::flat($fields) as $name => $value) {
            array_push($parts, $name, null, null, (string) $value);
        }
        foreach ($files as $name => $file) {
            array_push($parts, $name, ...$file);
        }
        return $parts ?: null;
    }

    /**
     * @param array<array-key, mixed> $tree
     * @return array<string, mixed> by names as in a form: a[b][0]
     */
    public static function flat(array $tree, ?string $prefix = null): array
    {
        $flat = [];
        foreach ($tree as $name => $value) {
            $path = $prefix === null ? (string) $name : $prefix . "[$name]";
            $flat += is_array($value) ? self::flat($value, $path) : [$path => $value];
        }
        return $flat;
    }
}
