<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The kind of a route: work in the claim's transaction, or elsewhere, in steps. */
enum Kind: string
{
    case Transactional = 'transactional';
    case Leased = 'leased';
}
