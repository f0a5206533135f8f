<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** Thrown by the work of a leased claim: nothing has happened, so the next request may try again. */
final class NothingHappened extends \RuntimeException
{
}
