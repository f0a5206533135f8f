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
    private ?Lease $held = null;
    private bool $isStopped = false;

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
        $this->settings = new Settings(...compact('databaseTimeout', 'handlerTimeout', 'lease'));
        $this->own = $database->another();
    }

    /** Returns after `stop`. Throws if the first claim shows a mistake: no right, no such function. */
    public function run(): void
    {
        $hasClaimed = false;
        $outage = $this->poll;
        while (!$this->isStopped) {
            $sent = TimeLimit::now();
            try {
                $row = $this->claim();
            } catch (\Throwable $error) {
                if (!$hasClaimed && Failure::of($error) === Failure::Mistake) {
                    throw $error;
                }
                $this->tell($error, null);
                $this->rest($outage);
                $outage = min($outage * 2, max(self::LONGEST_PAUSE, $this->poll));
                continue;
            }
            $hasClaimed = true;
            $outage = $this->poll;
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
        $this->held?->abort();
    }

    /** @return array<string, mixed>|null the record that is due first */
    private function claim(): ?array
    {
        $within = $this->settings->databaseTimeout;
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
        $end = TimeLimit::now() + $seconds * (0.5 + mt_rand() / mt_getrandmax());
        while (!$this->isStopped && ($left = $end - TimeLimit::now()) > 0) {
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
        $held = $this->held = new Lease($this->own, $this->settings, new Record($row), $sent, $inTransaction);
        $work = null;
        $run = function (?object $connection) use ($row, $held, &$work): Answer {
            $work = new Work($row, $held, $connection);
            $answer = ($this->handler)($work);
            if ($connection !== null && !$held->isHeld() && $held->isLost()) {
                throw new Error\LeaseLost('the claim is lost');
            }
            return $answer instanceof Answer ? $answer : new Answer(null);
        };
        $transactions = new Transactions($this->database, $this->settings);
        try {
            $held->settle(static fn () => $inTransaction ? $transactions->workOff($held->record, $run) : $run(null));
        } catch (\Throwable $error) {
            $this->tell($error, $work);
        } finally {
            $this->held = null;
        }
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

/** The handler's view of a record that a worker has claimed. */
final readonly class Work extends LeasedClaim
{
    public ?int $token;
    public ?string $operation;
    public ?string $method;
    public ?string $path;
    /** What the client has sent, as PHP's arrays; null unless the policy stores requests. */
    public mixed $request;
    /** Of the last attempt. */
    public ?string $error;

    /**
     * @param array<string, mixed> $row
     * @param object|null $connection of the transaction that commits with the result; none where the worker is leased
     * @internal
     */
    public function __construct(array $row, Lease $lease, public ?object $connection)
    {
        parent::__construct(...$lease->record->names(), recoveryPoint: $row['recovery_point'], lease: $lease);
        $this->token = (int) $row['token'];
        $this->operation = $row['operation'];
        $this->method = $row['method'];
        $this->path = $row['path'];
        $this->request = json_decode($row['request'] ?? 'null', true, 1024, JSON_THROW_ON_ERROR);
        $this->error = $row['error'];
    }
}
