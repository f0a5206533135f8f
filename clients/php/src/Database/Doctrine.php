<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Doctrine\DBAL\Connection as Dbal;
use Doctrine\DBAL\DriverManager;

/** The application's connection of Doctrine DBAL: its work is in the transaction of the claim. */
final class Doctrine extends Connection
{
    /** @param (\Closure(): mixed)|null $afterRollBack resets the entity manager, which Doctrine closes on errors */
    public function __construct(private readonly Dbal $dbal, ?\Closure $afterRollBack = null)
    {
        parent::__construct(static fn (): Session => new DoctrineSession($dbal, $afterRollBack));
    }

    public function another(): Connection
    {
        return new self(DriverManager::getConnection($this->dbal->getParams()));
    }
}
