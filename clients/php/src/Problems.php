<?php

declare(strict_types=1);

namespace Idempotency\Postgres;

/** Problem documents (RFC 9457): the server's, each requested once, and those of HTTP itself. @internal */
final class Problems
{
    /** @var array<string, array<string, mixed>> */
    private static array $known = [];

    public function __construct(private readonly Database\Connection $database, private readonly Options $options) {}

    /** @return array<string, mixed> the document without the server's help */
    public static function local(string $word): array
    {
        [$status, $title] = Contract::PROBLEMS[$word];
        return ['type' => '/problems/idempotency/' . strtr($word, '_', '-'), 'title' => $title, 'status' => $status];
    }

    public function answer(string $word, ?float $retryAfter = null): Answer
    {
        $document = $this->document($word);
        $document['status'] = $this->options->statuses[$word] ?? $document['status'];
        $retryAfter ??= $word === 'in_progress' ? 1 : null;
        if ($retryAfter !== null) {
            $document['retry_after'] = max(1, (int) ceil($retryAfter));
        }
        return self::documentAnswer($document);
    }

    /** @return array<string, mixed> */
    private function document(string $word): array
    {
        if (!isset(self::$known[$word]) && !Contract::PROBLEMS[$word][2]) {
            try {
                $rows = $this->database->statement(Contract::PROBLEM, [$word], (float) $this->options->databaseTimeout);
                self::$known[$word] = json_decode($rows[0]['problem'], true, 64, JSON_THROW_ON_ERROR);
            } catch (\Throwable) {
                // It says less, but the same.
            }
        }
        return self::$known[$word] ?? self::local($word);
    }

    /** @param array<string, mixed> $document */
    public static function documentAnswer(array $document): Answer
    {
        $headers = [['Content-Type', 'application/problem+json']];
        if (isset($document['retry_after'])) {
            $headers[] = ['Retry-After', (string) $document['retry_after']];
        }
        $body = json_encode($document, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES);
        return new Answer($document['status'], $headers, $body);
    }
}
