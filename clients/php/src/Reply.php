<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The answer to send. */
final readonly class Reply
{
    /**
     * @param list<array{string, string}> $fields
     * @param bool $close the body was not read, so the connection cannot be reused
     */
    public function __construct(private Answer $answer, private array $fields = [], private bool $close = false) {}

    public function answer(): Answer
    {
        $whole = $this->answer->whole ?? $this->answer;
        $left = array_map(strtolower(...), [...array_column($this->fields, 0), 'Content-Length', 'Transfer-Encoding', 'Trailer']);
        $kept = array_filter($whole->headers, static fn (array $field): bool => !in_array(strtolower($field[0]), $left, true));
        $headers = [...$kept, ...$this->fields];
        if ($this->close) {
            $headers[] = ['Connection', 'close'];
        }
        if (!in_array($whole->status, [204, 304], true)) {
            $headers[] = ['Content-Length', (string) strlen($whole->body)]; // it is sent whole
        }
        return new Answer($whole->status, array_values($headers), $whole->body);
    }
}
