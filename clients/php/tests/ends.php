<?php

// A service whose handler ends the script. Says which status PHP would answer with.

declare(strict_types=1);

use GuzzleHttp\Psr7\HttpFactory;
use GuzzleHttp\Psr7\ServerRequest;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Psr15\Idempotency;
use Idempotency\Postgres\TransactionalClaim;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

require __DIR__ . '/autoload.php';

http_response_code(200);
ob_start();
final class Ends implements RequestHandlerInterface
{
    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        pg_query($request->getAttribute(TransactionalClaim::class)->connection, "INSERT INTO payment VALUES ('tenant', 1)");
        echo 'paid';
        match ($_SERVER['argv'][1]) {
            'exit' => exit,
            'fatal' => eval('function work() {} function work() {}'),
            'memory' => str_repeat('x', 1 << 28),
        };
    }
}
$factory = new HttpFactory();
$keys = new Idempotency(Connection::pgsql('dbname=' . getenv('NAME')), $factory, $factory, ['principal' => static fn () => 'tenant']);
$request = new ServerRequest('POST', '/payments', ['Idempotency-Key' => getenv('KEY')], '{}');
register_shutdown_function(static fn () => register_shutdown_function(static fn () => print 'status ' . http_response_code()));
$keys->transactional()->process($request, new Ends());
