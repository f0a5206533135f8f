<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Psr15;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Fields;
use Idempotency\Postgres\Form;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\TransactionalClaim;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** @internal */
final class ServerExchange extends Exchange
{
    public function __construct(
        private readonly ServerRequestInterface $own,
        private readonly RequestHandlerInterface $handler,
        private readonly StreamFactoryInterface $streams,
    ) {
        $body = $own->getBody();
        if ($body->isSeekable() && $body->tell() > 0) {
            $body->rewind(); // an earlier middleware has read it
        }
        $method = $own->getMethod();
        $route = $own->getAttribute('__route__'); // of Slim
        $isPattern = is_object($route) && method_exists($route, 'getPattern');
        $scope = "$method " . ($isPattern ? $route->getPattern() : $own->getUri()->getPath());
        $raw = $own->getServerParams()['REQUEST_URI'] ?? '';
        parent::__construct($own, $method, $own->getHeaders(), $raw, $own->getRequestTarget(), $scope);
    }

    public function read(int $size): string
    {
        $body = $this->own->getBody();
        return $body->eof() ? '' : $body->read($size);
    }

    public function form(): ?array
    {
        $part = static fn (UploadedFileInterface $file): array => [
            $file->getClientFilename(), $file->getClientMediaType(), (string) $file->getStream(),
        ];
        return Form::parsed((array) $this->own->getParsedBody(), $this->own->getUploadedFiles(), $part);
    }

    public function run(string $body, TransactionalClaim|LeasedClaim $claim): Answer
    {
        $request = $this->own->withAttribute($claim::class, $claim)->withoutHeader('Content-Encoding');
        if ($body !== '') {
            $request = $request->withBody($this->streams->createStream($body));
        }
        $response = $this->handler->handle($request);
        $fields = Fields::pairs($response->getHeaders());
        return new Answer($response->getStatusCode(), $fields, (string) $response->getBody());
    }
}
