<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Header fields as a list of pairs. */
final class Fields
{
    /**
     * @param array<string, string|list<string>> $byName as PSR-7, Symfony and records have them
     * @return list<array{string, string}>
     */
    public static function pairs(array $byName): array
    {
        $pairs = [];
        foreach ($byName as $name => $values) {
            foreach ((array) $values as $value) {
                $pairs[] = [(string) $name, (string) $value];
            }
        }
        return $pairs;
    }

    /**
     * In the form of idem_complete: one member for each name; several values become an array.
     *
     * @param list<array{string, string}> $fields
     * @param list<string> $drop
     */
    public static function stored(array $fields, array $drop): string
    {
        $left = array_flip([...Contract::NOT_STORED, ...array_map(strtolower(...), $drop)]);
        $members = $names = [];
        foreach ($fields as [$name, $value]) {
            $lower = strtolower($name);
            if (!isset($left[$lower])) {
                $members[$names[$lower] ??= $name][] = $value;
            }
        }
        $flat = array_map(static fn (array $all): string|array => isset($all[1]) ? $all : $all[0], $members);
        return json_encode((object) $flat, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
    }

    /**
     * The token of the one field `Authorization: Bearer TOKEN`; null if there is none, or two.
     *
     * @param list<string> $sent
     */
    public static function bearer(array $sent): ?string
    {
        $one = count($sent) === 1 ? (string) $sent[0] : '';
        return preg_match('~^[ \t]*bearer +([A-Za-z0-9._\~+/-]+=*)[ \t]*$~iD', $one, $found) ? $found[1] : null;
    }
}
