<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Caller;

use Psr\Http\Message\ResponseInterface;

/** The answer is not known yet. A later call with the same key goes on; another key could do the work twice. */
final class NotFinal extends \RuntimeException
{
    public function __construct(
        public readonly string $key,
        public readonly ?ResponseInterface $response,
        ?\Throwable $previous,
    ) {
        parent::__construct("no final answer under the key $key", 0, $previous);
    }
}
