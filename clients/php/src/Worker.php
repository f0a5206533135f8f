<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/**
 * Executes the records of a scope that are due, and that no client sends again: webhooks, jobs, abandoned work.
 *
 * The handler gets a Work. The Answer that it returns is stored with the record; any other value completes the record
 * without one. After an exception the policy says when the record is due again.
 */
final class Worker
{
    private const LONGEST_PAUSE = 30;

    private readonly \Closure $handler;
    private readonly \Closure $onError;
    private readonly Settings $settings;
    private readonly Database\Connection $own;
    private ?LeaseHolder $held = null;
    private bool $isStopped = false;
    private bool $hasClaimed = false;
    private float $outage;

    /**
     * @param string $scope one, or the beginning of several and `*`
     * @param callable(Work): mixed $handler
     * @param int|float $poll seconds between two looks, where nothing was due
     * @param string|null $channel whose notifications end such a pause
     * @param (callable(\Throwable, ?Work): mixed)|null $onError gets errors of handlers; of the database without a Work
     */
    public function __construct(
        private readonly Database\Connection $database,
        private readonly string $scope,
        callable $handler,
        int $size = 1,
        int|float $lease = Contract::LEASE_MS / 1000,
        private readonly int|float $poll = 1,
        private readonly ?string $channel = null,
        private readonly Kind $mode = Kind::Transactional,
        private readonly ?string $holder = null,
        int|float $handlerTimeout = Contract::LEASED_HANDLER_TIMEOUT_MS / 1000,
        int|float $databaseTimeout = Contract::DATABASE_TIMEOUT_MS / 1000,
        ?callable $onError = null,
    ) {
        if ($size !== 1) { // PHP has no threads
            throw new \InvalidArgumentException('idempotency: `size` has to be 1: start more processes');
        }
        foreach (compact('lease', 'poll', 'handlerTimeout', 'databaseTimeout') as $name => $seconds) {
            $seconds > 0 ?: throw new \InvalidArgumentException("idempotency: `$name` has to be seconds above 0");
        }
        $channel !== '' ?: throw new \InvalidArgumentException('idempotency: `channel` has to be a name');
        $this->handler = $handler(...);
        $this->onError = $onError === null ? self::log(...) : $onError(...);
        $limits = compact('databaseTimeout', 'handlerTimeout', 'lease');
        $this->settings = new Settings(...$limits);
        $this->own = $database->another();
        $this->outage = $poll;
    }

    /** Returns after `stop`. Throws if the first claim shows a mistake: no right, no such function. */
    public function run(): void
    {
        while (!$this->isStopped) {
            $sent = Lease::now();
            try {
                $row = $this->claim();
            } catch (\Throwable $error) {
                if (!$this->hasClaimed && Failure::isMistake($error)) {
                    throw $error;
                }
                $this->tell($error, null);
                $this->rest($this->outage);
                $this->outage = min($this->outage * 2, max(self::LONGEST_PAUSE, $this->poll));
                continue;
            }
            $this->hasClaimed = true;
            $this->outage = $this->poll;
            $row === null ? $this->rest($this->poll) : $this->perform($row, $sent);
        }
    }

    /** No more claims: `run` returns when the handler has ended. A handler of a signal may call it. */
    public function stop(): void
    {
        $this->isStopped = true;
    }

    /** The handler is told to stop as well, by `isHeld` and `check` of its work. */
    public function abort(): void
    {
        $this->stop();
        $this->held?->lease->abort();
    }

    /** @return array<string, mixed>|null the record that is due first */
    private function claim(): ?array
    {
        $within = (float) $this->settings->databaseTimeout;
        try {
            $this->channel === null || $this->own->listen($this->channel, $within);
        } catch (\Throwable $error) {
            $this->tell($error, null);
        }
        $values = [$this->scope, '1', Request::milliseconds($this->settings->lease), $this->holder];
        return $this->own->statement(Contract::DUE, $values, $within)[0] ?? null;
    }

    /** A signal may come before a wait begins, so none is long. */
    private function rest(float $seconds): void
    {
        $end = Lease::now() + $seconds * (0.5 + mt_rand() / mt_getrandmax());
        while (!$this->isStopped && ($left = $end - Lease::now()) > 0) {
            $wait = min($left, 0.5);
            if ($this->channel === null) {
                usleep((int) ($wait * 1e6));
            } elseif ($this->own->isNotified($wait)) {
                return;
            }
        }
    }

    /** @param array<string, mixed> $row */
    private function perform(array $row, float $sent): void
    {
        $inTransaction = $this->mode === Kind::Transactional;
        $record = new Record($row, $row['scope'], $row['principal']);
        $this->held = new LeaseHolder($this->own, $this->settings, $record, $sent, $inTransaction);
        $work = null;
        $run = function (?object $connection) use ($row, &$work): Answer {
            $work = new Work($row, $this->held, $connection);
            $answer = ($this->handler)($work);
            return $answer instanceof Answer ? $answer : new Answer(null);
        };
        try {
            $this->held->settle(fn (): Answer|Result => $inTransaction ? $this->transact($run) : $run(null));
        } catch (\Throwable $error) {
            $this->tell($error, $work);
        } finally {
            $this->held = null;
        }
    }

    /** The Result where it has committed; else the answer, whose work is rolled back. */
    private function transact(callable $run): Answer|Result
    {
        $held = $this->held;
        $work = static function (object $connection) use ($run, $held): Answer {
            $answer = $run($connection);
            $held->lease->isHeld();
            return $held->lease->isLost() ? throw new Error\LeaseLost('the claim is lost') : $answer;
        };
        $result = (new Transactions($this->database, $this->settings))->workOff($held->record, $work);
        return $result->outcome === Result::EXECUTED ? $result : $result->answer;
    }

    private function tell(\Throwable $error, ?Work $work): void
    {
        try {
            ($this->onError)($error, $work);
        } catch (\Throwable $own) {
            self::log($own);
        }
    }

    private static function log(\Throwable $error): void
    {
        error_log("idempotency: a worker: $error");
    }
}
