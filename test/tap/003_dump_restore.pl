# pg_dump carries records, policies, grants and decisions, and the history of attempts. A restored
# record replays byte for byte.
use Idem;

# All contents of a database as one text, for comparison.
my $contents = q{
	SELECT string_agg(r::text, chr(10) ORDER BY key) FROM idempotency.record AS r
	UNION ALL
	SELECT string_agg(p::text, chr(10) ORDER BY scope_pattern) FROM idempotency.policy AS p
	UNION ALL
	SELECT string_agg(a::text, chr(10) ORDER BY decided_at) FROM idempotency.audit AS a
	UNION ALL
	SELECT string_agg(t::text, chr(10) ORDER BY token) FROM idempotency.attempt AS t
	UNION ALL
	SELECT string_agg(s::text, chr(10)) FROM idempotency.seed AS s};
my $rows = q{SELECT (SELECT count(*) FROM idempotency.record), count(*),
	(SELECT count(*) FROM idempotency.audit), (SELECT count(*) FROM idempotency.attempt) FROM idempotency.policy};

# All 256 bytes, and a body that is large enough to be stored out of line.
my $all_bytes = q{(SELECT string_agg(set_byte('\x00', 0, n), '' ORDER BY n)
	FROM generate_series(0, 255) AS n)};
my $large = q{(SELECT string_agg(sha512(n::text::bytea), '' ORDER BY n)
	FROM generate_series(1, 2000) AS n)};

my $node = new_node('main', -extension => 0);
my $dumps = $node->basedir;
my %token;

sub finish ($function, $key, %named)
{
	$token{$key} //= begin_claim($node, $key, -database => 'source', -function => 'apps.idem_begin',
		request => \qq('{"amount": 1}'))->{token};
	return call($node, "apps.$function", -database => 'source', key => $key,
		token => $token{$key}, %named);
}

# One record in each state, with everything in it that a record can have.
sub fill
{
	add_database($node, 'source', 'apps');
	$node->safe_psql('source', q{
		CREATE ROLE app;
		CREATE ROLE outsider;
		GRANT USAGE ON SCHEMA apps TO app, outsider;
		SELECT apps.idem_grant('app');
		SELECT apps.idem_policy_set('payments*', ttl => '7 days', on_missing_key => 'error',
			exclude_fields => '{sent_at,$.a.b}', drop_headers => '{X-Debug}',
			error_statuses => '{"P0001": 402}');
		SELECT apps.idem_policy_set('admin', allowed_role => 'app', on_lease_expiry => 'unknown');
		SELECT apps.idem_policy_set('more', fingerprint_fields => '{amount,$.card.number}', max_ttl => '2 days',
			max_lease => '1 hour', retry_jitter => 'none', on_missing_key => 'derive', derive_window => '5 min',
			principal_required => true, abandon_after => '1 hour', on_abandon => 'fail');
		SELECT apps.idem_policy_set('hooks', keep_history => true, transactional_only => false);
		SELECT apps.idem_once('delivered', 'hooks');
		SELECT apps.idem_begin('counted', '{"amount": 1, "more": 2}', 'more', 'p');
	});
	add_operations('source');
	outcome_of_operation('source', 'apps', 'pay');
	finish('idem_complete', 'bytes', status_code => 201, body => \$all_bytes,
		headers => \q('{"Location": "/a\\\\b", "X": "ü"}'));
	finish('idem_complete', 'large', status_code => 200, body => \$large);
	finish('idem_complete', "tab-less 'quoted' \\ key", body => \q(E'a\tb\nc\\\\.\n'::text));
	finish('idem_fail', 'failed', error => "went\nwrong", status_code => 422);
	finish('idem_fail', 'retryable', retryable => \'true', retry_after => '1 hour');
	finish('idem_checkpoint', 'running', recovery_point => 'half', state => \q('{"n": [1, null]}'),
		lease => '1 hour');
	return;
}

sub pg_dump ($file, @options)
{
	$node->command_ok([ 'pg_dump', '--file', "$dumps/$file", @options, 'source' ],
		"pg_dump @options");
	return;
}

# Restores a plain dump into a new database.
sub restore ($file, $database)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->command_ok(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $database, '-f', "$dumps/$file" ],
		"$file is restored");
	return;
}

# The roles that begin in the scope: each is admitted, or refused with an SQLSTATE.
sub outcome_as ($role, $database, $scope, $key)
{
	my $session = session($node, $database);
	ask($session, "SET ROLE $role");
	my $answer = ask($session, 'SELECT outcome FROM '
		. invocation('apps.idem_begin', key => $key, scope => $scope));
	$session->quit;
	return $answer;
}

sub add_operations ($database)
{
	$node->safe_psql($database, "CREATE FUNCTION public.$_(jsonb) RETURNS jsonb LANGUAGE sql RETURN \$1")
	  foreach qw(pay refund);
	return;
}

sub outcome_of_operation ($database, $schema, $operation)
{
	return $node->safe_psql($database, "SELECT outcome FROM"
		. " $schema.idem_execute('paid', 'public.$operation(jsonb)', '{\"amount\": 1}')");
}

sub replays ($database, $schema)
{
	my @where = (-database => $database, -function => "$schema.idem_begin");

	my $bytes = begin_claim($node, 'bytes', @where, request => \q('{"amount": 1}'));
	is($bytes->{outcome}, 'replay', "$database: the answer is replayed");
	is($bytes->{body}, '\\x' . join('', map { sprintf '%02x', $_ } 0 .. 255), 'byte for byte');
	is(begin_claim($node, 'bytes', @where, request => \q('{"amount": 2}'))->{outcome},
		'mismatch', 'the fingerprint is remembered');
	is(outcome_of_operation($database, $schema, 'pay'), 'replay', 'an operation is remembered');
	is(outcome_of_operation($database, $schema, 'refund'), 'mismatch', 'and others are distinguished');
	is(begin_claim($node, 'failed', @where)->{error}, "went\nwrong", 'a failure is replayed');
	is(begin_claim($node, 'retryable', @where)->{outcome}, 'retry_later', 'a pause is kept');
	is(begin_claim($node, 'running', @where)->{outcome}, 'in_progress', 'a lease runs on');
	is( call($node, "$schema.idem_complete",
			-database => $database, key => 'running', token => $token{running}),
		't', 'and its holder can complete');
	return;
}

sub policies_and_grants_hold ($database)
{
	is(outcome_as('app', $database, 'payments/1', 'new'), 'execute', "$database: a grant travels");
	is(outcome_as('outsider', $database, 'payments/1', 'new'), '42501', 'as does its absence');
	is(outcome_as('app', $database, 'payments/1', undef), '22004', 'a policy requires a key');
	is(outcome_as('app', $database, 'admin', 'new'), 'execute', 'another admits a role');
	$node->safe_psql($database, q{SELECT apps.idem_grant('outsider')});
	is(outcome_as('outsider', $database, 'admin', 'new'), '42501', 'and no other role');
	return;
}

fill();
my $original = $node->safe_psql('source', $contents);
my $original_rows = $node->safe_psql('source', $rows);
is($original_rows, '9|4|5|1', 'there is something to dump');

pg_dump('plain.sql');
restore('plain.sql', 'plain');
is($node->safe_psql('plain', $contents), $original, 'plain: every column is the same');
replays('plain', 'apps');
policies_and_grants_hold('plain');

pg_dump('custom.dump', '--format=custom');
$node->safe_psql('postgres', 'CREATE DATABASE custom');
$node->command_ok(
	[ 'pg_restore', '--exit-on-error', '--jobs=2', '-d', 'custom', "$dumps/custom.dump" ],
	'a dump in custom format is restored');
is($node->safe_psql('custom', $contents), $original, 'custom: every column is the same');
replays('custom', 'apps');
policies_and_grants_hold('custom');
$node->command_ok(
	[ 'pg_restore', '--clean', '--exit-on-error', '-d', 'custom', "$dumps/custom.dump" ],
	'also over existing objects');
is($node->safe_psql('custom', $contents), $original, 'clean: every column is the same');

pg_dump('schema.sql', '--schema-only');
restore('schema.sql', 'bare');
is($node->safe_psql('bare', $rows), '0|0|0|0', 'schema only: neither records nor policies nor decisions nor attempts');
is(outcome_as('app', 'bare', 'payments/1', 'new'), 'execute', 'but the grants');
isnt($node->safe_psql('bare', 'SELECT value FROM idempotency.seed'),
	$node->safe_psql('source', 'SELECT value FROM idempotency.seed'), 'and the locks have a seed of their own');

# The functions may live in another schema than before. An existing session has the policies cached.
add_database($node, 'elsewhere', 'other');
add_operations('elsewhere');
my $early = session($node, 'elsewhere');
my $without_key = q{SELECT outcome FROM other.idem_begin(NULL, scope => 'payments/1')};
is(ask($early, $without_key), 'execute', 'before the restore no policy holds');
$node->safe_psql('elsewhere', 'TRUNCATE idempotency.record, idempotency.audit');
$node->command_ok(
	[ 'pg_restore', '--data-only', '--exit-on-error', '-d', 'elsewhere', "$dumps/custom.dump" ],
	'the data alone is restored into another schema');
is($node->safe_psql('elsewhere', $contents), $original, 'elsewhere: every column is the same');
replays('elsewhere', 'other');
is(ask($early, $without_key), '22004', 'an open session sees the restored policies');
$early->quit;

# A restore that fires no triggers does not replace the seed created here. The seed of the dump
# counts.
my $locks = q{
	BEGIN;
	CREATE FUNCTION pg_temp.lock_of(key text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM SCHEMA.idem_begin(key, scope => 'seed');
		RETURN (SELECT classid || '.' || objid FROM pg_locks
			WHERE locktype = 'advisory' AND objsubid = 18756 AND pid = pg_backend_pid());
	END $$;
	SELECT pg_temp.lock_of('k');
	ROLLBACK};
add_database($node, 'untriggered', 'apps');
add_operations('untriggered');
$node->command_ok(
	[ 'pg_restore', '--data-only', '--disable-triggers', '--exit-on-error', '-d', 'untriggered', "$dumps/custom.dump" ],
	'the data alone is restored without triggers');
my ($here, $there) = map {
	my ($database, $schema) = @$_;
	$node->safe_psql($database, $locks =~ s/SCHEMA/$schema/r) }
  [ source => 'apps' ], [ untriggered => 'apps' ];
is($there, $here, 'a key has the lock that it had');

# The owner of a database may not read the tables, and so may not dump them.
$node->safe_psql('postgres', 'CREATE ROLE dba LOGIN; ALTER DATABASE source OWNER TO dba');
$node->command_fails_like([ 'pg_dump', '-U', 'dba', '--file', "$dumps/dba.sql", 'source' ],
	qr/permission denied for (schema|table|view|sequence) \w+/, 'the owner of the database alone may not dump it');
$node->safe_psql('postgres', 'GRANT pg_read_all_data TO dba');
pg_dump('dba.sql', '-U', 'dba');
restore('dba.sql', 'of_dba');
is($node->safe_psql('of_dba', $contents), $original, 'with pg_read_all_data: every column is the same');

is($node->safe_psql('source', $contents), $original, 'the source is untouched');
$node->stop;
done_testing();
