<?php

// The front controller of the service that SERVER names.

declare(strict_types=1);

ini_set('default_mimetype', '');
require dirname(__DIR__) . '/tests/autoload.php';
require __DIR__ . '/work.php';
require __DIR__ . (getenv('SERVER') === 'symfony' ? '/symfony.php' : '/psr15.php');
