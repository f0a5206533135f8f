<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Symfony;

use Idempotency\Postgres\Kind;

/** Protects a controller: `#[Idempotent]`, `#[Idempotent(Kind::Leased, lease: 60)]`. `$claim` gets the claim. */
#[\Attribute(\Attribute::TARGET_METHOD | \Attribute::TARGET_CLASS | \Attribute::TARGET_FUNCTION)]
final readonly class Idempotent
{
    /** @var array<string, mixed> */
    public array $options;

    public function __construct(public Kind $kind = Kind::Transactional, mixed ...$options)
    {
        $this->options = $options;
    }
}
