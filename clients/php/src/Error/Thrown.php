<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** Tells exceptions of the work from those of our own statements. @internal */
final class Thrown extends \RuntimeException
{
    public function __construct(public readonly \Throwable $cause, public readonly bool $mayRunAgain)
    {
        parent::__construct($cause->getMessage(), 0, $cause);
    }
}
