<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** What becomes of an answer. */
enum Verdict: string
{
    case Keep = 'keep';
    case Free = 'free';
    case Unknown = 'unknown';
}
