<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Values of the statements that end a claim. @internal */
final class Ends
{
    /** @return list<string|null> */
    public static function completion(Request $request, Record $record, Answer $answer, Settings $settings): array
    {
        $headers = Fields::stored($answer->headers, $settings->dropHeaders);
        $body = $answer->whole === null && $answer->status !== null ? Request::bytes($answer->body) : null;
        return [$record->key, $answer->status === null ? null : (string) $answer->status, $body, $headers, $request->scope, $request->principal, $record->token];
    }

    /** @return list<string|null> */
    public static function unknown(Request $request, Record $record, ?string $error, ?string $reference = null): array
    {
        return [$record->key, self::text($error), self::text($reference), $request->scope, $request->principal, $record->token];
    }

    /** A text of PostgreSQL is UTF-8 without a NUL. */
    public static function text(?string $value): ?string
    {
        return $value === null ? null : str_replace("\0", '', mb_scrub($value, 'UTF-8'));
    }
}
