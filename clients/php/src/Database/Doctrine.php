<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Doctrine\DBAL\Connection as Dbal;
use Doctrine\DBAL\Connections\PrimaryReadReplicaConnection;
use Doctrine\DBAL\DriverManager;
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\UnitOfWork;
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
        $all = static fn () => array_map($registry->resetManager(...), array_keys($registry->getManagerNames()));
        $reset = $registry === null ? $afterRollBack : $all;
        parent::__construct(static fn (): Session => new DoctrineSession($dbal, $registry, $reset));
    }

    public function another(): Connection
    {
        return new self(DriverManager::getConnection($this->dbal->getParams(), $this->dbal->getConfiguration()));
    }
}

/** Doctrine owns BEGIN and COMMIT. @internal */
final class DoctrineSession extends Session
{
    private bool $hasWorked = false;

    /** @param (callable(): mixed)|null $reset */
    public function __construct(
        private readonly Dbal $dbal,
        private readonly ?ManagerRegistry $registry,
        private readonly mixed $reset,
    ) {
        parent::__construct($dbal);
    }

    public function connection(): Dbal
    {
        $this->hasWorked = true;
        return $this->dbal;
    }

    public function isFresh(): bool
    {
        if (!class_exists(UnitOfWork::class, false)) { // no entity manager has been made
            return true;
        }
        foreach ($this->registry?->getManagers() ?? [] as $manager) {
            $unit = $manager instanceof EntityManagerInterface ? $manager->getUnitOfWork() : null;
            if ($unit?->size() > 0 || $unit?->getScheduledEntityInsertions()) {
                return false;
            }
        }
        return $this->registry !== null;
    }

    private function native(): Session
    {
        return Session::of($this->dbal->getNativeConnection());
    }

    public function query(string $text, array $values, float $within): array
    {
        $this->dbal instanceof PrimaryReadReplicaConnection && $this->dbal->ensureConnectedToPrimary();
        return $this->native()->query($text, $values, INF); // a limit would close what is Doctrine's
    }

    public function begin(float $within): void
    {
        $wasUsed = $this->dbal->isConnected();
        $this->hasWorked = false;
        try {
            $this->dbal->beginTransaction();
        } catch (\Throwable $error) {
            $this->dbal->close();
            $wasUsed ? $this->begin($within) : throw $error; // it may have been lost while it was idle
        }
    }

    public function commit(float $within): void
    {
        $this->dbal->commit();
        $this->hasWorked = false;
    }

    public function open(): self
    {
        if ($this->dbal->getTransactionNestingLevel() !== 1 || $this->native()->isIdle()) {
            throw new \LogicException('idempotency: the work has left a nested transaction open, or ended its own');
        }
        return $this;
    }

    public function rollBack(float $within): void
    {
        [$hasWorked, $this->hasWorked] = [$this->hasWorked, false];
        try {
            while ($this->dbal->isTransactionActive()) {
                $this->dbal->rollBack();
            }
        } catch (\Throwable) {
            $this->dbal->close();
        }
        try {
            // The ORM closes its managers on errors, and their entities have changes that were rolled back.
            $hasWorked && $this->reset !== null && ($this->reset)();
        } catch (\Throwable) {
            // `isFresh` sees that entities are left.
        }
        if ($this->dbal->isConnected() && ($this->isGone() || !$this->native()->isIdle())) {
            $this->dbal->close();
        }
    }

    public function isGone(): bool
    {
        return $this->dbal->isConnected() && $this->native()->isGone();
    }

    public function isIdle(): bool
    {
        return !$this->dbal->isTransactionActive();
    }

    public function isNotified(float $seconds): bool
    {
        return $this->native()->isNotified($seconds);
    }

    public function close(): void
    {
        $this->dbal->close();
    }
}
