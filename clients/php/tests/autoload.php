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
// As Composer's class map: some files have several classes, as those of a small namespace.
spl_autoload_register(static function (string $class): void {
    $others = [
        'Event' => 'Options', 'Form' => 'Exchange', 'Kind' => 'Options', 'Lease' => 'LeasedClaim', 'Record' => 'Request',
        'Result' => 'Answer', 'TransactionalClaim' => 'Transactions', 'Verdict' => 'Settings', 'Work' => 'Worker',
    ];
    if (str_starts_with($class, 'Idempotency\\Postgres\\')) {
        $name = strtr(substr($class, 21), '\\', '/');
        foreach ([$name, $others[$name] ?? dirname($name)] as $file) {
            $file = dirname(__DIR__) . "/src/$file.php";
            is_file($file) && require_once $file;
        }
    }
});
require_once dirname(__DIR__) . '/src/functions.php';
