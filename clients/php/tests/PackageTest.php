<?php

declare(strict_types=1);

namespace Idempotency\Tests;

use PHPUnit\Framework\TestCase;

/** The archive for publishing, in an empty project without the checkout. */
final class PackageTest extends TestCase
{
    public function testArchiveInAnEmptyProject(): void
    {
        $folder = sys_get_temp_dir() . '/idempotency-' . bin2hex(random_bytes(6));
        mkdir("$folder/project", 0700, true);
        $run = static function (string $command) use ($folder): string {
            exec("cd $folder/project && COMPOSER_HOME=$folder/home $command 2>&1", $lines, $status);
            self::assertSame(0, $status, implode("\n", $lines));
            return implode("\n", $lines);
        };
        try {
            $sources = escapeshellarg(dirname(__DIR__));
            $run("composer --no-interaction --working-dir=$sources archive --format=tar --dir=$folder --file=package");
            $files = explode("\n", $run("tar -tf $folder/package.tar | cut -d / -f 1 | sort -u"));
            self::assertSame(['LICENSE', 'README.md', 'composer.json', 'src'], array_values(array_diff($files, ['./', '.'])));
            $run("mkdir $folder/package && tar -C $folder/package -xf $folder/package.tar");
            $package = ['type' => 'path', 'url' => "$folder/package", 'options' => ['symlink' => false]];
            file_put_contents("$folder/project/composer.json", json_encode([
                'repositories' => [$package, ['packagist.org' => false]], 'require' => ['idempotency/postgres' => '*'],
            ]));
            $run('composer --no-interaction --quiet install');
            $program = 'require "vendor/autoload.php"; use Idempotency\Postgres\{Database\Connection, Request, Settings};'
                . ' foreach (["once", "leased", "transactionally"] as $one) { assert(function_exists("Idempotency\Postgres\\\\$one")); }'
                . ' Connection::pgsql(""); new Request("k", "s"); echo (new Settings())->attempts;';
            self::assertSame('5', $run('php -d zend.assertions=1 -r ' . escapeshellarg($program)));
        } finally {
            exec('rm -rf ' . escapeshellarg($folder));
        }
    }
}
