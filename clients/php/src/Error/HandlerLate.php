<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** The work has not ended within `handlerTimeout`. */
final class HandlerLate extends \RuntimeException
{
}
