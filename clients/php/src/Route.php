<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** One request on its way through a protected route. @internal */
final class Route
{
    private readonly bool $isConcerned;
    private readonly string $missingKey;
    private string $scope = '';
    private string $principal = '';
    private ?string $key = null;
    private bool $isOurs = false;
    private string $body = '';
    private bool $isRead = false;
    private bool $hasBegun = false;
    private readonly Problems $problems;

    public function __construct(
        private readonly Database\Connection $database,
        private readonly Kind $kind,
        private readonly Options $options,
        private readonly Exchange $exchange,
    ) {
        $this->problems = new Problems($database, $options);
        $this->isConcerned = in_array(strtoupper($exchange->method), $options->methods, true);
        $this->missingKey = $this->isConcerned ? $options->missingKey : 'pass';
    }

    public function answer(): Answer
    {
        try {
            return $this->keyed();
        } catch (Error\HttpProblem $problem) {
            return $problem->answer()->sent($this->closing());
        } catch (Error\HandlerLate) {
            return (new Error\HttpProblem('handler_late'))->answer()->sent([]);
        }
    }

    private function keyed(): Answer
    {
        $this->scope = $this->options->scope ?? $this->exchange->defaultScope;
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
        if ($this->key === null && ($sent !== [] || $this->missingKey === 'refuse')) {
            return $this->refusal($sent === [] ? 'missing_key' : 'bad_key');
        }
        $this->body = Body::read($this->exchange, $this->options->maxRequestBytes);
        $this->isRead = true;
        return Unfinished::watch($this->withBody(...));
    }

    private function withBody(): Answer
    {
        $this->isOurs = $this->key === null;
        $this->key ??= $this->missingKey === 'generate' ? Key::generate() : null;
        $derive = $this->key === null && $this->missingKey === 'derive' ? $this->options->window : null;
        try {
            $identity = $this->identity(); // a body that is not what it says is refused in any case
            if (!$this->isConcerned || $this->key === null && $derive === null) {
                return $this->unprotected();
            }
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
        } catch (Error\DatabaseAway $error) {
            $this->log('the database is away', $error);
            return $this->refusal('unavailable', 1);
        }
    }

    /** @return array{string|null, string|null} the JSON, or the digest; many libraries send the type without a body */
    private function identity(): array
    {
        $isJson = $this->body !== '' && Identity::isJson($this->exchange->field('Content-Type'));
        $json = $isJson ? Identity::text($this->body) : null;
        if ($this->options->fingerprint !== null) {
            return [$json, hash('sha256', ($this->options->fingerprint)($this->exchange->request, $this->body), true)];
        }
        return [$json, $isJson ? null : $this->digest()];
    }

    private function digest(): string
    {
        $own = $this->exchange;
        $form = $this->body === '' ? ($own->form)() : null;
        return Identity::digest($own->method, $own->target, $own->field('Content-Type'), $this->body, $form);
    }

    private function claimed(Request $request): Answer
    {
        $flow = $this->kind === Kind::Leased ? leased(...) : transactionally(...);
        try {
            $result = $flow($this->database, $request, $this->work(...), $this->settings());
        } catch (\Throwable $error) {
            return $this->hasBegun ? throw $error : $this->notClaimed($request, $error);
        }
        $this->key = $result->record?->key ?? $this->key;
        return $this->answerTo($result);
    }

    /** The errors of idem_begin. */
    private function notClaimed(Request $request, \Throwable $error): Answer
    {
        $state = Failure::sqlState($error);
        // JSON that jsonb cannot hold: an escaped NUL, a number beyond numeric.
        if ($request->json !== null && in_array($state, ['22P05', '22003'], true)) {
            return $this->claimed($request->asDigest($request->fingerprint ?? $this->digest()));
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

    private function answerTo(Result $result): Answer
    {
        if ($result->outcome === Result::EXECUTED || $result->outcome === Result::NOT_KEPT) {
            return $result->answer->sent($this->keyFields());
        }
        if ($result->outcome === Result::REPLAY || $result->outcome === Result::FAILED) {
            $this->tell('onReplay', 'replay', $result->record);
            $answer = $result->answer ?? $this->problems->answer('failed');
            return $answer->sent([[$this->options->replayHeader, 'true'], ...$this->keyFields()]);
        }
        return $this->refusal($result->outcome, $result->record?->retryAfter, $result->record);
    }

    private function settings(): Settings
    {
        $names = ['attempts', 'databaseTimeout', 'keep', 'verdict', 'handlerTimeout', 'lease'];
        return new Settings(
            ...$this->options->only($names),
            dropHeaders: [$this->options->keyHeader, $this->options->replayHeader],
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

    private function unprotected(bool $isAway = false): Answer
    {
        $this->isOurs = false;
        $names = [$this->key, $this->scope, $this->principal];
        $transactions = new Transactions($this->database, $this->settings());
        $answer = $this->settings()->answerOf(fn (): Answer => match (true) {
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
        return $this->problems->answer($word, $retryAfter)->sent([...$this->keyFields(), ...$this->closing()]);
    }

    /** @return list<array{string, string}> */
    private function keyFields(): array
    {
        $isNamed = $this->key !== null && ($this->isOurs || $this->options->echoKey);
        return $isNamed ? [[$this->options->keyHeader, Key::quote($this->key)]] : [];
    }

    /** @return list<array{string, string}> the connection cannot be reused if the body was not read */
    private function closing(): array
    {
        return $this->isRead ? [] : [['Connection', 'close']];
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
        $why = $error->getMessage();
        for ($cause = $error->getPrevious(); $cause !== null; $cause = $cause->getPrevious()) {
            $why .= ": {$cause->getMessage()}";
        }
        $text = "idempotency: $what: $why";
        $logger = $this->options->logger;
        $logger === null ? error_log($text) : $logger->error($text, ['exception' => $error]);
    }
}
