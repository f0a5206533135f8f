<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Keys in header fields. A field is read raw: neither escapes nor lists are decoded. */
final class Key
{
    private const BARE_ITEM = '"(?:[ !#-\[\]-~]|\\\\["\\\\])*"'     // String
        . '|:[A-Za-z0-9+\/]*=*:'                                  // Byte Sequence
        . '|\?[01]'                                               // Boolean
        . '|@-?[0-9]{1,15}(?![0-9.])'                             // Date
        . '|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"'                       // Display String
        . '|-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9.])'                  // Decimal
        . '|-?[0-9]{1,15}(?![0-9.])'                              // Integer
        . '|[A-Za-z*][!#$%&\'*+\-.^_`|~0-9A-Za-z:\/]*';           // Token
    private const STRING = '/^"((?:[ !#-\[\]-~]|\\\\["\\\\])*+)"'
        . '(?:; *[a-z*][a-z0-9_\-.*]*+(?:=(?:' . self::BARE_ITEM . '))?)*+$/D';
    private const BARE = '/^[!#-+\--:<-\[\]-~]+$/D';

    /** The key in a field's value, as idem_parse_key reads it: a String of RFC 9651, or a bare value. */
    public static function parse(string $field): ?string
    {
        $value = trim($field, " \t");
        if (preg_match(self::STRING, $value, $found)) {
            $key = preg_replace('/\\\\(.)/', '$1', $found[1]);
        } elseif (preg_match(self::BARE, $value)) {
            $key = $value;
        } else {
            return null;
        }
        return strlen($key) <= 255 && trim($key, ' ') !== '' ? $key : null;
    }

    /** As a String of RFC 9651. */
    public static function quote(string $key): string
    {
        return '"' . addcslashes($key, '"\\') . '"';
    }

    /** A UUID of version 7: keys of one moment lie together in an index. */
    public static function generate(): string
    {
        $bytes = substr(pack('J', (int) (microtime(true) * 1000)), 2) . random_bytes(10);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x70);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }
}
