<?php

// The package's sources, and Debian's packages of what the tests need.

declare(strict_types=1);

foreach (['GuzzleHttp/Psr7', 'Symfony/Bundle/FrameworkBundle', 'Doctrine/DBAL', 'Doctrine/ORM', 'Symfony/Component/Yaml'] as $package) {
    if (is_file("/usr/share/php/$package/autoload.php")) {
        require_once "/usr/share/php/$package/autoload.php";
    }
}
// Debian has no package of PSR-15.
if (!interface_exists(Psr\Http\Server\RequestHandlerInterface::class)) {
    require_once __DIR__ . '/psr15.php';
}
spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Idempotency\\Postgres\\')) {
        $file = dirname(__DIR__) . '/src/' . strtr(substr($class, 21), '\\', '/') . '.php';
        $file = is_file($file) ? $file : dirname($file) . '.php'; // of all errors
        is_file($file) && require_once $file;
    }
});
require_once dirname(__DIR__) . '/src/functions.php';
