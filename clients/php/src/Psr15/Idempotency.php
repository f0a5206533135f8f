<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Psr15;

use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Fields;
use Idempotency\Postgres\Kind;
use Idempotency\Postgres\Options;
use Idempotency\Postgres\Route;
use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Server\MiddlewareInterface;

/** The options that all routes of a service share, and two ways to protect a route. */
final readonly class Idempotency
{
    /** @param array<string, mixed> $common options of all routes; `principal` gets the PSR-7 request */
    public function __construct(
        private Connection $database,
        private ResponseFactoryInterface $responses,
        private StreamFactoryInterface $streams,
        private array $common,
    ) {
        Options::of($common); // throws where one is wrong
    }

    public function transactional(mixed ...$options): MiddlewareInterface
    {
        return $this->route(Kind::Transactional, $options);
    }

    public function leased(mixed ...$options): MiddlewareInterface
    {
        return $this->route(Kind::Leased, $options);
    }

    /** @param array<string, mixed> $options */
    private function route(Kind $kind, array $options): MiddlewareInterface
    {
        $all = Options::of($this->common, $options);
        $route = fn (Exchange $exchange): Route => new Route($this->database, $kind, $all, $exchange);
        return new Middleware($route, $this->responses, $this->streams);
    }

    /** A `principal`: the token of `Authorization: Bearer TOKEN`, for services whose tokens are checked before. */
    public static function bearer(ServerRequestInterface $request): ?string
    {
        return Fields::bearer($request->getHeader('Authorization'));
    }
}
