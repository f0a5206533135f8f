<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** An answer over HTTP. Several fields of one name are several pairs. */
final readonly class Answer
{
    /**
     * @param int|null $status none where a worker has nothing to store
     * @param list<array{string, string}> $headers
     * @param bool $raised it is the answer to an exception, so the work is rolled back
     * @param self|null $whole the answer to send, where this one is what is stored of it
     */
    public function __construct(
        public ?int $status = 200,
        public array $headers = [],
        public string $body = '',
        public bool $raised = false,
        public ?self $whole = null,
    ) {}

    public function asRaised(): self
    {
        return new self($this->status, $this->headers, $this->body, true, $this->whole);
    }

    /** @return list<string> */
    public function values(string $name): array
    {
        return Fields::values($this->headers, $name);
    }
}
