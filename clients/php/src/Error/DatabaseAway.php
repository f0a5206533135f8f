<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** The database could not be reached, or did not answer in time. */
class DatabaseAway extends \RuntimeException
{
}
