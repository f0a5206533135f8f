<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** One request on its way through a protected route. @internal */
final class Route
{
    private readonly bool $isConcerned;
    private readonly MissingKey $mode;
    private string $scope = '';
    private string $principal = '';
    private ?string $key = null;
    private bool $isOurs = false;
    private string $body = '';
    private bool $isRead = false;
    private bool $hasBegun = false;

    public function __construct(
        private readonly Database\Connection $database,
        private readonly Kind $kind,
        private readonly Options $options,
        private readonly Problems $problems,
        private readonly Exchange $exchange,
    ) {
        $this->isConcerned = in_array($exchange->method, $options->methods, true);
        $this->mode = $this->isConcerned ? $options->missingKey : MissingKey::Pass;
    }

    public function answer(): Answer
    {
        try {
            return $this->reply()->answer();
        } catch (Error\HttpProblem $problem) {
            return (new Reply($problem->answer(), close: !$this->isRead))->answer();
        } catch (Error\HandlerLate) {
            return (new Reply((new Error\HttpProblem('handler_late'))->answer()))->answer();
        }
    }

    private function reply(): Reply
    {
        $this->scope = $this->options->scope ?? $this->exchange->defaultScope;
        $this->principal = (string) ($this->options->principal)($this->exchange->request);
        if ($this->principal === '') {
            throw new Error\HttpProblem('unauthorized');
        }
        $sent = $this->exchange->values($this->options->keyHeader);
        $this->key = count($sent) === 1 ? Key::parse($sent[0]) : null;
        if ($this->key === null && ($sent !== [] || $this->mode === MissingKey::Refuse)) {
            return $this->refusal($sent === [] ? 'missing_key' : 'bad_key');
        }
        $this->body = $this->body();
        $this->isRead = true;
        return Unfinished::watch($this->withBody(...));
    }

    private function body(): string
    {
        $limit = $this->options->maxRequestBytes;
        $length = $this->field('Content-Length');
        $reader = new BodyReader($this->field('Content-Encoding'), $length, $limit);
        $taken = 0;
        // A stream may wait until it has as much as was requested.
        while (($data = $this->exchange->read(min(65536, max(1, $limit + 1 - $taken)))) !== '') {
            $taken += strlen($data);
            $reader->feed($data);
        }
        if (ctype_digit($length) && $taken < (int) $length && $this->exchange->form() === null) {
            throw new Error\HttpProblem('bad_body', 'The body ended too early.');
        }
        return $reader->body();
    }

    private function field(string $name): string
    {
        return implode(', ', $this->exchange->values($name));
    }

    private function withBody(): Reply
    {
        $this->isOurs = $this->key === null;
        $this->key ??= $this->mode === MissingKey::Generate ? Key::generate() : null;
        $derive = $this->key === null && $this->mode === MissingKey::Derive ? $this->options->window : null;
        try {
            [$json, $fingerprint] = $this->identity(); // a body that is not what it says is refused in any case
            return !$this->isConcerned || $this->key === null && $derive === null ? $this->unprotected() : $this->claimed(new Request(
                $this->key,
                $this->scope,
                $this->principal,
                $json,
                $fingerprint,
                $this->exchange->method,
                $this->exchange->target,
                $this->options->exclude,
                $derive ?? $this->options->ttl,
                $this->options->wait,
                derive: $derive,
            ));
        } catch (Error\DatabaseAway) {
            return $this->refusal('unavailable', 1);
        }
    }

    /** @return array{string|null, string|null} the JSON, or the digest; many libraries send the type without a body */
    private function identity(): array
    {
        $isJson = $this->body !== '' && Identity::isJson(Identity::mediaType($this->field('Content-Type')));
        $json = $isJson ? Identity::text($this->body) : null;
        if ($this->options->fingerprint !== null) {
            return [$json, hash('sha256', ($this->options->fingerprint)($this->exchange->request, $this->body), true)];
        }
        return [$json, $isJson ? null : $this->digest()];
    }

    private function digest(): string
    {
        $form = $this->body === '' ? $this->exchange->form() : null;
        return Identity::digest($this->exchange->method, $this->exchange->target, $this->field('Content-Type'), $this->body, $form);
    }

    private function claimed(Request $request): Reply
    {
        $flow = $this->kind === Kind::Leased ? leased(...) : transactionally(...);
        try {
            $result = $flow($this->database, $request, $this->work(...), $this->settings());
        } catch (\Throwable $error) {
            return $this->hasBegun ? throw $error : $this->notClaimed($request, $error);
        }
        $this->key = $result->record?->key ?? $this->key;
        return $this->replyTo($result);
    }

    /** The errors of idem_begin. */
    private function notClaimed(Request $request, \Throwable $error): Reply
    {
        if ($request->json !== null && in_array(Failure::sqlState($error), ['22P05', '22003'], true)) {
            return $this->claimed($request->asDigest($request->fingerprint ?? $this->digest()));
        }
        if ($this->options->unprotectedWithoutDatabase && $error instanceof Error\DatabaseAway) {
            return $this->unprotected(true);
        }
        throw match (Failure::sqlState($error)) {
            '54000', '54001' => new Error\HttpProblem('body_too_large', 'The body is too large, or nested too deeply.'),
            '22P02', '22021', '22032', '22030' => new Error\HttpProblem('bad_json'),
            default => $error,
        };
    }

    private function replyTo(Result $result): Reply
    {
        if ($result->outcome === Result::EXECUTED || $result->outcome === Result::NOT_KEPT) {
            return new Reply($result->answer, $this->keyFields());
        }
        if ($result->outcome === Result::REPLAY || $result->outcome === Result::FAILED) {
            $this->tell('onReplay', 'replay', $result->record);
            $answer = $result->answer ?? $this->problems->answer('failed');
            return new Reply($answer, [[$this->options->replayHeader, 'true'], ...$this->keyFields()]);
        }
        return $this->refusal($result->outcome, $result->record?->retryAfter, $result->record);
    }

    private function settings(): Settings
    {
        $options = $this->options;
        return new Settings(
            $options->attempts,
            $options->databaseTimeout,
            $options->keep,
            $options->verdict,
            $options->handlerTimeout,
            $options->lease,
            [$options->keyHeader, $options->replayHeader],
            function (Record $record): void {
                $this->hasBegun = true; // from now on, an error is not about the request's JSON
                $this->key = $record->key;
                $this->tell('onExecute', 'execute', $record);
            },
            fn (Record $record) => $this->tell('onLeaseLost', 'lease_lost', $record),
        );
    }

    private function unprotected(bool $isAway = false): Reply
    {
        $this->isOurs = false;
        $names = [$this->key, $this->scope, $this->principal];
        try {
            $answer = match (true) {
                $this->kind === Kind::Leased => $this->work(new LeasedClaim(...$names)),
                $isAway => $this->work(new TransactionalClaim(null, ...$names, protected: false)),
                default => (new Transactions($this->database, $this->settings()))->unclaimed($this->work(...), ...$names),
            };
        } catch (Error\Rejection $rejection) {
            $answer = $rejection->answer;
        }
        return new Reply($answer, $this->keyFields());
    }

    private function work(TransactionalClaim|LeasedClaim $claim): Answer
    {
        $answer = $this->exchange->run($this->body, $claim);
        if (strlen($answer->body) <= $this->options->maxAnswerBytes) {
            return $answer;
        }
        if (!$this->options->omitLargeAnswers) {
            throw new Error\AnswerTooLarge("the answer has more than {$this->options->maxAnswerBytes} bytes");
        }
        return new Answer($answer->status, [['Idempotent-Body', 'omitted']], '', $answer->raised, $answer);
    }

    private function refusal(string $word, ?float $retryAfter = null, ?Record $record = null): Reply
    {
        $this->tell('onRefusal', $word, $record);
        return new Reply($this->problems->answer($word, $retryAfter), $this->keyFields(), !$this->isRead);
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
            error_log("idempotency: the hook $hook has failed: {$error->getMessage()}");
        }
    }
}
