<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** A framework's part: the request, and a way to run the handler and catch its answer. @internal */
interface Exchange
{
    /** The argument of the options' functions. */
    public function request(): object;

    public function method(): string;

    /** As it was sent, with the query string. */
    public function target(): string;

    /** @return list<string> */
    public function values(string $header): array;

    public function defaultScope(): string;

    /** A piece of the body as it was sent; the empty string at its end. */
    public function read(int $size): string;

    /** @return list<string|null>|null the parts of a form of which PHP leaves no body */
    public function form(): ?array;

    /** Runs the handler, each time anew. */
    public function run(string $body, TransactionalClaim|LeasedClaim $claim): Answer;
}
