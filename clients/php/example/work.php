<?php

// What all services of the conformance suite share: its routes, hooks and handler.

declare(strict_types=1);

use Doctrine\DBAL\Connection as Dbal;
use Idempotency\Postgres\Answer;
use Idempotency\Postgres\Error\NothingHappened;
use Idempotency\Postgres\Error\SqlError;
use Idempotency\Postgres\Event;
use Idempotency\Postgres\LeasedClaim;
use Idempotency\Postgres\TransactionalClaim;

const BARE = "INSERT INTO effect (principal, key, note) VALUES ('bench', '', $1)";
const LEASED = ['/leased', '/uncertain', '/judged_leased'];

function verdict(Answer $answer): ?string
{
    return $answer->values('X-Verdict')[0] ?? null;
}

function everything(int $status): bool
{
    return true;
}

function routes(): array
{
    return [
        '/transactional' => [],
        '/leased' => ['lease' => 2],
        '/uncertain' => ['lease' => 2],
        '/generate' => ['missingKey' => 'generate'],
        '/derive' => ['missingKey' => 'derive', 'window' => 2],
        '/pass' => ['missingKey' => 'pass'],
        '/configured' => [
            'statuses' => ['in_progress' => 425, 'mismatch' => 400, 'unavailable' => 500], 'keyHeader' => 'X-Request-Key',
            'replayHeader' => 'X-Replay', 'echoKey' => true, 'exclude' => ['ts'], 'keep' => 'everything', 'ttl' => 1,
        ],
        '/small' => ['maxRequestBytes' => 1000, 'maxAnswerBytes' => 1000],
        '/omit' => ['maxAnswerBytes' => 1000, 'omitLargeAnswers' => true],
        '/unprotected' => ['unprotectedWithoutDatabase' => true],
        '/streamed' => [],
        '/judged' => ['verdict' => 'verdict'],
        '/judged_leased' => ['verdict' => 'verdict', 'lease' => 2],
        '/impatient' => ['handlerTimeout' => 1],
        '/patient' => ['wait' => 4],
    ];
}

/** Options of all routes but the principal. With BENCH, there are no hooks. */
function common(): array
{
    return getenv('BENCH') !== false ? [] : [
        'databaseTimeout' => 2, 'onExecute' => hook('execute'), 'onReplay' => hook('replay'),
        'onRefusal' => hook('refusal'), 'onLeaseLost' => hook('lease_lost'),
    ];
}

function hook(string $name): Closure
{
    return static function (Event $event) use ($name): void {
        if ($event->outcome !== 'unavailable') { // else there is no database to tell
            $values = [$name, $event->scope, $event->key, $event->attempt, $event->outcome];
            aside('INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, $4, $5)', $values);
        }
    };
}

/** A connection that is not the middleware's. */
function aside(string $sql, array $values = []): void
{
    static $connection = null;
    if ($connection === null || pg_connection_status($connection) !== PGSQL_CONNECTION_OK) {
        $connection = pg_connect(parameters(), PGSQL_CONNECT_FORCE_NEW);
    }
    run($connection, $sql, $values);
}

function parameters(): string
{
    return "connect_timeout=5 application_name='" . (getenv('PGAPPNAME') ?: 'example') . "'";
}

/** A statement by any driver. */
function run(object $connection, string $sql, array $values = []): void
{
    $marks = preg_replace('/\$\d+/', '?', $sql);
    if ($connection instanceof Dbal) {
        $connection->executeStatement($marks, $values);
    } elseif ($connection instanceof PDO) {
        $connection->prepare($marks, [PDO::PGSQL_ATTR_DISABLE_PREPARES => true])->execute($values);
    } else {
        @pg_send_query_params($connection, $sql, $values);
        $result = pg_get_result($connection);
        while (pg_get_result($connection) !== false);
        if ($result === false || pg_result_status($result) === PGSQL_FATAL_ERROR) {
            $state = $result === false ? null : pg_result_error_field($result, PGSQL_DIAG_SQLSTATE);
            throw new SqlError($result === false ? 'the connection is lost' : pg_result_error($result), $state ?: null);
        }
    }
}

/** The driver's calls that can run a statement, and the ways to commit. */
function ways(): array
{
    $waits = ['execute' => 5, 'replay' => 3, 'leased' => 3];
    return ['waits' => $waits] + match (getenv('SERVER')) {
        'symfony' => [
            'hide_error' => ['executeStatement', 'executeQuery', 'fetchOne', 'prepare', 'transactional', 'native'],
            'commit' => ['sql', 'driver', 'native'],
        ],
        'pdo' => ['hide_error' => ['prepare', 'query', 'exec'], 'commit' => ['sql', 'driver']],
        default => ['hide_error' => ['query', 'query_params', 'prepare', 'send_query'], 'commit' => ['sql', 'ignored']],
    };
}

function hideError(object $connection, mixed $way): void
{
    $native = $connection instanceof Dbal ? $connection->getNativeConnection() : $connection;
    $sql = 'SELECT 1/0';
    try {
        match ($way) {
            'executeQuery', 'fetchOne', 'query', 'exec' => method_exists($native, 'exec') || $connection instanceof Dbal
                ? $connection->$way($sql) : @pg_query($connection, $sql),
            'transactional' => $connection->transactional(static fn (Dbal $own) => $own->executeStatement($sql)),
            'native' => $native->query($sql),
            'query_params' => @pg_query_params($connection, 'SELECT 1/$1', [0]),
            'prepare' => match (true) {
                $connection instanceof Dbal => $connection->prepare($sql)->executeQuery(),
                $connection instanceof PDO => $connection->prepare($sql)->execute(),
                default => pg_prepare($connection, 'zero', $sql) && @pg_execute($connection, 'zero', []),
            },
            'send_query' => [pg_send_query($connection, $sql), pg_get_result($connection)],
            default => run($connection, $sql),
        };
    } catch (Throwable) {
    }
}

function commit(object $connection, string $way): void
{
    $native = $connection instanceof Dbal ? $connection->getNativeConnection() : $connection;
    match (true) {
        $way === 'ignored' => @pg_query($connection, 'COMMIT'),
        $way === 'sql', $connection instanceof PgSql\Connection => run($connection, 'COMMIT'),
        $way === 'native' => $native->commit(),
        default => $connection->commit(),
    };
}

function effect(TransactionalClaim|LeasedClaim $claim, string $note): void
{
    $sql = 'INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)';
    $values = [$claim->principal, $claim->key ?? '', $note];
    if ($claim instanceof LeasedClaim) {
        $claim->step('effect', static fn () => aside($sql, $values));
    } else {
        run($claim->connection, $sql, $values);
    }
}

/** @return array{int, list<array{string, string}>, string} */
function work(TransactionalClaim|LeasedClaim $claim, string $body, ?string $type): array
{
    $order = $type === 'application/json' ? json_decode($body) : null;
    if (!$order instanceof stdClass) {
        effect($claim, 'raw');
        return [200, $type === null ? [] : [['Content-Type', $type]], $body];
    }
    $order = json_decode($body, true, 1100);
    if (isset($order['gate'])) {
        aside('SELECT pg_advisory_lock_shared($1)', [$order['gate']]);
        aside('SELECT pg_advisory_unlock_shared($1)', [$order['gate']]);
    }
    isset($order['effect']) && effect($claim, $order['effect']);
    isset($order['unknown']) && $claim->unknown(...$order['unknown']);
    isset($order['commit']) && commit($claim->connection, $order['commit']);
    isset($order['hide_error']) && $order['hide_error'] && hideError($claim->connection, $order['hide_error']);
    if (isset($order['serialization_failures']) && countedRuns($claim->key) <= $order['serialization_failures']) {
        run($claim->connection, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
    }
    misbehave($claim, $order);
    $answer = str_repeat(base64_decode($order['body'] ?? ''), $order['repeat'] ?? 1);
    return [$order['status'] ?? 201, $order['headers'] ?? [], $answer];
}

/** Another request may count on, in another process. */
function countedRuns(string $key): int
{
    $file = getenv('RUN') . '/runs-' . md5($key);
    file_put_contents($file, '.', FILE_APPEND);
    clearstatcache();
    return filesize($file);
}

function misbehave(TransactionalClaim|LeasedClaim $claim, array $order): void
{
    if ($order['hang'] ?? false) {
        while ($claim->isHeld()) {
            usleep(20_000);
        }
        $values = [$claim->principal, $claim->key];
        aside("INSERT INTO effect (principal, key, note) VALUES ($1, $2, 'lost')", $values);
    }
    if (isset($order['idle'])) {
        run($claim->connection, "SET LOCAL idle_in_transaction_session_timeout = {$order['idle']}");
        usleep($order['idle'] * 1000 + 1_000_000);
    }
    while ($order['never'] ?? false) {
        sleep(1);
    }
    match ($order['stranger'] ?? null) {
        'code' => throw new class ('of a gateway') extends RuntimeException {
            protected $code = '40004';
        },
        'words' => throw new RuntimeException('Connection closed'),
        null => null,
    };
    isset($order['raise']) && reject($order['raise']);
    ($order['nothing_happened'] ?? false) && throw new NothingHappened('nothing happened');
    ($order['throw'] ?? false) && throw new RuntimeException('thrown by the handler');
    if ($order['exit'] ?? false) {
        file_put_contents(getenv('RUN') . '/exit', '3'); // example/start ends the rest
        posix_kill(posix_getpid(), SIGKILL_NUMBER);
    }
}

const SIGKILL_NUMBER = 9; // Apache's PHP has no ext-pcntl
