<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** The options of a route, validated. Times are seconds. */
final readonly class Options
{
    private const METHODS = 'a list of one or more of COPY, DELETE, GET, HEAD, LOCK, MKCOL, MOVE, OPTIONS, PATCH, '
        . 'POST, PROPFIND, PROPPATCH, PUT, QUERY, REPORT, SEARCH, UNLOCK';

    /** All options with their defaults, by what they have to be. */
    private const ALL = [
        'a callable' => [
            'principal' => null, 'fingerprint' => null, 'keep' => null, 'verdict' => null,
            'onExecute' => null, 'onReplay' => null, 'onRefusal' => null, 'onLeaseLost' => null,
        ],
        'a string' => ['scope' => null],
        self::METHODS => ['methods' => ['POST', 'PATCH']],
        'one of refuse, pass, generate, derive' => ['missingKey' => 'refuse'],
        'seconds above 0' => [
            'window' => Contract::WINDOW_MS / 1000, 'lease' => Contract::LEASE_MS / 1000, 'ttl' => null,
            'handlerTimeout' => null, 'databaseTimeout' => Contract::DATABASE_TIMEOUT_MS / 1000,
        ],
        'seconds' => ['wait' => null],
        'a list of strings' => ['exclude' => []],
        'statuses from 400 to 599 by outcome' => ['statuses' => []],
        'the name of a header field' => ['keyHeader' => 'Idempotency-Key', 'replayHeader' => 'Idempotent-Replayed'],
        'true or false' => ['echoKey' => false, 'omitLargeAnswers' => false, 'unprotectedWithoutDatabase' => false],
        'a whole number of at least 0' => [
            'maxRequestBytes' => Contract::MAX_REQUEST_BYTES, 'maxAnswerBytes' => Contract::MAX_ANSWER_BYTES,
        ],
        'a whole number of at least 1' => ['attempts' => Contract::ATTEMPTS],
        'a logger of PSR-3' => ['logger' => null],
    ];

    /** @param array<string, mixed> $values */
    private function __construct(private array $values) {}

    private static function fits(string $wanted, mixed $value): bool
    {
        $isNumber = (is_int($value) || is_float($value)) && is_finite((float) $value);
        $isStatus = static fn (mixed $one): bool => is_int($one) && $one >= 400 && $one <= 599;
        return match ($wanted) {
            'a callable' => is_callable($value),
            'a string' => is_string($value) && $value !== '',
            self::METHODS => $value !== [] && self::fits('a list of strings', $value)
                && array_diff(array_map(strtoupper(...), $value), preg_split('/\W+/', $wanted)) === [],
            'one of refuse, pass, generate, derive' => in_array($value, ['refuse', 'pass', 'generate', 'derive'], true),
            'seconds above 0' => $isNumber && $value > 0,
            'seconds' => $isNumber && $value >= 0,
            'a list of strings' => is_array($value) && $value === array_filter($value, is_string(...)),
            'statuses from 400 to 599 by outcome' => is_array($value)
                && array_diff_key($value, Contract::PROBLEMS) === [] && array_filter($value, $isStatus) === $value,
            'the name of a header field' => is_string($value)
                && preg_match('/^[!#$%&\'*+\-.^_`|~0-9A-Za-z]+$/D', $value) === 1,
            'true or false' => is_bool($value),
            'a whole number of at least 0' => is_int($value) && $value >= 0,
            'a whole number of at least 1' => is_int($value) && $value >= 1,
            'a logger of PSR-3' => $value instanceof \Psr\Log\LoggerInterface,
        };
    }

    /** @param array<string, mixed> ...$levels options by name; a later level counts more than an earlier one */
    public static function of(array ...$levels): self
    {
        $values = array_merge(...$levels);
        $defaults = [];
        foreach (self::ALL as $wanted => $options) {
            $defaults += $options;
            foreach (array_intersect_key($values, $options) as $name => $value) {
                $isDefault = $value === null && $options[$name] === null && $name !== 'principal';
                if (!$isDefault && !self::fits($wanted, $value)) {
                    throw new \InvalidArgumentException("idempotency: `$name` has to be $wanted");
                }
                $values[$name] = $value !== null && $wanted === 'a callable' ? \Closure::fromCallable($value) : $value;
            }
        }
        foreach (array_diff_key($values, $defaults) as $name => $value) {
            $names = implode(', ', array_keys($defaults));
            throw new \InvalidArgumentException("idempotency: there is no option `$name`. The options are $names");
        }
        if (!isset($values['principal'])) {
            throw new \InvalidArgumentException('idempotency: the option `principal` is missing');
        }
        $values += $defaults;
        return new self(['methods' => array_map(strtoupper(...), $values['methods'])] + $values);
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

/** The kind of a route: work in the claim's transaction, or elsewhere, in steps. */
enum Kind: string
{
    case Transactional = 'transactional';
    case Leased = 'leased';
}

/** The argument of hooks. */
final readonly class Event
{
    /** @param string $outcome `execute`, `replay`, `lease_lost`, or why it was refused */
    public function __construct(
        public string $scope,
        public ?string $key,
        public ?int $attempt,
        public string $outcome,
    ) {}
}
