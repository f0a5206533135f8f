<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use GuzzleHttp\Psr7\HttpFactory;
use GuzzleHttp\Psr7\Response;
use Idempotency\Postgres\Caller\Caller;
use Idempotency\Postgres\Caller\NotFinal;
use Idempotency\Postgres\Error\HttpProblem;
use Idempotency\Postgres\Exchange;
use Idempotency\Postgres\Form;
use Idempotency\Postgres\Key;
use Idempotency\Postgres\Options;
use PHPUnit\Framework\TestCase;

/** What needs no database. */
final class CoreTest extends TestCase
{
    public function testKeysThatAreMade(): void
    {
        $before = time();
        $keys = array_map(static fn () => Key::generate(), range(1, 50));
        self::assertCount(50, array_unique($keys));
        foreach ($keys as $key) {
            self::assertMatchesRegularExpression('/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/', $key);
            self::assertSame($key, Key::parse(Key::quote($key)));
        }
        self::assertSame('a"\\', Key::parse(Key::quote('a"\\')));
        $made = intdiv(hexdec(substr(strtr($keys[0], ['-' => '']), 0, 12)), 1000);
        self::assertContains($made, range($before, time()));
    }

    /** @dataProvider wrongOptions */
    public function testWrongOptions(array $options): void
    {
        $this->expectException(\InvalidArgumentException::class);
        Options::of(['principal' => strlen(...)], $options);
    }

    public function wrongOptions(): array
    {
        return [
            [['principle' => strlen(...)]], [['principal' => null]], [['principal' => 'no_such_function']], [['ttl' => 0]],
            [['lease' => -1]], [['lease' => null]], [['wait' => -1]], [['wait' => '1']], [['attempts' => 0]], [['attempts' => 1.5]],
            [['missingKey' => 'ignore']], [['missingKey' => null]], [['exclude' => 'ts']], [['exclude' => [1]]], [['keyHeader' => 'a b']],
            [['statuses' => ['in_progress' => 200]]], [['statuses' => ['in-progress' => 425]]], [['echoKey' => 1]], [['scope' => '']],
            [['maxRequestBytes' => -1]], [['databaseTimeout' => INF]], [['verdict' => 'keep']], [[0 => 'x']],
            [['methods' => ['PSOT']]], [['methods' => ['POST,PATCH']]], [['methods' => 'POST']], [['methods' => []]],
            [['logger' => 'error_log']],
        ];
    }

    public function testMethodsInAnyCase(): void
    {
        $options = Options::of(['principal' => strlen(...), 'methods' => ['post', 'Patch', 'MKCOL']]);
        self::assertSame(['POST', 'PATCH', 'MKCOL'], $options->methods);
    }

    public function testPrincipalIsNeeded(): void
    {
        $this->expectException(\InvalidArgumentException::class);
        Options::of([]);
    }

    public function testFormsThatPhpHasParsed(): void
    {
        $fields = ['a' => '1', 'b' => ['c' => ['2', '3']]];
        $part = static fn (object $file): array => [$file->name, 'text/plain', "\0"];
        $files = ['file' => [(object) ['name' => 'x.bin']]];
        self::assertSame(
            ['a', null, null, '1', 'b[c][0]', null, null, '2', 'b[c][1]', null, null, '3', 'file[0]', 'x.bin', 'text/plain', "\0"],
            Form::parsed($fields, $files, $part),
        );
        $headers = ['Content-Type' => ['multipart/form-data; boundary=x']];
        $digest = static fn (array $own): string => self::exchange($headers, '', static fn () => $own)->digest('');
        self::assertNotSame($digest(Form::parsed($fields, [], $part)), $digest(Form::parsed($fields, $files, $part)));
        self::assertNull(Form::parsed([], [], $part));
        self::assertSame('0', Form::mediaType(' 0 ; x=y')); // PHP takes it for false
    }

    public function testBytesBehindGzipAreNoBody(): void
    {
        $read = static fn (string $body): string => self::exchange(['Content-Encoding' => ['gzip']], $body)->body(1000);
        self::assertSame('text', $read(gzencode('text')));
        // Within what is decoded at once, and behind it.
        foreach (['more', gzencode('more'), str_repeat('more', 1000), gzencode(random_bytes(900)) . gzencode('more')] as $more) {
            try {
                $read(gzencode('text') . $more);
                self::fail('it is refused');
            } catch (HttpProblem $problem) {
                self::assertSame('bad_body', $problem->word);
            }
        }
    }

    public function testAMemberBehindOneThatEndsWithAPiece(): void
    {
        $first = gzencode('text');
        $first = substr_replace($first, "\x10" . substr($first, 4, 6) . str_repeat('c', 1023 - strlen($first)) . "\0", 3, 7); // a comment
        self::assertSame([1024, 'text'], [strlen($first), gzdecode($first)]);
        $this->expectException(HttpProblem::class);
        self::exchange(['Content-Encoding' => ['gzip']], $first . gzencode('more'))->body(1000);
    }

    public function testALimitEndsWhatIsDecoded(): void
    {
        $this->expectExceptionMessage('too large');
        self::exchange(['Content-Encoding' => ['gzip']], gzencode(str_repeat('x', 1001)))->body(1000);
    }

    /** @param array<string, list<string>> $headers */
    private static function exchange(array $headers, string $body, ?\Closure $form = null): Exchange
    {
        $stream = (new HttpFactory())->createStream($body);
        $none = static fn () => null;
        return new Exchange($stream, 'POST', $headers, '/', '/', '/', $stream->read(...), $form ?? $none, $none);
    }

    public function testFormsThatAreParsedHere(): void
    {
        $part = static fn (string $head): string => "--x\r\n$head\r\n\r\n1\r\n--x--";
        $parts = static fn (string $head): ?array => Form::parts('multipart/form-data; boundary=x', $part($head));
        self::assertSame(['a', null, null, '1'], $parts('Content-Disposition: form-data; name=a'));
        $fields = "X-One: content-disposition: no\r\n content-DISPOSITION : form-data; name=\"b\\\"\"; filename=\"c\"\r\n"
            . "Content-Type: Text/Plain; charset=utf-8\r\nContent-Type: other/type";
        self::assertSame(['b"', 'c', 'text/plain', '1'], $parts($fields));
        self::assertNull($parts('Content-Type: text/plain'));
        self::assertNull($parts("X: y\nContent-Disposition: form-data; name=a"));
        self::assertNull(Form::parts('multipart/form-data', $part('Content-Disposition: form-data; name=a')));
    }

    public function testBearer(): void
    {
        self::assertSame('t0k.en', Exchange::bearer(['bearer t0k.en']));
        self::assertNull(Exchange::bearer(['Bearer a, Bearer b']));
        self::assertNull(Exchange::bearer([null])); // as Symfony has a field that was set to nothing
    }

    /** @dataProvider finalAnswers */
    public function testFinalAnswers(bool $isFinal, int $status, array $headers = [], string $word = ''): void
    {
        $type = $word === '' ? [] : ['Content-Type' => 'application/problem+json'];
        $body = json_encode(['type' => "/problems/idempotency/$word"]);
        self::assertSame($isFinal, Caller::isFinal(new Response($status, $headers + $type, $body)));
    }

    public function finalAnswers(): array
    {
        return [
            [true, 201], [true, 404], [false, 500], [false, 429], [true, 503, ['Idempotent-Replayed' => 'true']],
            [false, 409, [], 'in-progress'], [false, 400, [], 'unavailable'], [true, 500, [], 'failed'], [true, 422, [], 'mismatch'],
        ];
    }

    public function testCallerLeavesTheBodyToBeRead(): void
    {
        $body = '{"type": "/problems/idempotency/mismatch"}';
        $refused = static fn () => new Response(422, ['Content-Type' => 'application/problem+json'], $body);
        self::assertSame($body, (new Caller())->call($refused, 'k-1')->getBody()->getContents());
    }

    public function testCallerKeepsItsKey(): void
    {
        $sent = $stored = [];
        $send = static function (array $headers) use (&$sent): Response {
            $sent[] = $headers['Idempotency-Key'];
            return match (count($sent)) {
                1 => throw new \RuntimeException('cut'),
                2 => new Response(503),
                default => new Response(201),
            };
        };
        $caller = new Caller(base: 0.001);
        self::assertSame(201, $caller->call($send, null, static function (string $key) use (&$stored): void {
            $stored[] = $key;
        })->getStatusCode());
        self::assertSame(array_fill(0, 3, Key::quote($stored[0])), $sent);
        try {
            (new Caller(attempts: 2, base: 0.001))->call(static fn () => new Response(503), 'k-1');
            self::fail('it is not final');
        } catch (NotFinal $end) {
            self::assertSame(['k-1', 503], [$end->key, $end->response->getStatusCode()]);
        }
    }
}
