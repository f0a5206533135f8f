<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use Doctrine\DBAL\Connection as Dbal;
use Doctrine\DBAL\Schema\Schema;
use Doctrine\Persistence\ManagerRegistry;
use GuzzleHttp\Psr7\HttpFactory;
use GuzzleHttp\Psr7\ServerRequest;
use GuzzleHttp\Psr7\UploadedFile;
use GuzzleHttp\Psr7\Utils;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Database\Doctrine;
use Idempotency\Postgres\Error\DatabaseAway;
use Idempotency\Postgres\Kind;
use Idempotency\Postgres\Psr15\Idempotency;
use Idempotency\Postgres\Symfony\Idempotent;
use Idempotency\Postgres\Symfony\IdempotencyListener;
use Idempotency\Postgres\TransactionalClaim;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Symfony\Component\Config\FileLocator;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Definition;
use Symfony\Component\DependencyInjection\Loader\YamlFileLoader;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\Exception\BadRequestException;
use Symfony\Component\HttpFoundation\File\File;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\Event\ExceptionEvent;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ViewEvent;
use Symfony\Component\HttpKernel\EventListener\ResponseListener;
use Symfony\Component\HttpKernel\Exception\HttpException;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Component\Security\Core\Authentication\Token\Storage\TokenStorageInterface;
use Symfony\Component\Yaml\Yaml;

require_once __DIR__ . '/DatabaseCase.php';

/** What the README says is run as it stands there, but for the name of the database; and Symfony's own ways. */
final class ReadmeTest extends DatabaseCase
{
    private int $runs = 0;

    /** The PHP code below a heading. */
    private static function code(string $heading): string
    {
        $found = preg_match("/^## $heading\n.*?```php\n(.*?)```/ms", file_get_contents(dirname(__DIR__) . '/README.md'), $match);
        self::assertSame(1, $found, $heading);
        return strtr($match[1], ['dbname=shop' => 'dbname=' . self::name()]);
    }

    /** What the README shows as this file. */
    private static function file(string $path): string
    {
        $pattern = '~```\w+\n(?://|#) ' . preg_quote($path) . '\n(.*?)```~s';
        self::assertSame(1, preg_match($pattern, file_get_contents(dirname(__DIR__) . '/README.md'), $match), $path);
        return $match[1];
    }

    private static function dbalAsConfigured(): Dbal
    {
        $configured = Yaml::parse(self::file('config/packages/doctrine.yaml'))['doctrine']['dbal'];
        $dbal = self::dbal('pdo_pgsql');
        $filter = static fn (string $name): bool => preg_match($configured['schema_filter'], $name) === 1; // as DoctrineBundle's
        $dbal->getConfiguration()->setSchemaAssetsFilter($filter);
        $dbal->setNestTransactionsWithSavepoints($configured['use_savepoints']);
        return $dbal;
    }

    public function testMigrationsLeaveTheExtensionAlone(): void
    {
        $drops = static function (Dbal $dbal): string {
            $schemas = $dbal->createSchemaManager();
            $diff = $schemas->createComparator()->compareSchemas($schemas->introspectSchema(), new Schema());
            return implode('; ', $dbal->getDatabasePlatform()->getAlterSchemaSQL($diff));
        };
        // As the relations of the edition without C are; those of an extension are known to Doctrine.
        $this->look->exec('CREATE TABLE idempotency.plain (id integer)');
        try {
            self::assertStringContainsString('DROP TABLE idempotency.plain', $drops(self::dbal('pdo_pgsql')));
            self::assertStringNotContainsString('idempotency', $drops(self::dbalAsConfigured()));
            self::assertStringContainsString('DROP TABLE payment', $drops(self::dbalAsConfigured()));
        } finally {
            $this->look->exec('DROP TABLE idempotency.plain');
        }
    }

    public function testNestedTransactionThatRollsBackBeforeAnAnswer(): void
    {
        $controller = #[Idempotent] static function ($claim): Response {
            $dbal = $claim->connection;
            self::pay($dbal);
            try {
                $dbal->transactional(static function () use ($dbal): never {
                    self::pay($dbal, 2);
                    throw new \DomainException('sold out');
                });
            } catch (\DomainException $error) {
                return new JsonResponse($error->getMessage(), 409);
            }
        };
        $kernel = $this->kernel($controller, new EventDispatcher(), new Doctrine(self::dbalAsConfigured()));
        self::assertSame(409, $this->handle($kernel, '{}')->getStatusCode());
        self::assertSame('true', $this->handle($kernel, '{}')->headers->get('Idempotent-Replayed'));
        self::assertSame([1, 1], [$this->payments(), (int) $this->look->query('SELECT amount FROM payment')->fetchColumn()]);
    }

    /** The container of the YAML, with the services that Symfony's bundles would add. */
    private function container(object $tokens, EventDispatcher $dispatcher): ContainerBuilder
    {
        $file = sys_get_temp_dir() . "/$this->key.yaml";
        file_put_contents($file, self::file('config/services.yaml'));
        $container = new ContainerBuilder();
        try {
            (new YamlFileLoader($container, new FileLocator()))->load($file);
        } finally {
            unlink($file);
        }
        $services = [
            'event_dispatcher' => $dispatcher, 'logger' => new \Psr\Log\NullLogger(), 'security.token_storage' => $tokens,
            'doctrine' => $this->createStub(ManagerRegistry::class), 'doctrine.dbal.default_connection' => self::dbalAsConfigured(),
        ];
        foreach ($services as $id => $service) {
            $container->register($id)->setSynthetic(true)->setPublic(true);
        }
        array_map(static fn (Definition $one) => $one->setPublic(true), $container->getDefinitions());
        $container->compile();
        array_map($container->set(...), array_keys($services), $services);
        return $container;
    }

    public function testServicesAsConfigured(): void
    {
        $storage = TokenStorageInterface::class;
        interface_exists($storage) || eval(preg_replace('/(.*)\\\\(\w+)/', 'namespace $1; interface $2 {}', $storage));
        class_exists('App\Security\Caller') || eval(self::file('src/Security/Caller.php'));
        class_exists('PaymentController') || eval(self::code('Symfony'));
        $tokens = new class implements TokenStorageInterface {
            public ?string $user = null;

            public function getToken(): ?self
            {
                return $this->user === null ? null : $this;
            }

            public function getUserIdentifier(): string
            {
                return $this->user;
            }
        };
        $dispatcher = new EventDispatcher();
        $dispatcher->addSubscriber($this->container($tokens, $dispatcher)->get(IdempotencyListener::class));
        $set = static fn ($event) => $event->getRequest()->attributes->set('_controller', [new \PaymentController(), 'pay']);
        $dispatcher->addListener(KernelEvents::REQUEST, $set);
        $kernel = new HttpKernel($dispatcher, new ControllerResolver());
        self::assertSame(401, $this->handle($kernel, '{"amount": 5}')->getStatusCode());
        $tokens->user = 'shop';
        self::assertSame(201, $this->handle($kernel, '{"amount": 5}')->getStatusCode());
        self::assertSame('true', $this->handle($kernel, '{"amount": 5}')->headers->get('Idempotent-Replayed'));
        self::assertSame('shop', $this->look->query('SELECT account FROM payment')->fetchColumn());
    }

    /** @return array<string, mixed> the variables of the code */
    private static function runs(string $heading, array $variables = []): array
    {
        extract($variables, EXTR_SKIP);
        eval(self::code($heading));
        return get_defined_vars();
    }

    private function send(MiddlewareInterface $middleware, callable $handle, string $body, string $path = '/payments'): ResponseInterface
    {
        $handler = new class ($handle(...)) implements RequestHandlerInterface {
            public function __construct(private readonly \Closure $handle)
            {
            }

            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return ($this->handle)($request);
            }
        };
        $headers = ['Authorization' => 'Bearer tenant', 'Idempotency-Key' => $this->key, 'Content-Type' => 'application/json'];
        return $middleware->process(new ServerRequest('POST', $path, $headers, $body), $handler);
    }

    public function testPsr15AndLeasedClaims(): void
    {
        $service = self::runs('PSR-15');
        foreach (['', 'true'] as $replayed) {
            $answer = $this->send($service['protection'], $service['pay'], '{"amount": 5}');
            $said = [$answer->getStatusCode(), (string) $answer->getBody(), $answer->getHeaderLine('Idempotent-Replayed')];
            self::assertSame([201, '{"paid":5}', $replayed], $said);
        }
        self::assertSame(422, $this->send($service['protection'], $service['pay'], '{"amount": 6}')->getStatusCode());
        self::assertSame(1, $this->payments());

        $gateway = new class {
            public ?\Exception $error = null;

            public function refund(string $key): array
            {
                return $this->error === null ? ['refund' => 're_1'] : throw $this->error;
            }
        };
        $service = self::runs('Leased claims', $service + ['gateway' => $gateway]);
        self::assertSame('{"refund":"re_1"}', (string) $this->send($service['refunds'], $service['refund'], '{}')->getBody());
        $this->key .= '-2';
        $gateway->error = new class ('no answer') extends \Exception {
            public string $reference = 're_2';
        };
        class_alias($gateway->error::class, 'NoAnswer');
        self::assertSame(202, $this->send($service['refunds'], $service['refund'], '{}')->getStatusCode());
        self::assertSame('unknown', $this->status());
        self::assertSame(409, $this->send($service['refunds'], $service['refund'], '{}')->getStatusCode());
    }

    /** A service by ext-pgsql whose handler answers with 201, and counts its runs. */
    private function answers(array $options, ServerRequestInterface $request, array $headers = []): ResponseInterface
    {
        $factory = new HttpFactory();
        $database = $options['database'] ?? Connection::pgsql('dbname=' . self::name());
        unset($options['database']);
        $keys = new Idempotency($database, $factory, $factory, $options + ['principal' => static fn () => 'me']);
        return $keys->transactional()->process($request, new class ($this->runs, $headers) implements RequestHandlerInterface {
            public function __construct(private int &$runs, private readonly array $headers)
            {
            }

            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                $this->runs++;
                return new \GuzzleHttp\Psr7\Response(201, $this->headers);
            }
        });
    }

    private function request(array $headers = [], string $body = '{}', string $method = 'POST'): ServerRequest
    {
        return new ServerRequest($method, '/payments', ['Idempotency-Key' => $this->key] + $headers, $body);
    }

    /** @dataProvider principals */
    public function testPrincipals(mixed $principal, int|string $expected): void
    {
        try {
            $said = $this->answers(['principal' => static fn () => $principal], $this->request())->getStatusCode();
        } catch (\UnexpectedValueException $error) {
            $said = $error->getMessage();
        }
        self::assertSame([$expected, $expected === 201 ? 1 : 0], [$said, $this->runs]);
    }

    public function principals(): array
    {
        $is = static fn (string $type): string => "idempotency: `principal` has to return a string, an integer or nothing, not $type";
        return [
            ['me', 201], [7, 201], [0, 201], [null, 401], [false, 401], ['', 401], [true, $is('bool')], [['id' => 7], $is('array')],
            [1.5, $is('float')], [new \stdClass(), $is('stdClass')],
        ];
    }

    public function testMethodsInLowerCaseAreProtected(): void
    {
        foreach (['post', 'POST'] as $name) {
            $this->key .= $name;
            foreach (['', 'true'] as $replayed) {
                $answer = $this->answers(['methods' => ['post']], $this->request([], '{}', $name));
                self::assertSame($replayed, $answer->getHeaderLine('Idempotent-Replayed'));
            }
        }
    }

    public function testFormWithAnEmptyFile(): void
    {
        $none = new UploadedFile('', 0, UPLOAD_ERR_NO_FILE, '', '');
        $text = new UploadedFile(Utils::streamFor('text'), 4, UPLOAD_ERR_OK, 'a.txt', 'text/plain');
        $send = fn (array $files): array => [$this->answers([], $this->request(['Content-Type' => 'multipart/form-data; boundary=x'], '')
            ->withParsedBody(['a' => '1'])->withUploadedFiles($files))->getStatusCode(), $this->runs];
        $files = ['scan' => $none, 'text' => $text];
        self::assertSame([[201, 1], [201, 1], [422, 1]], [$send($files), $send($files), $send(['scan' => $none])]);
        self::assertSame('text', $text->getStream()->getContents(), 'the handler can read it');
    }

    public function testConnectionStringsThatAreUris(): void
    {
        $uri = sprintf('postgresql://%s@%s:%s/%s', getenv('PGUSER') ?: 'postgres', getenv('PGHOST') ?: '127.0.0.1', getenv('PGPORT') ?: '5432', self::name());
        foreach (['', '?sslmode=disable', '?connect_timeout=7', '?application_name=a?b'] as $parameters) {
            $database = Connection::pgsql($uri . $parameters);
            self::assertSame(201, $this->answers(['database' => $database], $this->request())->getStatusCode(), $parameters);
        }
    }

    /** Doctrine itself passes few settings on to libpq. */
    public function testAServiceFileReachesDoctrine(): void
    {
        $file = tempnam(sys_get_temp_dir(), 'service');
        file_put_contents($file, "[shop]\noptions=-c idle_in_transaction_session_timeout=54321\n");
        $read = static fn (string $driver, array $more = []): string
            => self::dbal($driver, $more)->fetchOne('SHOW idle_in_transaction_session_timeout');
        try {
            foreach (['pdo_pgsql', 'pgsql'] as $driver) {
                self::assertSame('0', $read($driver, ['options' => '-c idle_in_transaction_session_timeout=54321']));
                putenv("PGSERVICEFILE=$file");
                putenv('PGSERVICE=shop');
                self::assertSame('54321ms', $read($driver));
                putenv('PGSERVICE');
            }
        } finally {
            putenv('PGSERVICE');
            putenv('PGSERVICEFILE');
            unlink($file);
        }
    }

    public function testADatabaseThatIsAwayIsLogged(): void
    {
        $away = ['database' => Connection::pgsql('host=127.0.0.1 port=1'), 'attempts' => 1];
        $file = tempnam(sys_get_temp_dir(), 'log');
        $before = ini_set('error_log', $file);
        set_error_handler(static fn (): bool => true); // as frameworks have one
        try {
            self::assertSame(503, $this->answers($away, $this->request())->getStatusCode());
            self::assertSame(201, $this->answers($away + ['unprotectedWithoutDatabase' => true], $this->request())->getStatusCode());
        } finally {
            restore_error_handler();
            ini_set('error_log', $before);
        }
        $lines = file($file);
        unlink($file);
        self::assertMatchesRegularExpression('/idempotency: the database is away: .*connection to server at "127.0.0.1", port 1/', $lines[0]);
        self::assertStringContainsString('idempotency: the database is away, the request runs unprotected: ', implode('', $lines));

        $logger = new class extends \Psr\Log\AbstractLogger {
            public array $said = [];

            public function log($level, $message, array $context = []): void
            {
                $this->said[] = [$level, explode(':', $message)[1], $context['exception']::class];
            }
        };
        $this->answers($away + ['logger' => $logger], $this->request());
        $hook = static fn () => throw new \RuntimeException('it is broken');
        $this->answers(['onExecute' => $hook, 'logger' => $logger], $this->request());
        self::assertSame([
            ['error', ' the database is away', DatabaseAway::class], ['error', ' the hook onExecute has failed', \RuntimeException::class],
        ], $logger->said);
    }

    /**
     * @testWith ["password=a secret"]
     *           ["password=a secret=b"]
     *           ["password='secret"]
     *           ["postgresql://u:secret/b@h/d"]
     *           ["postgresql://u:secret%@h/d"]
     */
    public function testSettingsThatCannotBeReadAreNotLogged(string $parameters): void
    {
        foreach ([Connection::pgsql($parameters), Connection::pdo("pgsql:$parameters")] as $database) {
            $logger = new class extends \Psr\Log\AbstractLogger {
                public string $said = '';

                public function log($level, $message, array $context = []): void
                {
                    $this->said .= "$message {$context['exception']}";
                }
            };
            $this->answers(['database' => $database, 'logger' => $logger, 'attempts' => 1], $this->request());
            self::assertStringContainsString('the connection settings cannot be read', $logger->said);
            self::assertStringNotContainsString('secret', $logger->said);
        }
    }

    public function testHeaderValuesThatAreNotUtf8(): void
    {
        $fields = ['X-Latin' => "caf\xe9", 'X-Utf8' => 'café', 'X-Two' => ["\xff", 'b']];
        [$first, $again] = [$this->answers([], $this->request(), $fields), $this->answers([], $this->request(), $fields)];
        self::assertSame('true', $again->getHeaderLine('Idempotent-Replayed'));
        foreach ($fields as $name => $value) {
            self::assertSame(array_map(bin2hex(...), $first->getHeader($name)), array_map(bin2hex(...), $again->getHeader($name)), $name);
        }
        self::assertSame('café', $first->getHeaderLine('X-Utf8'));
    }

    public function testBodyThatAnEarlierMiddlewareHasRead(): void
    {
        $service = self::runs('PSR-15');
        $reads = new class ($service['protection']) implements MiddlewareInterface {
            public function __construct(private readonly MiddlewareInterface $next)
            {
            }

            public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
            {
                $request->getBody()->getContents();
                return $this->next->process($request, $handler);
            }
        };
        self::assertSame(201, $this->send($reads, $service['pay'], '{"amount": 5}')->getStatusCode());
        self::assertSame(422, $this->send($reads, $service['pay'], '{"amount": 6}')->getStatusCode());
    }

    public function testABodyThatIsEmptyWhenItIsDecoded(): void
    {
        $said = null;
        $handle = static function (ServerRequestInterface $request) use (&$said): ResponseInterface {
            $said = (string) $request->getBody();
            return new \GuzzleHttp\Psr7\Response(201);
        };
        $factory = new HttpFactory();
        $keys = new Idempotency(Connection::pgsql('dbname=' . self::name()), $factory, $factory, ['principal' => static fn () => 'me']);
        $handler = new class ($handle) implements RequestHandlerInterface {
            public function __construct(private readonly \Closure $handle)
            {
            }

            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return ($this->handle)($request);
            }
        };
        $keys->transactional()->process($this->request(['Content-Encoding' => 'gzip'], gzencode('')), $handler);
        self::assertSame('', $said);
    }

    public function testFunctionsAndMessages(): void
    {
        $database = self::runs('PSR-15')['database'];
        $this->look->exec("TRUNCATE stock, invoice; INSERT INTO stock VALUES ('tea', 5)");
        $event = (object) ['id' => $this->key, 'item' => 'tea'];
        $first = self::runs('Functions and messages', ['database' => $database, 'event' => $event]);
        $again = self::runs('Functions and messages', ['database' => $database, 'event' => $event]);
        self::assertSame([true, false], [$first['isNew'], $again['isNew']]);
        self::assertSame(['executed', 'replay'], [$first['result']->outcome, $again['result']->outcome]);
        self::assertSame(4, $this->look->query('SELECT n FROM stock')->fetchColumn());
    }

    public function testWorker(): void
    {
        $this->look->exec("TRUNCATE invoice; SELECT idem_policy_set('webhooks', store_request => true)");
        $this->look->beginTransaction();
        $this->look->prepare("SELECT idem_begin(?, '{\"amount\": 7}', scope => 'webhooks')")->execute([$this->key]);
        $this->look->prepare("SELECT idem_fail(?, 'queued', retryable => true, scope => 'webhooks', retry_after => '0')")->execute([$this->key]);
        $this->look->commit();
        $code = 'require $argv[1]; ' . self::code('Worker');
        $process = proc_open([PHP_BINARY, '-r', $code, __DIR__ . '/autoload.php'], [2 => ['pipe', 'w']], $pipes);
        for ($i = 0; $i < 6000 && $this->status() !== 'completed'; $i++) {
            usleep(20_000);
        }
        proc_terminate($process);
        self::assertSame('', stream_get_contents($pipes[2]));
        self::assertSame([0, 7], [proc_close($process), $this->look->query('SELECT amount FROM invoice')->fetchColumn()]);
    }

    /** A kernel as FrameworkBundle wires it, but by hand. */
    private function kernel(callable|array $controller, EventDispatcher $dispatcher, ?Doctrine $database = null): HttpKernel
    {
        $database ??= new Doctrine(self::dbal('pdo_pgsql'));
        $options = ['principal' => IdempotencyListener::bearer(...)];
        $dispatcher->addSubscriber(new IdempotencyListener($database, $dispatcher, $options));
        $dispatcher->addListener(KernelEvents::REQUEST, static fn ($event) => $event->getRequest()->attributes->set('_controller', $controller));
        return new HttpKernel($dispatcher, new ControllerResolver());
    }

    private function handle(HttpKernel $kernel, string $body): Response
    {
        $server = ['HTTP_AUTHORIZATION' => 'Bearer tenant', 'HTTP_IDEMPOTENCY_KEY' => $this->key, 'CONTENT_TYPE' => 'application/json'];
        return $kernel->handle(Request::create('/payments', 'POST', [], [], [], $server, $body), HttpKernelInterface::MAIN_REQUEST);
    }

    public function testSymfony(): void
    {
        class_exists('PaymentController') || eval(self::code('Symfony'));
        $kernel = $this->kernel([new \PaymentController(), 'pay'], new EventDispatcher());
        foreach ([null, 'true'] as $replayed) {
            $answer = $this->handle($kernel, '{"amount": 5}');
            $said = [$answer->getStatusCode(), $answer->getContent(), $answer->headers->get('Idempotent-Replayed')];
            self::assertSame([201, '{"paid":5}', $replayed], $said);
        }
        self::assertSame(422, $this->handle($kernel, '{"amount": 6}')->getStatusCode());
        self::assertSame(1, $this->payments());
    }

    public function testExceptionsOfControllersAreStoredAsTheKernelAnswersThem(): void
    {
        $runs = 0;
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener(KernelEvents::EXCEPTION, static function (ExceptionEvent $event): void {
            $event->setResponse(new JsonResponse(['told' => $event->getThrowable()->getMessage()]));
        });
        $controller = #[Idempotent] static function ($claim) use (&$runs): Response {
            $runs++;
            self::pay($claim->connection);
            throw new HttpException(402, 'no funds', headers: ['X-Why' => 'poor']);
        };
        $kernel = $this->kernel($controller, $dispatcher);
        foreach ([null, 'true'] as $replayed) {
            $answer = $this->handle($kernel, '{}');
            $said = [$answer->getStatusCode(), $answer->getContent(), $answer->headers->get('X-Why'), $answer->headers->get('Idempotent-Replayed')];
            self::assertSame([402, '{"told":"no funds"}', 'poor', $replayed], $said);
        }
        self::assertSame([1, 0], [$runs, $this->payments()]);
    }

    /** @dataProvider errors */
    public function testExceptionsThatListenersTurnIntoAnswers(\Exception $error, int $status, string $content, bool $isKept, bool $isLeased): void
    {
        $runs = $told = 0;
        $connection = null;
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener(KernelEvents::EXCEPTION, static function (ExceptionEvent $event) use (&$told, &$connection): void {
            $told += $connection?->isTransactionActive() ? 100 : 1; // listeners may write to the database
            match (true) {
                $event->getThrowable() instanceof \DomainException => $event->setResponse(new JsonResponse('no funds', 403)),
                // As the firewall does with an AccessDeniedException.
                $event->getThrowable() instanceof \RangeException => $event->setThrowable(new HttpException(403, 'denied')),
                default => null,
            };
        }, 1);
        $dispatcher->addListener(KernelEvents::EXCEPTION, static function (ExceptionEvent $event): void {
            $event->setResponse(new JsonResponse('listener'));
        });
        $work = static function (object $claim) use (&$runs, &$connection, $error): never {
            $runs++;
            if ($claim instanceof TransactionalClaim) {
                self::pay($connection = $claim->connection);
            }
            throw $error;
        };
        $controller = $isLeased
            ? #[Idempotent(Kind::Leased)] static fn ($claim) => $work($claim)
            : #[Idempotent] static fn ($claim) => $work($claim);
        $kernel = $this->kernel($controller, $dispatcher);
        foreach ($isKept ? [null, 'true'] : [null] as $replayed) {
            $answer = $this->handle($kernel, '{}');
            $said = [$answer->getStatusCode(), $answer->getContent(), $answer->headers->get('Idempotent-Replayed')];
            self::assertSame([$status, $content, $replayed], $said);
        }
        self::assertSame([1, 1, 0, $isKept], [$runs, $told, $this->payments(), $this->status() === 'completed']);
    }

    public function errors(): array
    {
        $cases = [
            'a response' => [new \DomainException(), 403, '"no funds"', true],
            'another exception' => [new \RangeException(), 403, '"listener"', true],
            'of the request' => [new BadRequestException(), 400, '"listener"', true],
            'of HTTP' => [new HttpException(410), 410, '"listener"', true],
            'any other' => [new \LogicException(), 500, '"listener"', false],
            'not to keep' => [new HttpException(503), 503, '"listener"', false],
        ];
        $ofKind = static fn (bool $isLeased): array => array_map(static fn (array $case): array => [...$case, $isLeased], $cases);
        return [...array_values($ofKind(false)), ...$ofKind(true)];
    }

    public function testResultsThatAreNoResponsesAndCookies(): void
    {
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener(KernelEvents::VIEW, static function (ViewEvent $event): void {
            $response = new JsonResponse($event->getControllerResult());
            $response->headers->setCookie(Cookie::create('session', 'a b', secure: true));
            $event->setResponse($response);
        });
        $controller = #[Idempotent] static fn (): array => ['paid' => 1];
        $kernel = $this->kernel($controller, $dispatcher);
        $cookies = array_map(static fn (Response $one): array => $one->headers->getCookies(), [$this->handle($kernel, '{}'), $again = $this->handle($kernel, '{}')]);
        self::assertEquals([[Cookie::create('session', 'a b', secure: true)], []], $cookies);
        self::assertSame('{"paid":1}', $again->getContent());
    }

    /** @return array{Response, Response} the first answer and its replay, without what differs by design */
    private function twice(callable $controller, EventDispatcher $dispatcher = new EventDispatcher()): array
    {
        $dispatcher->addSubscriber(new ResponseListener('UTF-8'));
        $kernel = $this->kernel($controller, $dispatcher);
        $answers = [$this->handle($kernel, '{}'), $this->handle($kernel, '{}')];
        self::assertSame('true', $answers[1]->headers->get('Idempotent-Replayed'));
        foreach ($answers as $answer) {
            $answer->headers->remove('Idempotent-Replayed');
            $answer->headers->remove('Date');
        }
        self::assertEquals($answers[0], $answers[1]);
        return $answers;
    }

    public function testAnEncodedBodyChangesNothingElseOfTheRequest(): void
    {
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener(KernelEvents::REQUEST, static function (RequestEvent $event): void {
            $event->getRequest()->setRequestFormat('json');
            $event->getRequest()->headers->set('X-Trace', 't-1');
        });
        $said = null;
        $controller = #[Idempotent] static function (Request $request, $claim) use (&$said): Response {
            $fields = [$request->headers->get('X-Trace'), $request->headers->get('Content-Encoding')];
            $said = [$request->getContent(), $request->getRequestFormat(), ...$fields];
            return new Response();
        };
        $kernel = $this->kernel($controller, $dispatcher);
        $server = ['HTTP_AUTHORIZATION' => 'Bearer tenant', 'HTTP_IDEMPOTENCY_KEY' => $this->key, 'HTTP_CONTENT_ENCODING' => 'gzip'];
        $kernel->handle(Request::create('/payments', 'POST', [], [], [], $server, gzencode('text')));
        self::assertSame(['text', 'json', 't-1', null], $said);
    }

    /** @dataProvider streams */
    public function testStreamsAreHeldBackWhateverTheyDoWithBuffers(\Closure $stream, string $expected): void
    {
        ob_start();
        $level = ob_get_level();
        [$first] = $this->twice(#[Idempotent] static fn ($claim) => new StreamedResponse($stream));
        $after = ob_get_level();
        while (ob_get_level() > $level) {
            ob_end_clean();
        }
        self::assertSame([$level, '', $expected], [$after, ob_get_clean(), $first->getContent()]);
    }

    public function streams(): array
    {
        return [
            'flushed' => [static fn () => [print 'one ', ob_flush(), flush(), print 'two'], 'one two'],
            'cleaned' => [static fn () => [print 'one ', ob_clean(), print 'two'], 'two'],
            'a buffer left open' => [static fn () => [print 'one ', ob_start(), print 'two'], 'one two'],
        ];
    }

    public function testFilesAndCharsets(): void
    {
        $file = new class (tempnam(sys_get_temp_dir(), 'pdf')) extends File {
            public function getMimeType(): string
            {
                return 'application/pdf'; // symfony/mime looks at its content
            }
        };
        file_put_contents((string) $file, "%PDF-1.4\n%%EOF");
        [$first] = $this->twice(#[Idempotent] static fn ($claim) => (new BinaryFileResponse($file))->deleteFileAfterSend());
        self::assertSame(['application/pdf', "%PDF-1.4\n%%EOF"], [$first->headers->get('Content-Type'), $first->getContent()]);
        self::assertFileDoesNotExist((string) $file);
        $this->key .= '-2';
        $latin = static fn (): Response => (new Response("caf\xe9", 201, ['Content-Type' => 'text/plain']))->setCharset('ISO-8859-1');
        [$first] = $this->twice(#[Idempotent] static fn ($claim) => $latin());
        self::assertSame('text/plain; charset=ISO-8859-1', $first->headers->get('Content-Type'));
    }

    /** @dataProvider placesOfTheAttribute */
    public function testPlacesOfTheAttribute(string $code, string $controller, ?string $method = null): void
    {
        class_exists($controller) || eval("use Idempotency\\Postgres\\Symfony\\Idempotent; $code");
        $controller = $method === null ? new $controller() : [new $controller(), $method];
        foreach ([null, 'true'] as $replayed) {
            $answer = $this->handle($this->kernel($controller, new EventDispatcher()), '{}');
            self::assertSame([200, $replayed], [$answer->getStatusCode(), $answer->headers->get('Idempotent-Replayed')]);
        }
    }

    public function placesOfTheAttribute(): array
    {
        $work = '{ return new Symfony\Component\HttpFoundation\Response("done"); }';
        return [
            'method' => ["class OnMethod { #[Idempotent] function pay() $work }", 'OnMethod', 'pay'],
            'class' => ["#[Idempotent] class OnClass { function pay() $work }", 'OnClass', 'pay'],
            'invokable method' => ["class OnInvoke { #[Idempotent] function __invoke() $work }", 'OnInvoke'],
            'invokable class' => ["#[Idempotent] class Invokable { function __invoke() $work }", 'Invokable'],
            'parent' => ["#[Idempotent] class OfParent {} class Child extends OfParent { function pay() $work }", 'Child', 'pay'],
            'invokable parent' => ["#[Idempotent] class AParent { function __invoke() $work } class Heir extends AParent {}", 'Heir'],
            'interface' => ["#[Idempotent] interface Pays {} class Payer implements Pays { function pay() $work }", 'Payer', 'pay'],
            'proxy' => ["class Own { #[Idempotent] function pay() $work } class OwnProxy extends Own { function pay() $work }", 'OwnProxy', 'pay'],
        ];
    }

    /** @dataProvider endings */
    public function testScriptsThatEndInTheHandler(string $ending): void
    {
        $process = proc_open(
            [PHP_BINARY, '-d', 'memory_limit=16M', '-d', 'display_errors=stderr', '-d', 'log_errors=0', __DIR__ . '/ends.php', $ending],
            [1 => ['pipe', 'w'], 2 => ['pipe', 'w']],
            $pipes,
            null,
            ['NAME' => self::name(), 'KEY' => $this->key] + getenv(),
        );
        $said = stream_get_contents($pipes[1]);
        $complained = stream_get_contents($pipes[2]);
        proc_close($process);
        self::assertSame('status 500', $said, $complained);
        self::assertSame([0, null], [$this->payments(), $this->status()]);
    }

    public function endings(): array
    {
        return [['exit'], ['fatal'], ['memory']];
    }

    public function testTheOthersAreCode(): void
    {
        token_get_all('<?php ' . self::code('Calling such a service'), TOKEN_PARSE);
        $this->addToAssertionCount(1);
    }
}
