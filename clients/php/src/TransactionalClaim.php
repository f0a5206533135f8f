<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The work's view of a claim in its transaction. */
final readonly class TransactionalClaim
{
    /**
     * @param object|null $connection of the transaction that holds the claim: PDO, PgSql\Connection or Doctrine's
     * @param bool $protected false if it runs without a claim, by the route's options
     */
    public function __construct(
        public ?object $connection,
        public ?string $key,
        public string $scope,
        public string $principal,
        public int $attempt = 1,
        public bool $protected = true,
    ) {}
}
