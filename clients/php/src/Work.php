<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The handler's view of a record that a worker has claimed. */
final readonly class Work extends LeasedClaim
{
    public ?int $token;
    public ?string $operation;
    public ?string $method;
    public ?string $path;
    /** What the client has sent, as PHP's arrays; null unless the policy stores requests. */
    public mixed $request;
    /** Of the last attempt. */
    public ?string $error;

    /**
     * @param array<string, mixed> $row
     * @param object|null $connection of the transaction that commits with the result; none where the worker is leased
     * @internal
     */
    public function __construct(array $row, LeaseHolder $holder, public ?object $connection)
    {
        parent::__construct(...$holder->record->names(), recoveryPoint: $row['recovery_point'], holder: $holder);
        $this->token = (int) $row['token'];
        $this->operation = $row['operation'];
        $this->method = $row['method'];
        $this->path = $row['path'];
        $this->request = json_decode($row['request'] ?? 'null', true, 1024, JSON_THROW_ON_ERROR);
        $this->error = $row['error'];
    }
}
