<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

/** An error of a statement by ext-pgsql. Without a SQLSTATE the connection is lost. */
final class SqlError extends \RuntimeException
{
    public function __construct(string $message, public readonly ?string $sqlState)
    {
        parent::__construct($message);
    }
}
