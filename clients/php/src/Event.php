<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The argument of hooks. */
final readonly class Event
{
    /** @param string $outcome `execute`, `replay`, `lease_lost`, or why it was refused */
    public function __construct(
        public string $scope,
        public ?string $key,
        public ?int $attempt,
        public string $outcome,
    ) {}
}
