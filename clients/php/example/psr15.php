<?php

// The service on PSR-15, by ext-pgsql or by PDO.

declare(strict_types=1);

use GuzzleHttp\Psr7\HttpFactory;
use GuzzleHttp\Psr7\Response;
use GuzzleHttp\Psr7\ServerRequest;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Error\Rejection;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\Psr15\Idempotency;
use Idempotency\Postgres\TransactionalClaim;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

function reject(int $status): never
{
    throw new Rejection($status);
}

function database(): Connection
{
    if (getenv('SERVER') === 'pdo') {
        $options = [PDO::PGSQL_ATTR_DISABLE_PREPARES => true];
        $dsn = 'pgsql:host=%s;port=%s;dbname=%s;application_name=%s';
        $values = array_map(getenv(...), ['PGHOST', 'PGPORT', 'PGDATABASE', 'PGAPPNAME']);
        return Connection::pdo(vsprintf($dsn, $values), getenv('PGUSER'), null, $options);
    }
    return Connection::pgsql(parameters());
}

function respond(ServerRequestInterface $request): ResponseInterface
{
    $path = $request->getUri()->getPath();
    if ($path === '/health') {
        return new Response(200, [], 'well');
    }
    if ($path === '/ways') {
        return new Response(200, ['Content-Type' => 'application/json'], json_encode(ways()));
    }
    $database = database();
    if ($path === '/bare') {
        $own = $database->begin(10);
        run($own->connection(), BARE, [json_decode((string) $request->getBody())->effect]);
        $own->commit(10);
        return new Response(201);
    }
    $factory = new HttpFactory();
    $keys = new Idempotency($database, $factory, $factory, ['principal' => Idempotency::bearer(...)] + common());
    $options = routes()[$path] ?? null;
    if ($options === null || $request->getMethod() !== 'POST') {
        return new Response(404);
    }
    $kind = in_array($path, LEASED, true) ? 'leased' : 'transactional';
    return $keys->$kind(...$options)->process($request, new Handler());
}

final class Handler implements RequestHandlerInterface
{
    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        $claim = $request->getAttribute(TransactionalClaim::class) ?? $request->getAttribute(LeasedClaim::class);
        $type = $request->getHeaderLine('Content-Type') ?: null;
        [$status, $headers, $body] = work($claim, (string) $request->getBody(), $type);
        $response = new Response($status, [], $body);
        foreach ($headers as [$name, $value]) {
            $response = $response->withAddedHeader($name, $value);
        }
        return $response;
    }
}

function emit(ResponseInterface $response): void
{
    foreach ($response->getHeaders() as $name => $values) {
        foreach ($values as $value) {
            header("$name: $value", false);
        }
    }
    header("HTTP/1.1 {$response->getStatusCode()} " . ($response->getReasonPhrase() ?: "Unknown"));
    echo $response->getBody();
    flush();
}

try {
    emit(respond(ServerRequest::fromGlobals()));
} catch (Throwable $error) {
    error_log((string) $error);
    emit(new Response(500, ['Content-Length' => '0']));
}
