<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Symfony;

use Idempotency\Postgres\Database\Connection;
use Idempotency\Postgres\Fields;
use Idempotency\Postgres\Options;
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
        foreach (self::places($event->getController()) as $place) {
            foreach ($place->getAttributes(Idempotent::class) as $found) {
                $event->getRequest()->attributes->set('claim', $found->newInstance());
                return;
            }
        }
    }

    /**
     * Where the attribute may be: at the function, a method that it overrides (as a proxy's does), or one of its types.
     *
     * @return list<\ReflectionFunction|\ReflectionMethod|\ReflectionClass>
     */
    private static function places(callable $controller): array
    {
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
        return [$function, ...$methods, ...$types];
    }

    public function onArguments(ControllerArgumentsEvent $event): void
    {
        $protection = $event->getRequest()->attributes->get('claim');
        if (!$protection instanceof Idempotent) {
            return;
        }
        $options = Options::of($this->options, $protection->options);
        $controller = new ProtectedController($event, $this->dispatcher, $protection);
        $route = new Route($this->database, $protection->kind, $options, $controller->exchange());
        $event->setController(static fn (): Response => $controller->response($route));
    }

    /** A `principal`: the token of `Authorization: Bearer TOKEN`, for services whose tokens are checked before. */
    public static function bearer(Request $request): ?string
    {
        return Fields::bearer($request->headers->all('Authorization'));
    }
}
