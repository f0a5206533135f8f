# pg_upgrade and dump and restore from an older server version, whose programs are in OLD_BINDIR,
# keep records, claims and policies.
use Idem;
use Sweeping;
use Upgrade;

my @contents = (
	'SELECT string_agg(r::text, chr(10) ORDER BY scope, key) FROM idempotency.record AS r',
	'SELECT string_agg(p::text, chr(10) ORDER BY scope_pattern) FROM idempotency.policy AS p');

my %conf = (shared_preload_libraries => 'idempotency', 'idempotency.cleanup_interval' => 0);
my $old = older_node('old', %conf);
my %token;

sub contents
{
	my ($node, $database) = @_;

	return join "\n--\n", map { $node->safe_psql($database, $_) } @contents;
}

sub finish
{
	my ($function, $key, %named) = @_;

	$token{$key} = begin_claim($old, $key, request => '{"amount": 1}')->{token};
	return call($old, $function, key => $key, token => $token{$key}, %named);
}

sub fill
{
	finish('idem_complete', 'done', status_code => 201, body => \"'\\x00ff'::bytea",
		headers => '{"Location": "/1"}');
	finish('idem_fail', 'failed', error => 'declined', status_code => 402);
	finish('idem_fail', 'retryable', retryable => \'true', retry_after => '1 hour');
	finish('idem_checkpoint', 'running', recovery_point => 'half', lease => '1 hour');
	call($old, 'idem_policy_set', scope_pattern => 'strict*', on_missing_key => 'error',
		ttl => '7 days', exclude_fields => '{sent_at}');
	add_expired($old, 10);
	return;
}

sub goes_on
{
	my ($node, $database) = @_;
	my @where = (-database => $database);
	my (undef, undef, $stderr) = $node->psql($database,
		"\\set VERBOSITY sqlstate\nSELECT idem_begin(NULL, scope => 'strict/1')");

	is(begin_claim($node, 'done', @where)->{body}, '\\x00ff', 'an answer is replayed');
	is(begin_claim($node, 'done', @where, request => '{"amount": 2}')->{outcome},
		'mismatch', 'its fingerprint is known');
	is(begin_claim($node, 'failed', @where)->{error}, 'declined', 'so is a failure');
	is(begin_claim($node, 'retryable', @where)->{outcome}, 'retry_later', 'a pause is kept');
	is(begin_claim($node, 'running', @where)->{outcome}, 'in_progress', 'a lease runs on');
	is(call($node, 'idem_complete', @where, key => 'running', token => $token{running}),
		't', 'and its holder can complete');
	like($stderr, qr/22004/, 'a policy holds');
	configure($node, 'idempotency.cleanup_interval' => '1s');
	is_swept($node, $database, 'and sweeping goes on');
	return;
}

# ---- an older server with records, and the dump of it ----

$old->start;
$old->safe_psql('postgres', 'CREATE EXTENSION idempotency');
fill();
my $before = contents($old, 'postgres');
my $new = PostgreSQL::Test::Cluster->new('new');
my $dump = $new->basedir . '/old.sql';
cmp_ok($old->pg_version, '<', $new->pg_version, 'from ' . $old->pg_version . ' to ' . $new->pg_version);
$new->command_ok([ 'pg_dump', '--file', $dump, '--dbname', $old->connstr('postgres') ],
	'the newer pg_dump reads the older server');
$old->stop;

subtest 'dump and restore' => sub {
	my $fresh = newer_node('fresh', %conf);

	$fresh->start;
	$fresh->safe_psql('postgres', 'CREATE DATABASE restored');
	$fresh->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', 'restored', '-f', $dump ],
		'is run');
	is(contents($fresh, 'restored'), $before, 'every column is the same');
	goes_on($fresh, 'restored');
	$fresh->stop;
};

subtest 'pg_upgrade' => sub {
	plan skip_all => 'these two servers cannot even upgrade a database without the extension'
	  unless servers_fit();
	init($new, %conf);
	ok(pg_upgrade($old, $new), 'is run');
	$new->start;
	is(contents($new, 'postgres'), $before, 'every column is the same');
	goes_on($new, 'postgres');
	$new->stop;
};

done_testing();
