<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** COMMIT has no answer, and there is no record that tells its result: a repetition might do the work twice. */
final class InDoubt extends DatabaseAway
{
}
