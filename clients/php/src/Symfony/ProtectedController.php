<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Symfony;

use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Failure;
use Idempotency\Postgres\Fields;
use Idempotency\Postgres\Form;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\Route;
use Idempotency\Postgres\TransactionalClaim;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\Exception\RequestExceptionInterface;
use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\ControllerArgumentsEvent;
use Symfony\Component\HttpKernel\Event\ExceptionEvent;
use Symfony\Component\HttpKernel\Event\ViewEvent;
use Symfony\Component\HttpKernel\Exception\BadRequestHttpException;
use Symfony\Component\HttpKernel\Exception\HttpExceptionInterface;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Contracts\EventDispatcher\EventDispatcherInterface;

/** A controller whose arguments are resolved, and what it answers. @internal */
final class ProtectedController
{
    private readonly Request $own;
    /** @var callable */
    private $controller;
    /** @var array<array-key, mixed> */
    private readonly array $arguments;
    /** @var list<Cookie> of the last run: their text does not tell all */
    private array $cookies = [];
    /** @var array{\Throwable, Response|null}|null the last exception that is not stored, and the listeners' response */
    private ?array $told = null;

    public function __construct(
        private readonly ControllerArgumentsEvent $event,
        private readonly EventDispatcherInterface $dispatcher,
        private readonly Idempotent $placeOfClaim,
    ) {
        $this->own = $event->getRequest();
        $this->controller = $event->getController();
        $this->arguments = $event->getArguments();
    }

    public function exchange(): Exchange
    {
        $own = $this->own;
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
            $own->getMethod() . ' ' . ($route ?? $own->getPathInfo()),
            read: static fn (int $size): string => (string) fread($body, $size),
            form: static fn () => Form::parsed($own->request->all(), $own->files->all(), $part),
            run: $this->run(...),
            raised: $this->answerTo(...),
        );
    }

    private function run(string $body, TransactionalClaim|LeasedClaim $claim): Answer
    {
        $this->decode($body);
        $this->own->attributes->set('claim', $claim);
        return $this->answerOf($this->called($claim), false);
    }

    /** Controllers get the body as it was before it was encoded. */
    private function decode(string $body): void
    {
        $own = $this->own;
        if ($own->headers->has('Content-Encoding')) {
            $bags = [$own->query, $own->request, $own->attributes, $own->cookies, $own->files];
            $server = array_diff_key($own->server->all(), ['HTTP_CONTENT_ENCODING' => 1]);
            $own->initialize(...[...array_map(static fn (object $bag): array => $bag->all(), $bags), $server, $body]);
        }
    }

    private function called(TransactionalClaim|LeasedClaim $claim): Response
    {
        $place = $this->placeOfClaim;
        $arguments = array_map(static fn (mixed $one): mixed => $one === $place ? $claim : $one, $this->arguments);
        $result = ($this->controller)(...$arguments);
        if (!$result instanceof Response) {
            $view = new ViewEvent($this->event->getKernel(), $this->own, $this->event->getRequestType(), $result);
            $this->dispatcher->dispatch($view, KernelEvents::VIEW);
            $result = $view->getResponse();
        }
        return $result ?? throw new \LogicException('idempotency: the controller has returned no response');
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
            if ($response !== null && ($response->isClientError() || $error instanceof HttpExceptionInterface)) {
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
            $error = new BadRequestHttpException($error->getMessage(), $error);
        }
        $event = new ExceptionEvent($this->event->getKernel(), $this->own, $this->event->getRequestType(), $error);
        $this->dispatcher->dispatch($event, KernelEvents::EXCEPTION);
        $error = $event->getThrowable();
        $http = $error instanceof HttpExceptionInterface ? $error : null;
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
        $this->cookies = $response->headers->getCookies();
        $fields = Fields::pairs($response->headers->allPreserveCaseWithoutCookies() + ['Set-Cookie' => $this->cookies]);
        $content = $response->getContent();
        if ($content === false) { // it is streamed, or a file
            ob_start();
            try {
                $response->sendContent();
            } finally {
                $content = (string) ob_get_clean();
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
        foreach ($cookies as $cookie) {
            $response->headers->setCookie($cookie);
        }
        return $response;
    }
}
