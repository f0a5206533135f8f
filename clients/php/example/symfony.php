<?php

// The same service on Symfony, in the transactions of Doctrine DBAL. "php symfony.php warm" makes its container.

declare(strict_types=1);

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Idempotency\Postgres\Database\Doctrine;
use Idempotency\Postgres\Kind;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\Symfony\Idempotent;
use Idempotency\Postgres\Symfony\IdempotencyListener;
use Idempotency\Postgres\TransactionalClaim;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Exception\HttpException;
use Symfony\Component\HttpKernel\Kernel as HttpKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

use function Symfony\Component\DependencyInjection\Loader\Configurator\service;

require_once dirname(__DIR__) . '/tests/autoload.php';
require_once __DIR__ . '/work.php';

function reject(int $status): never
{
    throw new HttpException($status, 'rejected');
}

final class Kernel extends HttpKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle()];
    }

    public function getProjectDir(): string
    {
        return (string) getenv('RUN');
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'example', 'router' => ['utf8' => true], 'http_method_override' => false]);
        $services = $container->services();
        $services->set(Connection::class)->public()->factory([self::class, 'dbal']);
        $services->set(Doctrine::class)->args([service(Connection::class)]);
        $services->set(IdempotencyListener::class)->factory([self::class, 'listener'])
            ->args([service(Doctrine::class), service('event_dispatcher')])->tag('kernel.event_subscriber');
        $services->set(Service::class, Service::class)->public()->tag('controller.service_arguments');
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach ([...array_keys(routes()), '/health', '/ways', '/bare'] as $path) {
            $routes->add(strtr($path, '/', '_'), $path)->controller([Service::class, substr($path, 1)]);
        }
    }

    public static function dbal(): Connection
    {
        return DriverManager::getConnection([
            'driver' => 'pdo_pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'user' => getenv('PGUSER'),
            'dbname' => getenv('PGDATABASE'), 'application_name' => getenv('PGAPPNAME') ?: 'example',
            'driverOptions' => [PDO::ATTR_TIMEOUT => 2, PDO::PGSQL_ATTR_DISABLE_PREPARES => true],
        ]);
    }

    public static function listener(Doctrine $database, object $dispatcher): IdempotencyListener
    {
        return new IdempotencyListener($database, $dispatcher, ['principal' => IdempotencyListener::bearer(...)] + common());
    }
}

final class Service
{
    #[Idempotent]
    public function transactional(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(Kind::Leased, lease: 2)]
    public function leased(Request $request, LeasedClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(Kind::Leased, lease: 2)]
    public function uncertain(Request $request, LeasedClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(missingKey: 'generate')]
    public function generate(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(missingKey: 'derive', window: 2)]
    public function derive(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(missingKey: 'pass')]
    public function pass(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(
        statuses: ['in_progress' => 425, 'mismatch' => 400, 'unavailable' => 500],
        keyHeader: 'X-Request-Key',
        replayHeader: 'X-Replay',
        echoKey: true,
        exclude: ['ts'],
        keep: 'everything',
        ttl: 1,
    )]
    public function configured(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(maxRequestBytes: 1000, maxAnswerBytes: 1000)]
    public function small(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(maxAnswerBytes: 1000, omitLargeAnswers: true)]
    public function omit(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(unprotectedWithoutDatabase: true)]
    public function unprotected(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent]
    public function streamed(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(verdict: 'verdict')]
    public function judged(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    // phpcs:ignore PSR1.Methods.CamelCapsMethodName
    #[Idempotent(Kind::Leased, verdict: 'verdict', lease: 2)]
    public function judged_leased(Request $request, LeasedClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(handlerTimeout: 1)]
    public function impatient(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    #[Idempotent(wait: 4)]
    public function patient(Request $request, TransactionalClaim $claim): Response
    {
        return $this->answer($request, $claim);
    }

    public function health(): Response
    {
        return new Response('well');
    }

    public function ways(): Response
    {
        return new JsonResponse(ways());
    }

    public function bare(Request $request): Response
    {
        $dbal = Kernel::dbal();
        $dbal->transactional(static fn () => run($dbal, BARE, [json_decode($request->getContent())->effect]));
        return new Response('', 201);
    }

    private function answer(Request $request, TransactionalClaim|LeasedClaim $claim): Response
    {
        [$status, $headers, $body] = work($claim, $request->getContent(), $request->headers->get('Content-Type'));
        $response = $request->getPathInfo() === '/streamed'
            ? new StreamedResponse(static fn () => array_map(static fn (string $part) => print $part, str_split($body, 100)), $status)
            : new Response($body, $status);
        foreach ($headers as [$name, $value]) {
            $response->headers->set($name, $value, strcasecmp($name, 'Content-Type') === 0);
        }
        return $response;
    }
}

$kernel = new Kernel('prod', false);
if (($argv[1] ?? '') === 'warm') {
    $kernel->boot();
} else {
    $response = $kernel->handle($request = Request::createFromGlobals());
    $response->send();
    flush();
    $kernel->terminate($request, $response);
}
