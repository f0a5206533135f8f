<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** An answer that cannot be kept. */
final class AnswerTooLarge extends \RuntimeException
{
}
