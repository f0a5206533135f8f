<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Psr15;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** @internal */
final readonly class Middleware implements MiddlewareInterface
{
    /** @param \Closure(ServerExchange): \Idempotency\Postgres\Route $route */
    public function __construct(
        private \Closure $route,
        private ResponseFactoryInterface $responses,
        private StreamFactoryInterface $streams,
    ) {}

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $answer = ($this->route)(new ServerExchange($request, $handler, $this->streams))->answer();
        $body = $this->streams->createStream($answer->body);
        $response = $this->responses->createResponse($answer->status)->withBody($body);
        foreach ($answer->headers as [$name, $value]) {
            $response = $response->withAddedHeader($name, $value);
        }
        return $response;
    }
}
