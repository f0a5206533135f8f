<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** Another request has the claim now, or may have it: later work is not recorded. */
final class LeaseLost extends \RuntimeException
{
}
