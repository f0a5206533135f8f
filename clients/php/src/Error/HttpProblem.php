<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Error;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Contract;
use Idempotency\Postgres\Problems;

/** A refusal that does not concern keys. */
final class HttpProblem extends \RuntimeException
{
    public function __construct(public readonly string $word, private readonly string $detail = '')
    {
        parent::__construct($detail ?: Contract::PROBLEMS[$word][1]);
    }

    public function answer(): Answer
    {
        $detail = $this->detail === '' ? [] : ['detail' => $this->detail];
        return Problems::documentAnswer(Problems::local($this->word) + $detail);
    }
}
