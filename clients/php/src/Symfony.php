<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Symfony;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Failure;
use Idempotency\Postgres\Form;
use Idempotency\Postgres\Kind;
use Idempotency\Postgres\Options;
use Idempotency\Postgres\Route;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\Exception\RequestExceptionInterface;
use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event;
use Symfony\Component\HttpKernel\Exception;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Contracts\EventDispatcher\EventDispatcherInterface;

/** Protects a controller: `#[Idempotent]`, `#[Idempotent(Kind::Leased, lease: 60)]`. `$claim` gets the claim. */
#[\Attribute(\Attribute::TARGET_METHOD | \Attribute::TARGET_CLASS | \Attribute::TARGET_FUNCTION)]
final readonly class Idempotent
{
    /** @var array<string, mixed> */
    public array $options;

    public function __construct(public Kind $kind = Kind::Transactional, mixed ...$options)
    {
        $this->options = $options;
    }
}

/** Puts the claim around controllers with the attribute Idempotent, after authorization and the other listeners. */
final readonly class IdempotencyListener implements EventSubscriberInterface
{
    /** @param array<string, mixed> $options of all routes; `principal` gets Symfony's request */
    public function __construct(
        private Connection $database,
        private EventDispatcherInterface $dispatcher,
        private array $options,
    ) {
        Options::of($options); // throws where one is wrong
    }

    public static function getSubscribedEvents(): array
    {
        $afterOthers = ['onArguments', -1000];
        return [KernelEvents::CONTROLLER => 'onController', KernelEvents::CONTROLLER_ARGUMENTS => $afterOthers];
    }

    /**
     * The argument `$claim` is resolved before there is a claim. The attribute may be at the function, a method that it
     * overrides (as a proxy's does), or one of its types.
     */
    public function onController(Event\ControllerEvent $event): void
    {
        $controller = $event->getController();
        $function = new \ReflectionFunction($controller(...));
        $own = match (true) {
            is_array($controller) => $controller[0],
            $function->isAnonymous() => null,
            default => $function->getClosureThis() ?? $function->getClosureScopeClass()?->name,
        };
        $all = $own === null ? [] : [$own, ...array_values(class_parents($own) + class_implements($own))];
        $types = array_map(static fn (object|string $type) => new \ReflectionClass($type), $all);
        $overridden = array_filter($types, static fn (\ReflectionClass $type) => $type->hasMethod($function->name));
        $methods = array_map(static fn (\ReflectionClass $type) => $type->getMethod($function->name), $overridden);
        foreach ([$function, ...$methods, ...$types] as $place) {
            foreach ($place->getAttributes(Idempotent::class) as $found) {
                $event->getRequest()->attributes->set('claim', $found->newInstance());
                return;
            }
        }
    }

    public function onArguments(Event\ControllerArgumentsEvent $event): void
    {
        $protection = $event->getRequest()->attributes->get('claim');
        if ($protection instanceof Idempotent) {
            $options = Options::of($this->options, $protection->options);
            $controller = new ProtectedController($event, $this->dispatcher, $protection);
            $route = new Route($this->database, $protection->kind, $options, $controller->exchange());
            $event->setController(static fn (): Response => $controller->response($route));
        }
    }

    /** A `principal`: the token of `Authorization: Bearer TOKEN`, for services whose tokens are checked before. */
    public static function bearer(Request $request): ?string
    {
        return Exchange::bearer($request->headers->all('Authorization'));
    }
}

/** A controller whose arguments are resolved, and what it answers. @internal */
final class ProtectedController
{
    /** @var list<Cookie> of the last run: their text does not tell all */
    private array $cookies = [];
    /** @var array{\Throwable, Response|null}|null the last exception that is not stored, and the listeners' response */
    private ?array $told = null;

    public function __construct(
        private readonly Event\ControllerArgumentsEvent $event,
        private readonly EventDispatcherInterface $dispatcher,
        private readonly Idempotent $placeOfClaim,
    ) {}

    public function exchange(): Exchange
    {
        $own = $this->event->getRequest();
        $controller = $this->event->getController(); // before the event gets another one
        $body = $own->getContent(true);
        // A route with parameters by its name, for its path is another each time.
        $route = $own->attributes->get('_route_params') ? $own->attributes->get('_route') : null;
        $part = static fn (?UploadedFile $file): array => [
            $file?->getClientOriginalName(), $file?->getClientMimeType(), $file?->isValid() ? $file->getContent() : '',
        ];
        return new Exchange(
            $own,
            $own->getMethod(),
            $own->headers->all(),
            (string) $own->server->get('REQUEST_URI'),
            $own->getRequestUri(),
            $route ?? $own->getPathInfo(),
            read: static fn (int $size): string => (string) fread($body, $size),
            form: static fn () => Form::parsed($own->request->all(), $own->files->all(), $part),
            run: fn (string $decoded, object $claim) => $this->run($controller, $decoded, $claim),
            raised: $this->answerTo(...),
        );
    }

    private function run(callable $controller, string $body, object $claim): Answer
    {
        $own = $this->event->getRequest();
        if ($own->headers->has('Content-Encoding')) { // controllers get the body as it was before it was encoded
            (fn () => $this->content = $body)->call($own); // `initialize` would forget what listeners have set
            $own->server->remove('HTTP_CONTENT_ENCODING');
            $own->headers->remove('Content-Encoding');
        }
        $own->attributes->set('claim', $claim);
        $resolved = fn (mixed $one): mixed => $one === $this->placeOfClaim ? $claim : $one;
        $result = $controller(...array_map($resolved, $this->event->getArguments()));
        if (!$result instanceof Response) {
            $view = new Event\ViewEvent($this->event->getKernel(), $own, $this->event->getRequestType(), $result);
            $this->dispatcher->dispatch($view, KernelEvents::VIEW);
            $result = $view->getResponse();
        }
        return $this->answerOf($result ?? throw new \LogicException('idempotency: the action has no response'), false);
    }

    /** To an exception that says no to the request, by its own status or by the listeners' 4xx; else none. */
    private function answerTo(\Throwable $error): ?Answer
    {
        $isOurs = str_starts_with($error::class, 'Idempotency\\Postgres\\') || Failure::of($error)->isTransient();
        if (!$error instanceof \Exception || $isOurs || $error === ($this->told[0] ?? null)) {
            return null;
        }
        try {
            $response = $this->responseTo($error);
            $isHttp = $error instanceof Exception\HttpExceptionInterface;
            if ($response !== null && ($isHttp || $response->isClientError())) {
                return $this->answerOf($response, true);
            }
            $this->told = [$error, $response];
        } catch (\Exception) {
            // The kernel asks the listeners again, and gets this one.
        }
        return null;
    }

    /** As the kernel would make it; but the answer is stored with the claim. */
    private function responseTo(\Exception $error): ?Response
    {
        if ($error instanceof RequestExceptionInterface) {
            $error = new Exception\BadRequestHttpException($error->getMessage(), $error);
        }
        [$kernel, $type] = [$this->event->getKernel(), $this->event->getRequestType()];
        $event = new Event\ExceptionEvent($kernel, $this->event->getRequest(), $type, $error);
        $this->dispatcher->dispatch($event, KernelEvents::EXCEPTION);
        $error = $event->getThrowable();
        $http = $error instanceof Exception\HttpExceptionInterface ? $error : null;
        $response = $event->getResponse() ?? ($http === null ? null : new Response());
        $isTold = $response?->isClientError() || $response?->isServerError() || $response?->isRedirect();
        if (!$event->isAllowingCustomResponseCode() && !$isTold) {
            $response?->setStatusCode($http?->getStatusCode() ?? 500);
            $response?->headers->add($http?->getHeaders() ?? []);
        }
        return $response;
    }

    private function answerOf(Response $response, bool $isRaised): Answer
    {
        if ($response instanceof BinaryFileResponse || $response->getCharset() !== null) {
            $response->prepare(Request::create('', 'POST')); // what is sent has its fields and content alone
        }
        $this->cookies = $response->headers->getCookies();
        $fields = Answer::pairs($response->headers->allPreserveCaseWithoutCookies() + ['Set-Cookie' => $this->cookies]);
        $content = $response->getContent();
        if ($content === false) { // it is streamed, or a file
            $content = '';
            $level = ob_get_level();
            ob_start(static function (string $piece, int $phase) use (&$content): string {
                $content .= $phase & PHP_OUTPUT_HANDLER_CLEAN ? '' : $piece;
                return ''; // nothing is sent before it is stored, not even by ob_flush()
            });
            try {
                $response->sendContent();
            } finally {
                while (ob_get_level() > $level && ob_end_flush());
            }
        }
        return new Answer($response->getStatusCode(), $fields, $content, $isRaised);
    }

    public function response(Route $route): Response
    {
        try {
            $answer = $route->answer();
        } catch (\Exception $error) {
            return $error === ($this->told[0] ?? null) ? $this->told[1] ?? throw $error : throw $error;
        }
        $fields = [];
        foreach ($answer->headers as [$name, $value]) {
            $fields[$name][] = $value;
        }
        $cookies = isset($fields['Set-Cookie']) ? $this->cookies : [];
        unset($fields['Set-Cookie']);
        $response = new Response($answer->body, $answer->status, $fields);
        array_map($response->headers->setCookie(...), $cookies);
        return $response;
    }
}
