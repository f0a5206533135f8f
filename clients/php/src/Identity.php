<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** What identifies a request: its method, target and body. */
final class Identity
{
    /** Type and subtype, in lower case. */
    public static function mediaType(?string $contentType): ?string
    {
        $media = strtolower(trim(explode(';', $contentType ?? '', 2)[0]));
        return $media === '' ? null : $media;
    }

    public static function isJson(string $contentType): bool
    {
        return preg_match('~^(application/json|[^/]+/[^/]+\+json)$~D', self::mediaType($contentType) ?? '') === 1;
    }

    /** The text of a JSON body, exactly. Text that is not UTF-8 is not JSON, and no driver would send a NUL. */
    public static function text(string $body): string
    {
        if (preg_match('//u', $body) !== 1 || str_contains($body, "\0")) {
            throw new Error\HttpProblem('bad_json');
        }
        return $body;
    }

    /**
     * The fingerprint of a body that is not JSON, see docs/fingerprint.md.
     *
     * @param list<string|null>|null $form the parts of a form that PHP has parsed; it leaves no body
     */
    public static function digest(string $method, string $target, string $type, string $body, ?array $form): string
    {
        $media = self::mediaType($type);
        if ($media === 'multipart/form-data') {
            $form ??= Form::parts($type, $body);
        }
        $hash = hash_init('sha256');
        hash_update($hash, "idempotency fingerprint 1\n");
        foreach ([$method, $target, $media, ...($form ?? [$body])] as $part) {
            hash_update($hash, $part === null ? "-\n" : strlen($part) . ":$part\n");
        }
        return hash_final($hash, true);
    }
}
