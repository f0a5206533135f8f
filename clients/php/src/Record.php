<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A row of idem_begin. */
final readonly class Record
{
    /**
     * @param array<string, string|list<string>> $headers
     * @param array<string, mixed> $state
     */
    private function __construct(
        public string $outcome,
        public ?string $key,
        public ?string $token,
        public ?int $attempt,
        public ?string $status,
        public ?int $statusCode,
        public array $headers,
        public ?string $body,
        public bool $bodyOmitted,
        public ?string $recoveryPoint,
        public array $state,
        public ?float $retryAfter,
    ) {}

    /** @param array<string, mixed> $row as PDO or ext-pgsql has it */
    public static function of(array $row): self
    {
        $number = static fn (string $name): ?int => $row[$name] === null ? null : (int) $row[$name];
        $json = static fn (?string $value): array => (array) json_decode($value ?? '{}', true, 1024, JSON_THROW_ON_ERROR);
        return new self(
            (string) $row['outcome'],
            $row['key'],
            $row['token'] === null ? null : (string) $row['token'],
            $number('attempt'),
            $row['status'],
            $number('status_code'),
            $json($row['headers']),
            self::unescaped($row['body']),
            in_array($row['body_omitted'], [true, 't', 1, '1'], true),
            $row['recovery_point'],
            $json($row['state']),
            $row['retry_after'] === null ? null : (float) $row['retry_after'],
        );
    }

    /** @param array<string, mixed> $row of idem_claim_due */
    public static function ofDue(array $row): self
    {
        $none = array_fill_keys(['status', 'status_code', 'headers', 'body', 'body_omitted', 'retry_after'], null);
        return self::of($row + $none + ['outcome' => 'execute']);
    }

    private static function unescaped(mixed $value): ?string
    {
        return is_resource($value) ? (string) stream_get_contents($value) : ($value === null ? null : pg_unescape_bytea($value));
    }

    /** The stored answer; none where a record failed without one. */
    public function replay(): ?Answer
    {
        if ($this->statusCode === null && $this->status !== 'completed') {
            return null;
        }
        $fields = Fields::pairs(array_map(static fn (string|array $value): array => (array) $value, $this->headers));
        if ($this->bodyOmitted) {
            $fields[] = ['Idempotent-Body', 'omitted'];
        }
        return new Answer($this->statusCode ?? 200, $fields, $this->body ?? '');
    }
}
