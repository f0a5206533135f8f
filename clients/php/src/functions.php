<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/**
 * Claim, work and answer in one transaction. If `work` throws, or its answer is not to be kept, everything rolls back,
 * and the key is free.
 *
 * @param callable(TransactionalClaim): Answer $work
 */
function transactionally(
    Database\Connection $database,
    Request $request,
    callable $work,
    Settings $settings = new Settings(),
): Result {
    return (new Transactions($database, $settings))->run($request, $work);
}

/**
 * The claim is committed first, and the answer with its token afterwards. An answer that is not to be kept, and an
 * exception other than NothingHappened, leave the outcome open: by the scope's policy another request may try, or not.
 *
 * @param callable(LeasedClaim): Answer $work
 */
function leased(
    Database\Connection $database,
    Request $request,
    callable $work,
    Settings $settings = new Settings(),
): Result {
    [$sent, $record] = $settings->repeat(static fn (): array => [
        TimeLimit::now(),
        $request->claim($database->statement(...), $settings->databaseTimeout, $settings->lease),
    ]);
    if ($record->outcome !== 'execute') {
        return Result::ofRecord($record);
    }
    $settings->onClaim?->__invoke($record);
    $lease = new Lease($database, $settings, $record, $sent);
    $claim = new LeasedClaim(...$record->names(), recoveryPoint: $record->recoveryPoint, lease: $lease);
    return $lease->settle(static fn (): Answer => $work($claim));
}

/**
 * A message: applied once, in one transaction with the note that it was. True if now.
 *
 * @param callable(object): mixed $work gets the connection of the transaction
 */
function once(
    Database\Connection $database,
    string $key,
    callable $work,
    string $scope = 'messages',
    string $principal = '',
    Settings $settings = new Settings(),
): bool {
    return (new Transactions($database, $settings))->once(new Request($key, $scope, $principal), $work);
}
