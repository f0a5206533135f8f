<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Psr15;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Fields;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\TransactionalClaim;
use Idempotency\Postgres\UploadedForm;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** @internal */
final readonly class ServerExchange implements Exchange
{
    public function __construct(
        private ServerRequestInterface $request,
        private RequestHandlerInterface $handler,
        private StreamFactoryInterface $streams,
    ) {
        $body = $request->getBody();
        if ($body->isSeekable() && $body->tell() > 0) {
            $body->rewind(); // an earlier middleware has read it
        }
    }

    public function request(): ServerRequestInterface
    {
        return $this->request;
    }

    public function method(): string
    {
        return $this->request->getMethod();
    }

    /** As the server got it, where PHP has it: PSR-7 normalizes escapes. */
    public function target(): string
    {
        $raw = $this->request->getServerParams()['REQUEST_URI'] ?? '';
        return str_starts_with($raw, '/') ? $raw : $this->request->getRequestTarget();
    }

    public function values(string $header): array
    {
        return array_values($this->request->getHeader($header));
    }

    public function defaultScope(): string
    {
        $route = $this->request->getAttribute('__route__'); // of Slim
        $path = is_object($route) && method_exists($route, 'getPattern') ? $route->getPattern() : $this->request->getUri()->getPath();
        return "{$this->method()} $path";
    }

    public function read(int $size): string
    {
        $body = $this->request->getBody();
        return $body->eof() ? '' : $body->read($size);
    }

    public function form(): ?array
    {
        $files = array_map(static fn ($file): array => [
            $file->getClientFilename(), $file->getClientMediaType(), (string) $file->getStream(),
        ], UploadedForm::flat($this->request->getUploadedFiles()));
        return UploadedForm::parts((array) $this->request->getParsedBody(), $files);
    }

    public function run(string $body, TransactionalClaim|LeasedClaim $claim): Answer
    {
        $request = $this->request->withAttribute($claim::class, $claim)->withoutHeader('Content-Encoding');
        if ($body !== '') {
            $request = $request->withBody($this->streams->createStream($body));
        }
        $response = $this->handler->handle($request);
        return new Answer($response->getStatusCode(), Fields::pairs($response->getHeaders()), (string) $response->getBody());
    }
}
