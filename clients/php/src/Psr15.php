<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Psr15;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Form;
use Idempotency\Postgres\Kind;
use Idempotency\Postgres\Options;
use Idempotency\Postgres\Route;
use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** The middleware, with the options that all routes of a service share; and two ways to make that of one route. */
final readonly class Idempotency implements MiddlewareInterface
{
    private Options $options;

    /** @param array<string, mixed> $common options of all routes; `principal` gets the PSR-7 request */
    public function __construct(
        private Connection $database,
        private ResponseFactoryInterface $responses,
        private StreamFactoryInterface $streams,
        private array $common,
        private Kind $kind = Kind::Transactional,
    ) {
        $this->options = Options::of($common);
    }

    public function transactional(mixed ...$options): MiddlewareInterface
    {
        return new self($this->database, $this->responses, $this->streams, $options + $this->common);
    }

    public function leased(mixed ...$options): MiddlewareInterface
    {
        return new self($this->database, $this->responses, $this->streams, $options + $this->common, Kind::Leased);
    }

    /** A `principal`: the token of `Authorization: Bearer TOKEN`, for services whose tokens are checked before. */
    public static function bearer(ServerRequestInterface $request): ?string
    {
        return Exchange::bearer($request->getHeader('Authorization'));
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $exchange = $this->exchange($request, $handler);
        $answer = (new Route($this->database, $this->kind, $this->options, $exchange))->answer();
        $body = $this->streams->createStream($answer->body);
        $response = $this->responses->createResponse($answer->status)->withBody($body);
        foreach ($answer->headers as [$name, $value]) {
            $response = $response->withAddedHeader($name, $value);
        }
        return $response;
    }

    private function exchange(ServerRequestInterface $request, RequestHandlerInterface $handler): Exchange
    {
        $body = $request->getBody();
        $body->isSeekable() && $body->rewind(); // an earlier middleware may have read it
        $route = $request->getAttribute('__route__'); // of Slim
        $isPattern = is_object($route) && method_exists($route, 'getPattern');
        $part = static function (UploadedFileInterface $file): array {
            $stream = $file->getError() === UPLOAD_ERR_OK ? $file->getStream() : null;
            $content = (string) $stream;
            $stream?->isSeekable() && $stream->rewind(); // for the handler
            return [$file->getClientFilename(), $file->getClientMediaType(), $content];
        };
        $run = function (string $own, object $claim) use ($request, $handler): Answer {
            $request = $request->withAttribute($claim::class, $claim)->withoutHeader('Content-Encoding');
            $response = $handler->handle($request->withBody($this->streams->createStream($own)));
            $fields = Answer::pairs($response->getHeaders());
            return new Answer($response->getStatusCode(), $fields, (string) $response->getBody());
        };
        return new Exchange(
            $request,
            $request->getMethod(),
            $request->getHeaders(),
            $request->getServerParams()['REQUEST_URI'] ?? '',
            $request->getRequestTarget(),
            $isPattern ? $route->getPattern() : $request->getUri()->getPath(),
            read: static fn (int $size): string => $body->eof() ? '' : $body->read($size),
            form: static fn () => Form::parsed((array) $request->getParsedBody(), $request->getUploadedFiles(), $part),
            run: $run,
        );
    }
}
