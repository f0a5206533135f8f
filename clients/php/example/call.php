<?php

// Executes COUNT orders by the helper for callers, in several processes, and prints each key with the last answer's status.

declare(strict_types=1);

use GuzzleHttp\Psr7\Message;
use GuzzleHttp\Psr7\Response;
use Idempotency\Postgres\Caller\Caller;
use Idempotency\Postgres\Key;

require dirname(__DIR__) . '/tests/autoload.php';

[, $url, $token, $count] = $argv;

/** PHP's own streams take an answer that was cut for a whole one. */
function send(string $url, array $headers): Response
{
    $address = parse_url($url);
    $socket = @stream_socket_client("tcp://{$address['host']}:{$address['port']}", timeout: 5)
        ?: throw new RuntimeException('no connection');
    stream_set_timeout($socket, 5);
    $body = '{"effect":"called"}';
    $head = "POST {$address['path']} HTTP/1.1\r\nHost: {$address['host']}\r\nConnection: close\r\nContent-Type: application/json\r\n";
    foreach ($headers + ['Content-Length' => strlen($body)] as $name => $value) {
        $head .= "$name: $value\r\n";
    }
    @fwrite($socket, "$head\r\n$body");
    $response = Message::parseResponse((string) @stream_get_contents($socket));
    if ((int) $response->getHeaderLine('Content-Length') !== $response->getBody()->getSize()) {
        throw new RuntimeException('the answer was cut');
    }
    return $response;
}

$processes = 4;
for ($process = 0; $process < $processes; $process++) {
    if (pcntl_fork() === 0) {
        for ($order = $process; $order < $count; $order += $processes) {
            $key = Key::generate();
            $send = static fn (array $headers): Response => send($url, ['Authorization' => "Bearer $token"] + $headers);
            $answer = (new Caller(attempts: 30, base: 0.02, cap: 0.5))->call($send, $key);
            fwrite(STDOUT, "$key {$answer->getStatusCode()}\n");
        }
        exit;
    }
}
$failed = 0;
while (pcntl_wait($status) > 0) {
    $failed |= $status;
}
exit($failed === 0 ? 0 : 1);
