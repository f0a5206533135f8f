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
     * @param ManagerRegistry|(callable(): mixed)|null $afterRollBack of Doctrine's ORM, whose managers have to be reset:
     *     `@doctrine` in Symfony. Without the registry, work with the ORM does not run again after a conflict
     */
    public function __construct(private readonly Dbal $dbal, ManagerRegistry|callable|null $afterRollBack = null)
    {
        $isCall = $afterRollBack !== null && !$afterRollBack instanceof ManagerRegistry;
        $reset = $isCall ? \Closure::fromCallable($afterRollBack) : $afterRollBack;
        parent::__construct(static fn (): Session => new DoctrineSession($dbal, $reset));
    }

    public function another(): Connection
    {
        return new self(DriverManager::getConnection($this->dbal->getParams()));
    }
}
