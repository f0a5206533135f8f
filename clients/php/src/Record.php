<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A row of idem_begin or idem_claim_due: a claim, or why there is none. */
final readonly class Record
{
    public string $outcome;
    public ?string $key;
    public ?string $token;
    public ?int $attempt;
    public ?string $recoveryPoint;
    /** @var array<string, mixed> */
    public array $state;
    public ?float $retryAfter;
    /** The stored one; none where a record failed without one. */
    public ?Answer $answer;

    /** @param array<string, mixed> $row as PDO or ext-pgsql has it */
    public function __construct(array $row, public string $scope, public string $principal)
    {
        $this->outcome = $row['outcome'] ?? 'execute';
        $this->key = $row['key'];
        $this->token = isset($row['token']) ? (string) $row['token'] : null;
        $this->attempt = isset($row['attempt']) ? (int) $row['attempt'] : null;
        $this->recoveryPoint = $row['recovery_point'];
        $this->state = self::json($row['state']);
        $this->retryAfter = isset($row['retry_after']) ? (float) $row['retry_after'] : null;
        $this->answer = $this->outcome === Result::REPLAY ? self::stored($row) : null;
    }

    /** @param array<string, mixed> $row */
    private static function stored(array $row): ?Answer
    {
        if ($row['status_code'] === null && $row['status'] !== 'completed') {
            return null;
        }
        $fields = Fields::pairs(self::json($row['headers']));
        if (self::isTrue($row['body_omitted'])) {
            $fields[] = ['Idempotent-Body', 'omitted'];
        }
        $body = is_resource($row['body']) ? stream_get_contents($row['body']) : pg_unescape_bytea($row['body'] ?? '');
        return new Answer((int) ($row['status_code'] ?? 200), $fields, (string) $body);
    }

    /** @return array<string, mixed> */
    private static function json(?string $text): array
    {
        return (array) json_decode($text ?? '{}', true, 1024, JSON_THROW_ON_ERROR);
    }

    /** PDO has a bool, ext-pgsql a letter. */
    public static function isTrue(mixed $value): bool
    {
        return in_array($value, [true, 't', 1, '1'], true);
    }

    /** @return array<string, mixed> what a claim of either kind says */
    public function names(): array
    {
        $attempt = $this->attempt ?? 1;
        return ['key' => $this->key, 'scope' => $this->scope, 'principal' => $this->principal, 'attempt' => $attempt];
    }

    /** @return list<string|null> values of a statement about the claim, its own ones in the middle */
    public function values(?string ...$own): array
    {
        return [$this->key, ...$own, $this->scope, $this->principal, $this->token];
    }

    /** @return list<string|null> */
    public function completion(Answer $answer, Settings $settings): array
    {
        $status = $answer->status === null ? null : (string) $answer->status;
        $body = $answer->whole === null && $status !== null ? Request::bytes($answer->body) : null;
        return $this->values($status, $body, Fields::stored($answer->headers, $settings->dropHeaders));
    }

    /** @return list<string|null> */
    public function unknown(?string $error, ?string $reference = null): array
    {
        return $this->values(Request::text($error), Request::text($reference));
    }
}
