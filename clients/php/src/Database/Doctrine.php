<?php

declare(strict_types=1);

namespace Idempotency\Postgres\Database;

use Doctrine\DBAL\Connection as Dbal;
use Doctrine\DBAL\DriverManager;

/** The application's connection of Doctrine DBAL: its work is in the transaction of the claim. */
final class Doctrine implements Database, Transaction
{
    private ?Session $session = null;

    /** @param (\Closure(): mixed)|null $afterRollBack to reset the entity manager, which Doctrine closes after an error */
    public function __construct(private readonly Dbal $dbal, private readonly ?\Closure $afterRollBack = null)
    {
    }

    public function begin(float $within): Transaction
    {
        $wasUsed = $this->dbal->isConnected();
        $this->refuseTransaction();
        try {
            $this->dbal->beginTransaction();
            $this->session = Session::of($this->dbal->getNativeConnection());
        } catch (\Throwable $error) {
            $this->dbal->close();
            if (!$wasUsed) {
                throw $error;
            }
            return $this->begin($within); // it may have been lost while it was idle
        }
        return $this;
    }

    public function statement(string $text, array $values, float $within): array
    {
        $this->refuseTransaction();
        $session = Session::of($this->dbal->getNativeConnection());
        try {
            return $session->run($text, $values, $within);
        } catch (\Throwable $error) {
            $session->isGone() && $this->dbal->close();
            throw $error;
        }
    }

    public function another(): Connection
    {
        $parameters = $this->dbal->getParams();
        $dbal = null; // it closes its connection with itself
        return new Connection(static function () use ($parameters, &$dbal): object {
            $dbal = DriverManager::getConnection($parameters);
            return $dbal->getNativeConnection();
        });
    }

    public function connection(): Dbal
    {
        return $this->dbal;
    }

    public function query(string $text, array $values, float $within): array
    {
        return $this->opened()->run($text, $values, $within);
    }

    public function commit(float $within): void
    {
        if ($this->dbal->getTransactionNestingLevel() !== 1) {
            throw new \LogicException('idempotency: the handler has left a nested transaction open, or ended its own');
        }
        $this->dbal->commit();
    }

    public function rollBack(float $within): void
    {
        try {
            $isOpen = $this->dbal->isTransactionActive();
            while ($this->dbal->isTransactionActive()) {
                $this->dbal->rollBack();
            }
            $isOpen && $this->afterRollBack?->__invoke();
        } catch (\Throwable) {
            $this->dbal->close();
        }
        if ($this->isGone() || !$this->opened()->isIdle()) {
            $this->dbal->close();
        }
    }

    public function isGone(): bool
    {
        return $this->session === null || $this->session->isGone();
    }

    private function opened(): Session
    {
        return $this->session ?? throw new \LogicException('idempotency: there is no transaction');
    }

    private function refuseTransaction(): void
    {
        if ($this->dbal->isTransactionActive()) {
            throw new \LogicException('idempotency: a transaction is already open on the connection of Doctrine');
        }
    }
}
