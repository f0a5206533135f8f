<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** The transaction that we have lost has not ended yet: the server may notice later than we do. */
final class OwnTransaction extends DatabaseAway
{
}
