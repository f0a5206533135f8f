<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Psr15;

use Idempotency\Postgres\Route;
use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** @internal */
final readonly class Middleware implements MiddlewareInterface
{
    public function __construct(
        private Route $route,
        private ResponseFactoryInterface $responses,
        private StreamFactoryInterface $streams,
    ) {
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $answer = $this->route->handle(new ServerExchange($request, $handler, $this->streams));
        $response = $this->responses->createResponse($answer->status)->withBody($this->streams->createStream($answer->body));
        foreach ($answer->headers as [$name, $value]) {
            $response = $response->withAddedHeader($name, $value);
        }
        return $response;
    }
}
