<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

use Idempotency\Postgres\Answer;

/** Thrown by work: it is rolled back, and the answer is that of the request, stored and replayed as any other. */
final class Rejection extends \RuntimeException
{
    public readonly Answer $answer;

    /** @param list<array{string, string}> $headers */
    public function __construct(int $status, string $body = '', array $headers = [])
    {
        parent::__construct("status $status");
        $this->answer = new Answer($status, $headers, $body, raised: true);
    }
}
