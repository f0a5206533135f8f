<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A framework's part: the request, and a way to run the handler and catch its answer. @internal */
abstract class Exchange
{
    /** As it was sent, with the query string. */
    public readonly string $target;
    /** @var array<string, list<string|null>> by names in lower case */
    private readonly array $headers;

    /**
     * @param object $request the argument of the options' functions
     * @param array<string, list<string|null>> $headers
     * @param string $raw the target as the server got it, where PHP has it: frameworks normalize escapes
     */
    protected function __construct(
        public readonly object $request,
        public readonly string $method,
        array $headers,
        string $raw,
        string $target,
        public readonly string $defaultScope,
    ) {
        $this->headers = array_change_key_case($headers);
        $this->target = str_starts_with($raw, '/') ? $raw : $target;
    }

    /** @return list<string> */
    public function values(string $header): array
    {
        return array_values(array_filter($this->headers[strtolower($header)] ?? [], is_string(...)));
    }

    public function field(string $name): string
    {
        return implode(', ', $this->values($name));
    }

    /** A piece of the body as it was sent; the empty string at its end. */
    abstract public function read(int $size): string;

    /** @return list<string|null>|null the parts of a form of which PHP leaves no body */
    abstract public function form(): ?array;

    /** Runs the handler, each time anew. */
    abstract public function run(string $body, TransactionalClaim|LeasedClaim $claim): Answer;
}
