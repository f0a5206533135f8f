<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** One request on its way through a protected route. @internal */
final class Route
{
    /** @var array<string, array<string, mixed>> the server's problem documents, each requested once */
    private static array $documents = [];
    /** How many handlers run in this process; null before the first. */
    private static ?int $running = null;

    private readonly Settings $settings;
    private readonly bool $isConcerned;
    private readonly string $scope;
    private string $principal = '';
    private ?string $key = null;
    private bool $isOurs = false;
    /** Null until it is read. */
    private ?string $body = null;
    private bool $hasBegun = false;

    public function __construct(
        private readonly Database\Connection $database,
        private readonly Kind $kind,
        private readonly Options $options,
        private readonly Exchange $exchange,
    ) {
        $this->isConcerned = in_array(strtoupper($exchange->method), $options->methods, true);
        $this->scope = $options->scope ?? "$exchange->method $exchange->route";
        $this->settings = new Settings(
            ...$options->only(['attempts', 'databaseTimeout', 'keep', 'verdict', 'handlerTimeout', 'lease']),
            dropHeaders: [$options->keyHeader, $options->replayHeader],
            onClaim: function (Record $record): void {
                $this->hasBegun = true; // from now on, an error is not about the request's JSON
                $this->key = $record->key;
                $this->tell('onExecute', 'execute', $record);
            },
            onLeaseLost: fn (Record $record) => $this->tell('onLeaseLost', 'lease_lost', $record),
            raised: function (\Throwable $error): ?Answer {
                $answer = $this->exchange->raised?->__invoke($error);
                return $answer === null ? null : $this->limited($answer);
            },
        );
    }

    public function answer(): Answer
    {
        try {
            return $this->keyed();
        } catch (Error\HttpProblem $problem) {
            return $this->problem($problem->word, detail: $problem->detail)->sent([]);
        } catch (Error\HandlerLate) {
            return $this->problem('handler_late', detail: '')->sent([]);
        }
    }

    private function keyed(): Answer
    {
        $principal = ($this->options->principal)($this->exchange->request);
        if (in_array($principal, [null, false, ''], true)) {
            throw new Error\HttpProblem('unauthorized');
        }
        if (!is_string($principal) && !is_int($principal)) {
            $type = get_debug_type($principal);
            throw new \UnexpectedValueException(
                "idempotency: `principal` has to return a string, an integer or nothing, not $type",
            );
        }
        $this->principal = (string) $principal;
        $sent = $this->exchange->values($this->options->keyHeader);
        $this->key = count($sent) === 1 ? Key::parse($sent[0]) : null;
        $isNeeded = $this->isConcerned && $this->options->missingKey === 'refuse';
        if ($this->key === null && ($sent !== [] || $isNeeded)) {
            return $this->refusal($sent === [] ? 'missing_key' : 'bad_key');
        }
        $this->body = $this->exchange->body($this->options->maxRequestBytes);
        if (self::$running === null) {
            register_shutdown_function(self::atShutdown(...));
        }
        self::$running++;
        try {
            return $this->withBody();
        } catch (Error\DatabaseAway $error) {
            $this->log('the database is away', $error);
            return $this->refusal('unavailable', 1);
        } finally {
            self::$running--;
        }
    }

    /** A handler that ends the script (exit, fatal error, memory limit) commits nothing: 500, if PHP can say so. */
    private static function atShutdown(): void
    {
        if (self::$running > 0 && !headers_sent()) {
            while (ob_get_level() > 0 && @ob_end_clean());
            header_remove();
            http_response_code(500);
        }
    }

    private function withBody(): Answer
    {
        // A body that is not what it says is refused in any case.
        $identity = $this->exchange->identity($this->body, $this->options->fingerprint);
        $this->isOurs = $this->key === null;
        $way = $this->isOurs ? $this->options->missingKey : '';
        if (!$this->isConcerned || $way === 'pass') {
            return $this->unprotected();
        }
        $this->key ??= $way === 'generate' ? Key::generate() : null;
        $derive = $way === 'derive' ? $this->options->window : null;
        return $this->claimed(new Request(
            $this->key,
            $this->scope,
            $this->principal,
            ...$identity,
            method: $this->exchange->method,
            target: $this->exchange->target,
            exclude: $this->options->exclude,
            ttl: $derive ?? $this->options->ttl,
            wait: $this->options->wait,
            derive: $derive,
        ));
    }

    private function claimed(Request $request): Answer
    {
        $flow = $this->kind === Kind::Leased ? leased(...) : transactionally(...);
        try {
            $result = $flow($this->database, $request, $this->work(...), $this->settings);
        } catch (\Throwable $error) {
            return $this->hasBegun ? throw $error : $this->notClaimed($request, $error);
        }
        $record = $result->record;
        $this->key = $record?->key ?? $this->key;
        if (in_array($result->outcome, [Result::EXECUTED, Result::NOT_KEPT], true)) {
            return $result->answer->sent($this->keyFields());
        }
        if (in_array($result->outcome, [Result::REPLAY, Result::FAILED], true)) {
            $this->tell('onReplay', 'replay', $record);
            $answer = $result->answer ?? $this->problem('failed');
            return $answer->sent([[$this->options->replayHeader, 'true'], ...$this->keyFields()]);
        }
        return $this->refusal($result->outcome, $record?->retryAfter, $record);
    }

    /** The errors of idem_begin. */
    private function notClaimed(Request $request, \Throwable $error): Answer
    {
        $state = Failure::sqlState($error);
        // JSON that jsonb cannot hold: an escaped NUL, a number beyond numeric.
        if ($request->json !== null && in_array($state, ['22P05', '22003'], true)) {
            return $this->claimed($request->asDigest($request->fingerprint ?? $this->exchange->digest($this->body)));
        }
        if ($this->options->unprotectedWithoutDatabase && $error instanceof Error\DatabaseAway) {
            $this->log('the database is away, the request runs unprotected', $error);
            return $this->unprotected(true);
        }
        throw match ($state) {
            '54000', '54001' => new Error\HttpProblem('body_too_large', 'The body is too large, or nested too deeply.'),
            '22P02', '22021', '22032', '22030' => new Error\HttpProblem('bad_json'),
            default => $error,
        };
    }

    private function unprotected(bool $isAway = false): Answer
    {
        $this->isOurs = false;
        $names = [$this->key, $this->scope, $this->principal];
        $transactions = new Transactions($this->database, $this->settings);
        $answer = $this->settings->answerOf(fn (): Answer => match (true) {
            $this->kind === Kind::Leased => $this->work(new LeasedClaim(...$names)),
            $isAway => $this->work(new TransactionalClaim(null, ...$names, protected: false)),
            default => $transactions->unclaimed($this->work(...), ...$names),
        });
        return $answer->sent($this->keyFields());
    }

    private function work(TransactionalClaim|LeasedClaim $claim): Answer
    {
        return $this->limited(($this->exchange->run)($this->body, $claim));
    }

    private function limited(Answer $answer): Answer
    {
        if (strlen($answer->body) <= $this->options->maxAnswerBytes) {
            return $answer;
        }
        if (!$this->options->omitLargeAnswers) {
            throw new Error\AnswerTooLarge("the answer has more than {$this->options->maxAnswerBytes} bytes");
        }
        return new Answer($answer->status, [['Idempotent-Body', 'omitted']], '', $answer->raised, $answer);
    }

    private function refusal(string $word, ?float $retryAfter = null, ?Record $record = null): Answer
    {
        $this->tell('onRefusal', $word, $record);
        return $this->problem($word, $retryAfter)->sent($this->keyFields());
    }

    /**
     * A problem document (RFC 9457): the server's, or one of HTTP itself.
     *
     * @param string|null $detail of a problem that does not concern keys, so that the option `statuses` leaves it alone
     */
    private function problem(string $word, ?float $retryAfter = null, ?string $detail = null): Answer
    {
        [$status, $title, $isLocal] = Contract::PROBLEMS[$word];
        $type = '/problems/idempotency/' . strtr($word, '_', '-');
        if (!$isLocal && !isset(self::$documents[$word])) {
            try {
                $rows = $this->database->statement(Contract::PROBLEM, [$word], $this->settings->databaseTimeout);
                self::$documents[$word] = json_decode($rows[0]['problem'], true, 64, JSON_THROW_ON_ERROR);
            } catch (\Throwable) {
                // It says less, but the same.
            }
        }
        $document = self::$documents[$word] ?? ['type' => $type, 'title' => $title, 'status' => $status];
        $statuses = $detail === null ? $this->options->statuses : [];
        $document['status'] = $statuses[$word] ?? $document['status'];
        $document += $detail ? ['detail' => $detail] : [];
        $headers = [['Content-Type', 'application/problem+json']];
        $retryAfter ??= $word === 'in_progress' ? 1 : null;
        if ($retryAfter !== null) {
            $document['retry_after'] = max(1, (int) ceil($retryAfter));
        }
        if (isset($document['retry_after'])) {
            $headers[] = ['Retry-After', (string) $document['retry_after']];
        }
        if ($this->body === null) { // so the connection cannot be used again
            $headers[] = ['Connection', 'close'];
        }
        $body = json_encode($document, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES);
        return new Answer($document['status'], $headers, $body);
    }

    /** @return list<array{string, string}> */
    private function keyFields(): array
    {
        $isNamed = $this->key !== null && ($this->isOurs || $this->options->echoKey);
        return $isNamed ? [[$this->options->keyHeader, Key::quote($this->key)]] : [];
    }

    /** A hook's exception does not affect the request. */
    private function tell(string $hook, string $outcome, ?Record $record): void
    {
        try {
            $this->options->$hook?->__invoke(new Event($this->scope, $this->key, $record?->attempt, $outcome));
        } catch (\Throwable $error) {
            $this->log("the hook $hook has failed", $error);
        }
    }

    private function log(string $what, \Throwable $error): void
    {
        $text = "idempotency: $what";
        for ($cause = $error; $cause !== null; $cause = $cause->getPrevious()) {
            $text .= ": {$cause->getMessage()}";
        }
        $logger = $this->options->logger;
        $logger === null ? error_log($text) : $logger->error($text, ['exception' => $error]);
    }
}
