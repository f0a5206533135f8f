<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** What becomes of a request without a key. */
enum MissingKey: string
{
    case Refuse = 'refuse';
    case Pass = 'pass';
    case Generate = 'generate';
    case Derive = 'derive';
}
