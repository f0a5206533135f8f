<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A framework's part: the request, and a way to run the handler and catch its answer. @internal */
final readonly class Exchange
{
    /** As it was sent, with the query string. */
    public string $target;
    /** @var array<string, list<string|null>> by names in lower case */
    private array $headers;

    /**
     * @param object $request the argument of the options' functions
     * @param array<string, list<string|null>> $headers
     * @param string $raw the target as the server got it, where PHP has it: frameworks normalize escapes
     * @param \Closure(int): string $read a piece of the body as it was sent; the empty string at its end
     * @param \Closure(): (list<string|null>|null) $form the parts of a form of which PHP leaves no body
     * @param \Closure(string, TransactionalClaim|LeasedClaim): Answer $run runs the handler, each time anew
     * @param (\Closure(\Throwable): ?Answer)|null $raised the framework's answer to an exception of the handler
     */
    public function __construct(
        public object $request,
        public string $method,
        array $headers,
        string $raw,
        string $target,
        public string $defaultScope,
        public \Closure $read,
        public \Closure $form,
        public \Closure $run,
        public ?\Closure $raised = null,
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
}
