<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

use Idempotency\Postgres\Database\Database;
use Idempotency\Postgres\Error\AnswerTooLarge;
use Idempotency\Postgres\Error\DatabaseAway;
use Idempotency\Postgres\Error\HandlerLate;
use Idempotency\Postgres\Error\HttpProblem;

/** One route's protection; `handle` takes a request and returns the answer. @internal */
final class Route
{
    private readonly Problems $problems;

    public function __construct(private readonly Database $database, private readonly Kind $kind, private readonly Options $options)
    {
        $this->problems = new Problems($database, $options);
    }

    public function handle(Exchange $exchange): Answer
    {
        $isRead = false;
        try {
            $scope = $this->options->scope ?? $exchange->defaultScope();
            $principal = (string) ($this->options->principal)($exchange->request());
            if ($principal === '') {
                throw new HttpProblem('unauthorized');
            }
            $sent = $exchange->values($this->options->keyHeader);
            $key = count($sent) === 1 ? Key::parse($sent[0]) : null;
            if ($key === null && ($sent !== [] || $this->mode($exchange) === MissingKey::Refuse)) {
                return $this->refusal($sent === [] ? 'missing_key' : 'bad_key', $scope, null, close: true)->answer();
            }
            $body = $this->body($exchange);
            $isRead = true;
            return Unfinished::watch(fn (): Reply => $this->withBody($exchange, $body, $scope, $principal, $key))->answer();
        } catch (HttpProblem $problem) {
            return (new Reply($problem->answer(), close: !$isRead))->answer();
        } catch (HandlerLate) {
            return (new Reply((new HttpProblem('handler_late'))->answer()))->answer();
        }
    }

    private function mode(Exchange $exchange): MissingKey
    {
        return $this->concerns($exchange) ? $this->options->missingKey : MissingKey::Pass;
    }

    private function concerns(Exchange $exchange): bool
    {
        return in_array($exchange->method(), $this->options->methods, true);
    }

    private function body(Exchange $exchange): string
    {
        $limit = $this->options->maxRequestBytes;
        $length = implode(', ', $exchange->values('Content-Length'));
        $reader = new BodyReader(implode(', ', $exchange->values('Content-Encoding')), $length, $limit);
        $taken = 0;
        // A stream may wait until it has as much as was requested.
        while (($data = $exchange->read(min(65536, max(1, $limit + 1 - $taken)))) !== '') {
            $taken += strlen($data);
            $reader->feed($data);
        }
        if (ctype_digit($length) && $taken < (int) $length && $exchange->form() === null) {
            throw new HttpProblem('bad_body', 'The body ended too early.');
        }
        return $reader->body();
    }

    private function withBody(Exchange $exchange, string $body, string $scope, string $principal, ?string $sent): Reply
    {
        $mode = $this->mode($exchange);
        $key = $sent ?? ($mode === MissingKey::Generate ? Key::generate() : null);
        $derive = $key === null && $mode === MissingKey::Derive ? $this->options->window : null;
        try {
            if ($key === null && $derive === null || !$this->concerns($exchange)) {
                $this->identity($exchange, $body); // a body that is not what it says is refused here as well
                return $this->unprotected($exchange, $body, $scope, $principal, $key);
            }
            [$json, $fingerprint] = $this->identity($exchange, $body);
            return $this->claimed($exchange, $body, new Request(
                $key,
                $scope,
                $principal,
                $json,
                $fingerprint,
                $exchange->method(),
                $exchange->target(),
                $this->options->exclude,
                $derive ?? $this->options->ttl,
                $this->options->wait,
                derive: $derive,
            ), $sent === null);
        } catch (DatabaseAway) {
            return $this->refusal('unavailable', $scope, $key, 1, isOurs: $sent === null);
        }
    }

    /** @return array{string|null, string|null} the JSON, or the digest; many libraries send the type without a body */
    private function identity(Exchange $exchange, string $body): array
    {
        $isJson = Identity::isJson(Identity::mediaType($this->contentType($exchange)));
        $json = $body !== '' && $isJson ? Identity::text($body) : null;
        if ($this->options->fingerprint !== null) {
            return [$json, hash('sha256', ($this->options->fingerprint)($exchange->request(), $body), true)];
        }
        return [$json, $json === null ? $this->digest($exchange, $body) : null];
    }

    private function contentType(Exchange $exchange): string
    {
        return implode(', ', $exchange->values('Content-Type'));
    }

    private function digest(Exchange $exchange, string $body): string
    {
        $form = $body === '' ? $exchange->form() : null;
        return Identity::digest($exchange->method(), $exchange->target(), $this->contentType($exchange), $body, $form);
    }

    private function claimed(Exchange $exchange, string $body, Request $request, bool $isOurs): Reply
    {
        $executed = null; // from then on, an error is not about the request's JSON
        $onClaim = function (Record $record) use (&$executed, $request): void {
            $executed = $record;
            $this->tell('onExecute', $request->scope, $record->key, $record, 'execute');
        };
        $flow = $this->kind === Kind::Leased ? leased(...) : transactionally(...);
        $work = fn (TransactionalClaim|LeasedClaim $claim): Answer => $this->answer($exchange, $body, $claim);
        try {
            $result = $flow($this->database, $request, $work, $this->settings($request, $onClaim));
        } catch (\Throwable $error) {
            if ($executed !== null) {
                throw $error;
            }
            if ($request->json !== null && Failure::isRefusedByJsonb($error)) {
                $digest = $request->fingerprint ?? $this->digest($exchange, $body);
                return $this->claimed($exchange, $body, $request->asDigest($digest), $isOurs);
            }
            if ($this->options->unprotectedWithoutDatabase && $error instanceof DatabaseAway) {
                return $this->unprotected($exchange, $body, $request->scope, $request->principal, $request->key, true);
            }
            throw self::ofBegin($error);
        }
        $key = ($result->record ?? $executed)?->key ?? $request->key;
        return $this->replyTo($result, $request, $key, $this->keyFields($key, $isOurs));
    }

    /** @param list<array{string, string}> $keyFields */
    private function replyTo(Result $result, Request $request, ?string $key, array $keyFields): Reply
    {
        if ($result->outcome === Result::EXECUTED || $result->outcome === Result::NOT_KEPT) {
            return new Reply($result->answer, $keyFields);
        }
        if ($result->outcome === Result::REPLAY || $result->outcome === Result::FAILED) {
            $this->tell('onReplay', $request->scope, $key, $result->record, 'replay');
            $answer = $result->answer ?? $this->problems->answer('failed');
            return new Reply($answer, [[$this->options->replayHeader, 'true'], ...$keyFields]);
        }
        $this->tell('onRefusal', $request->scope, $key, $result->record, $result->outcome);
        return new Reply($this->problems->answer($result->outcome, $result->record?->retryAfter), $keyFields);
    }

    private function settings(?Request $request = null, ?\Closure $onClaim = null): Settings
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
            $onClaim,
            fn (Record $record) => $this->tell('onLeaseLost', (string) $request?->scope, $record->key, $record, 'lease_lost'),
        );
    }

    private function unprotected(Exchange $exchange, string $body, string $scope, string $principal, ?string $key, bool $isAway = false): Reply
    {
        $work = fn (TransactionalClaim|LeasedClaim $claim): Answer => $this->answer($exchange, $body, $claim);
        $answer = match (true) {
            $this->kind === Kind::Leased => $work(new LeasedClaim($key, $scope, $principal)),
            $isAway => $work(new TransactionalClaim(null, $key, $scope, $principal, protected: false)),
            default => (new Transactions($this->database, $this->settings()))->unclaimed($key, $scope, $principal, $work),
        };
        return new Reply($answer, $this->keyFields($key, false));
    }

    private function answer(Exchange $exchange, string $body, TransactionalClaim|LeasedClaim $claim): Answer
    {
        $answer = $exchange->run($body, $claim);
        if (strlen($answer->body) <= $this->options->maxAnswerBytes) {
            return $answer;
        }
        if (!$this->options->omitLargeAnswers) {
            throw new AnswerTooLarge("the answer has more than {$this->options->maxAnswerBytes} bytes");
        }
        return new Answer($answer->status, [['Idempotent-Body', 'omitted']], '', $answer->raised, $answer);
    }

    private function refusal(string $word, string $scope, ?string $key, ?float $retryAfter = null, bool $close = false, bool $isOurs = false): Reply
    {
        $this->tell('onRefusal', $scope, $key, null, $word);
        return new Reply($this->problems->answer($word, $retryAfter), $this->keyFields($key, $isOurs), $close);
    }

    /** @return list<array{string, string}> */
    private function keyFields(?string $key, bool $isOurs): array
    {
        return $key !== null && ($isOurs || $this->options->echoKey) ? [[$this->options->keyHeader, Key::quote($key)]] : [];
    }

    /** A hook's exception does not affect the request. */
    private function tell(string $hook, string $scope, ?string $key, ?Record $record, string $outcome): void
    {
        try {
            $this->options->$hook?->__invoke(new Event($scope, $key, $record?->attempt, $outcome));
        } catch (\Throwable $error) {
            error_log("idempotency: the hook $hook has failed: {$error->getMessage()}");
        }
    }

    /** The errors of idem_begin about a body that claims to be JSON. */
    private static function ofBegin(\Throwable $error): \Throwable
    {
        return match (Failure::sqlState($error)) {
            '54000', '54001' => new HttpProblem('body_too_large', 'The body is too large, or nested too deeply.'),
            '22P02', '22021', '22032', '22030' => new HttpProblem('bad_json'),
            default => $error,
        };
    }
}
