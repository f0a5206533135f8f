<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** The database did not answer within the whole time. */
final class DatabaseLate extends DatabaseAway
{
}
