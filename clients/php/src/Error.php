<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Contract;

/** The database could not be reached, or did not answer in time. */
class DatabaseAway extends \RuntimeException {}

/** The database did not answer within the whole time. */
final class DatabaseLate extends DatabaseAway {}

/** An error of a statement by ext-pgsql. Without a SQLSTATE the connection is lost. */
final class SqlError extends \RuntimeException
{
    public function __construct(string $message, public readonly ?string $sqlState)
    {
        parent::__construct($message);
    }
}

/** An answer that cannot be kept. */
final class AnswerTooLarge extends \RuntimeException {}

/** The work has not ended within `handlerTimeout`. */
final class HandlerLate extends \RuntimeException {}

/** Another request has the claim now, or may have it: later work is not recorded. */
final class LeaseLost extends \RuntimeException {}

/** Thrown by the work of a leased claim: nothing has happened, so the next request may try again. */
final class NothingHappened extends \RuntimeException {}

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

/** A refusal that does not concern keys. */
final class HttpProblem extends \RuntimeException
{
    public function __construct(public readonly string $word, public readonly string $detail = '')
    {
        parent::__construct($detail ?: Contract::PROBLEMS[$word][1]);
    }
}

/** Tells exceptions of the work from those of our own statements. @internal */
final class Thrown extends \RuntimeException
{
    public function __construct(public readonly \Throwable $cause, public readonly bool $mayRunAgain)
    {
        parent::__construct($cause->getMessage(), 0, $cause);
    }
}
