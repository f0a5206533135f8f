<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Doctrine\DBAL\Connection as Dbal;
use Doctrine\DBAL\DriverManager;
use Doctrine\Persistence\ManagerRegistry;

/** The application's connection of Doctrine DBAL: its work is in the transaction of the claim. */
final class Doctrine extends Connection
{
    /**
     * @param ManagerRegistry|(callable(): mixed)|null $afterRollBack of the ORM, to reset its managers: `@doctrine` in
     *     Symfony. Without the registry, work with the ORM does not run again after a conflict
     */
    public function __construct(private readonly Dbal $dbal, ManagerRegistry|callable|null $afterRollBack = null)
    {
        $registry = $afterRollBack instanceof ManagerRegistry ? $afterRollBack : null;
        $names = array_keys($registry?->getManagerNames() ?? []);
        $reset = match (true) {
            $afterRollBack === null => null,
            $registry === null => \Closure::fromCallable($afterRollBack),
            default => static fn () => array_map($registry->resetManager(...), $names),
        };
        parent::__construct(static fn (): Session => new DoctrineSession($dbal, $registry, $reset));
    }

    public function another(): Connection
    {
        return new self(DriverManager::getConnection($this->dbal->getParams()));
    }
}
