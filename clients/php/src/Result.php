<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The result of a request. */
final readonly class Result
{
    public const EXECUTED = 'executed';
    public const REPLAY = 'replay';
    /** The answer is sent, and not stored. */
    public const NOT_KEPT = 'not_kept';
    /** The record has failed without an answer. */
    public const FAILED = 'failed';

    /** @param string $outcome one of these, or why the request was refused: `in_progress`, `mismatch`, ... */
    public function __construct(public string $outcome, public ?Answer $answer = null, public ?Record $record = null) {}

    /** Of a request that is not executed. */
    public static function ofRecord(Record $record): self
    {
        $hasFailed = $record->outcome === self::REPLAY && $record->answer === null;
        return new self($hasFailed ? self::FAILED : $record->outcome, $record->answer, $record);
    }
}
