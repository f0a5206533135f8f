<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** An answer over HTTP. Several fields of one name are several pairs. */
final readonly class Answer
{
    /** @var list<array{string, string}> */
    public array $headers;

    /**
     * @param int|null $status none where a worker has nothing to store
     * @param list<array{string, string}> $headers made valid UTF-8, since a record holds nothing else
     * @param bool $raised it is the answer to an exception, so the work is rolled back
     * @param self|null $whole the answer to send, where this one is what is stored of it
     */
    public function __construct(
        public ?int $status = 200,
        array $headers = [],
        public string $body = '',
        public bool $raised = false,
        public ?self $whole = null,
    ) {
        $this->headers = array_map(static fn (array $field): array => array_map(Request::text(...), $field), $headers);
    }

    /**
     * Header fields as a list of pairs.
     *
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
     * As it is sent: whole, with these fields instead of its own of the same names.
     *
     * @param list<array{string, string}> $fields
     */
    public function sent(array $fields): self
    {
        $whole = $this->whole ?? $this;
        $left = [...array_column($fields, 0), 'Content-Length', 'Transfer-Encoding', 'Trailer'];
        $left = array_map(strtolower(...), $left);
        $isKept = static fn (array $field): bool => !in_array(strtolower($field[0]), $left, true);
        $kept = array_filter($whole->headers, $isKept);
        if (!in_array($whole->status, [204, 304], true)) {
            $fields[] = ['Content-Length', (string) strlen($whole->body)];
        }
        return new self($whole->status, [...array_values($kept), ...$fields], $whole->body);
    }

    /**
     * The fields in the form of idem_complete: one member for each name; several values become an array.
     *
     * @param list<string> $drop
     */
    public function storedHeaders(array $drop): string
    {
        $left = array_flip([...Contract::NOT_STORED, ...array_map(strtolower(...), $drop)]);
        $members = $names = [];
        foreach ($this->headers as [$name, $value]) {
            $lower = strtolower($name);
            if (!isset($left[$lower])) {
                $members[$names[$lower] ??= $name][] = $value;
            }
        }
        $flat = array_map(static fn (array $all): string|array => isset($all[1]) ? $all : $all[0], $members);
        return json_encode((object) $flat, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
    }

    /** @return list<string> */
    public function values(string $name): array
    {
        $own = array_filter($this->headers, static fn (array $field): bool => strcasecmp($field[0], $name) === 0);
        return array_values(array_column($own, 1));
    }
}

/** The result of a request. */
final readonly class Result
{
    public const EXECUTED = 'executed';
    public const REPLAY = 'replay';
    /** The answer is sent, and not stored. */
    public const NOT_KEPT = 'not_kept';
    /** The record has failed without an answer. */
    public const FAILED = 'failed';

    /** @param string $outcome one of these, or why the request was refused: `in_progress`, `mismatch`, ... */
    public function __construct(public string $outcome, public ?Answer $answer = null, public ?Record $record = null) {}

    /** Of a request that is not executed. */
    public static function ofRecord(Record $record): self
    {
        $hasFailed = $record->outcome === self::REPLAY && $record->answer === null;
        return new self($hasFailed ? self::FAILED : $record->outcome, $record->answer, $record);
    }
}
