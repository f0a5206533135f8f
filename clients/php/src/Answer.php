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

    /** @return list<string> */
    public function values(string $name): array
    {
        $own = array_filter($this->headers, static fn (array $field): bool => strcasecmp($field[0], $name) === 0);
        return array_values(array_column($own, 1));
    }
}
