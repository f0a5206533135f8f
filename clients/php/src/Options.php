<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The options of a route, validated. Times are seconds. */
final readonly class Options
{
    private const SECONDS = 'seconds above 0';
    private const CALL = 'a callable';
    private const TEXTS = 'a list of strings';
    private const METHODS = 'a list of one or more of COPY, DELETE, GET, HEAD, LOCK, MKCOL, MOVE, OPTIONS, PATCH, POST, '
        . 'PROPFIND, PROPPATCH, PUT, QUERY, REPORT, SEARCH, UNLOCK';
    private const HEADER = 'the name of a header field';
    private const COUNT = 'a whole number of at least 0';
    private const LOGGER = 'a logger of PSR-3';
    private const FLAG = 'true or false';

    /** Each option: its default, and what it has to be. */
    private const ALL = [
        'principal' => [null, self::CALL],
        'scope' => [null, 'a string'],
        'methods' => [['POST', 'PATCH'], self::METHODS],
        'missingKey' => ['refuse', 'one of refuse, pass, generate, derive'],
        'window' => [Contract::WINDOW_MS / 1000, self::SECONDS],
        'exclude' => [[], self::TEXTS],
        'fingerprint' => [null, self::CALL],
        'ttl' => [null, self::SECONDS],
        'lease' => [Contract::LEASE_MS / 1000, self::SECONDS],
        'wait' => [null, 'seconds'],
        'keep' => [null, self::CALL],
        'verdict' => [null, self::CALL],
        'handlerTimeout' => [null, self::SECONDS],
        'statuses' => [[], 'statuses from 400 to 599 by outcome'],
        'keyHeader' => ['Idempotency-Key', self::HEADER],
        'replayHeader' => ['Idempotent-Replayed', self::HEADER],
        'echoKey' => [false, self::FLAG],
        'maxRequestBytes' => [Contract::MAX_REQUEST_BYTES, self::COUNT],
        'maxAnswerBytes' => [Contract::MAX_ANSWER_BYTES, self::COUNT],
        'omitLargeAnswers' => [false, self::FLAG],
        'attempts' => [Contract::ATTEMPTS, 'a whole number of at least 1'],
        'databaseTimeout' => [Contract::DATABASE_TIMEOUT_MS / 1000, self::SECONDS],
        'unprotectedWithoutDatabase' => [false, self::FLAG],
        'onExecute' => [null, self::CALL],
        'onReplay' => [null, self::CALL],
        'onRefusal' => [null, self::CALL],
        'onLeaseLost' => [null, self::CALL],
        'logger' => [null, self::LOGGER],
    ];

    /** @param array<string, mixed> $values */
    private function __construct(private array $values) {}

    /** @param array<string, mixed> ...$levels options by name; a later level counts more than an earlier one */
    public static function of(array ...$levels): self
    {
        $values = array_merge(...$levels);
        foreach ($values as $name => $value) {
            [$default, $wanted] = self::ALL[$name] ?? throw new \InvalidArgumentException(
                "idempotency: there is no option `$name`. The options are " . implode(', ', array_keys(self::ALL)),
            );
            $isDefault = $value === null && $default === null && $name !== 'principal';
            if (!$isDefault && !self::fits($wanted, $value)) {
                throw new \InvalidArgumentException("idempotency: `$name` has to be $wanted");
            }
            $values[$name] = match (true) {
                $wanted === self::METHODS => array_map(strtoupper(...), $value),
                $value !== null && $wanted === self::CALL => \Closure::fromCallable($value),
                default => $value,
            };
        }
        if (!isset($values['principal'])) {
            throw new \InvalidArgumentException('idempotency: the option `principal` is missing');
        }
        return new self($values + array_map(static fn (array $option): mixed => $option[0], self::ALL));
    }

    private static function fits(string $wanted, mixed $value): bool
    {
        $isNumber = (is_int($value) || is_float($value)) && is_finite((float) $value);
        return match ($wanted) {
            self::CALL => is_callable($value),
            self::SECONDS => $isNumber && $value > 0,
            'seconds' => $isNumber && $value >= 0,
            self::COUNT => is_int($value) && $value >= 0,
            'a whole number of at least 1' => is_int($value) && $value >= 1,
            self::LOGGER => $value instanceof \Psr\Log\LoggerInterface,
            self::FLAG => is_bool($value),
            self::TEXTS => is_array($value) && $value === array_filter($value, is_string(...)),
            self::METHODS => $value !== [] && self::fits(self::TEXTS, $value)
                && array_diff(array_map(strtoupper(...), $value), preg_split('/\W+/', $wanted)) === [],
            self::HEADER => is_string($value) && preg_match('/^[!#$%&\'*+\-.^_`|~0-9A-Za-z]+$/D', $value) === 1,
            'a string' => is_string($value) && $value !== '',
            'one of refuse, pass, generate, derive' => in_array($value, ['refuse', 'pass', 'generate', 'derive'], true),
            default => is_array($value) && array_diff_key($value, Contract::PROBLEMS) === []
                && array_filter($value, static fn ($one) => is_int($one) && $one >= 400 && $one <= 599) === $value,
        };
    }

    /**
     * @param list<string> $names
     * @return array<string, mixed>
     */
    public function only(array $names): array
    {
        return array_intersect_key($this->values, array_flip($names));
    }

    public function __get(string $name): mixed
    {
        return $this->values[$name];
    }
}
