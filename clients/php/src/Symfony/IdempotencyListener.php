<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Symfony;

use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Fields;
use Idempotency\Postgres\Options;
use Idempotency\Postgres\Problems;
use Idempotency\Postgres\Route;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\ControllerArgumentsEvent;
use Symfony\Component\HttpKernel\Event\ControllerEvent;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Contracts\EventDispatcher\EventDispatcherInterface;

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

    /** The argument `$claim` is resolved before there is a claim. */
    public function onController(ControllerEvent $event): void
    {
        $controller = $event->getController();
        $function = new \ReflectionFunction(\Closure::fromCallable($controller));
        $class = is_array($controller) ? new \ReflectionClass($controller[0]) : null;
        $found = $function->getAttributes(Idempotent::class) ?: $class?->getAttributes(Idempotent::class);
        if ($found) {
            $event->getRequest()->attributes->set('claim', $found[0]->newInstance());
        }
    }

    public function onArguments(ControllerArgumentsEvent $event): void
    {
        $protection = $event->getRequest()->attributes->get('claim');
        if (!$protection instanceof Idempotent) {
            return;
        }
        $options = Options::of($this->options, $protection->options);
        $controller = new ProtectedController($event, $this->dispatcher, $protection);
        $problems = new Problems($this->database, $options);
        $route = new Route($this->database, $protection->kind, $options, $problems, $controller->exchange());
        $event->setController(static fn (): Response => $controller->response($route->answer()));
    }

    /** A `principal`: the token of `Authorization: Bearer TOKEN`, for services whose tokens are checked before. */
    public static function bearer(Request $request): ?string
    {
        return Fields::bearer($request->headers->all('Authorization'));
    }
}
