# From the oldest version to the current one: what was stored stays, callers go on, and afterwards
# the database is as if the current version had been installed. And the time in between, when
# library and SQL objects are of different versions.
use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use Idem;
use Sweeping;

my $root = "$FindBin::RealBin/../..";
my ($current) = slurp_file("$root/idempotency.control") =~ /^default_version\s*=\s*'([^']+)'/m;
my ($oldest) = sort { version_number($a) <=> version_number($b) }
  map { m{--(\d+\.\d+\.\d+)\.sql$} ? $1 : () } glob "$root/sql/idempotency--*.sql";

my $half_updated = qr/ERROR:  55000: extension "idempotency" is half updated\n.*/s;
my $node = sweeping_node('main', max_prepared_transactions => 10);

sub version_number
{
	my ($version) = @_;
	my @parts = split /\./, $version;

	return $parts[0] * 1_000_000 + $parts[1] * 1000 + $parts[2];
}

# A database with the objects of the oldest version.
sub old_database
{
	my ($name) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, "CREATE EXTENSION idempotency VERSION '$oldest'");
	return;
}

sub update
{
	my ($database) = @_;

	$node->safe_psql($database, 'ALTER EXTENSION idempotency UPDATE');
	return;
}

# Makes the objects claim another version than they have, as a script to that version would.
sub pretend
{
	my ($database, $version) = @_;

	$node->safe_psql($database, qq{
		UPDATE pg_extension SET extversion = '$version' WHERE extname = 'idempotency';
		ALTER TABLE idempotency.record RESET (parallel_workers)});
	return;
}

# What the server says of a statement, with everything.
sub complaint
{
	my ($database, $sql) = @_;
	my (undef, undef, $stderr) = $node->psql($database, "\\set VERBOSITY verbose\n$sql");

	return $stderr;
}

isnt($oldest, $current, "the oldest version is $oldest, the current one $current");
is($node->safe_psql('postgres', qq{
		SELECT string_agg(v.version, ', ')
		FROM pg_available_extension_versions AS v
		LEFT JOIN pg_extension_update_paths('idempotency') AS p
			ON p.source = v.version AND p.target = '$current'
		WHERE v.name = 'idempotency' AND v.version <> '$current' AND p.path IS NULL}),
	'', 'from each version a path leads to the current one');

subtest 'objects older than the library' => sub {
	old_database('late');
	my $size = log_size($node);
	my $session = session($node, 'late');

	like(complaint('late', q{SELECT idem_begin('key')}),
		qr/$half_updated
			DETAIL:\ \ .*library\ is\ of\ version\ \Q$current\E.*objects.*of\ version\ \Q$oldest\E\.\n
			HINT:\ \ Run\ ALTER\ EXTENSION\ idempotency\ UPDATE\./x,
		'a call says which is older, and what to do');
	is(ask($session, $_), '55000', "refused: $_")
	  foreach q{SELECT idem_once('key')}, q{SELECT idem_get('key')}, q{SELECT idem_cleanup()};
	is(ask($session, q{SELECT idem_key('order', '7')}), 'order:7', 'a pure helper is not');
	wait_for_visits($node, 'late', 2);
	is(scalar(() = log_since($node, $size, qr/LOG|ERROR:  extension "idempotency" is half/)) > 0,
		1, 'the sweeper says so, too');
	update('late');
	is(outcome_in($session, 'key'), 'execute', 'after the update the same session is served');
	$session->quit;
};

subtest 'library older than the objects' => sub {
	add_database($node, 'early', 'public');
	my $session = session($node, 'early');
	my $holder = session($node, 'early');

	is(outcome_in($session, 'before'), 'execute', 'a session is at work');
	ask($holder, 'BEGIN');
	is(outcome_in($holder, 'open'), 'execute', 'another has an open claim');
	pretend('early', '99.0.0');
	like(complaint('early', q{SELECT idem_begin('key')}),
		qr/$half_updated version\ 99\.0\.0\.\n HINT:\ \ Install\ the\ library.*restart\ the\ server/x,
		'a call says what to do');
	is(ask($session, q{SELECT idem_begin('key')}), '55000', 'also in the session at work');
	is(ask($holder, 'COMMIT'), '55000', 'and the open claim cannot be kept');
	is(record_state($node, 'open', 'early'), 'absent', 'which leaves nothing');
	pretend('early', $current);
	is(outcome_in($session, 'key'), 'execute', 'equal again, all goes on');
	$_->quit foreach $session, $holder;
};

# ---- what is stored ----

# Columns that the oldest version has.
sub columns_of
{
	my ($table) = @_;

	return $node->safe_psql('stored', qq{
		SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'idempotency.$table'::regclass AND attnum > 0 AND NOT attisdropped});
}

sub contents
{
	my ($table, $columns) = @_;

	return $node->safe_psql('stored', "SELECT $columns FROM idempotency.$table ORDER BY $columns");
}

# The library writes no objects of the oldest version, so the current version makes the rows, and
# what the oldest one would have stored of them is copied.
sub carry_over
{
	my ($from, $table) = @_;
	my $columns = columns_of($table);
	my $file = $node->basedir . "/$table.copy";

	$node->safe_psql($from, "COPY idempotency.$table ($columns) TO '$file'");
	$node->safe_psql('stored', "COPY idempotency.$table ($columns) FROM '$file'");
	return $columns;
}

# One record in each state, and a policy. Returns the tokens of the open claims.
sub fill
{
	my ($database) = @_;
	my @where = (-database => $database);
	my %token = map { $_ => begin_claim($node, $_, @where, request => '{"amount": 1}',
			lease => '1 hour')->{token} } qw(completed failed retryable running late);
	my $end = sub {
		my ($function, $key, %named) = @_;
		call($node, $function, @where, key => $key, token => $token{$key}, %named);
	};

	$end->('idem_complete', 'completed', status_code => 201, body => \"'\\x00ff'::bytea",
		headers => '{"Location": "/1"}');
	$end->('idem_fail', 'failed', error => 'declined', status_code => 402);
	$end->('idem_fail', 'retryable', retryable => \'true', retry_after => '1 hour');
	$end->('idem_checkpoint', 'running', recovery_point => 'half', state => '{"n": 1}');
	call($node, 'idem_policy_set', @where, scope_pattern => 'strict*', key_required => \'true',
		ttl => '7 days', exclude_fields => '{sent_at}');
	return %token;
}

subtest 'records, claims and policies' => sub {
	add_database($node, 'maker', 'public');
	old_database('stored');
	my %token = fill('maker');
	my %columns = map { $_ => carry_over('maker', $_) } qw(record policy);
	my %before = map { $_ => contents($_, $columns{$_}) } keys %columns;
	my @where = (-database => 'stored');
	my $strict = q{SELECT idem_begin(NULL, scope => 'strict/1')};

	is(scalar(split /\n/, $before{record}), 5, 'there is something to keep');
	update('stored');
	is(contents($_, $columns{$_}), $before{$_}, "every column of every $_ is the same")
	  foreach sort keys %columns;
	is(begin_claim($node, 'completed', @where)->{body}, '\\x00ff', 'an answer is replayed');
	is(begin_claim($node, 'completed', @where, request => '{"amount": 2}')->{outcome},
		'mismatch', 'its fingerprint is known');
	is(begin_claim($node, 'failed', @where)->{error}, 'declined', 'so is a failure');
	is(begin_claim($node, 'retryable', @where)->{outcome}, 'retry_later', 'a pause is kept');
	is(begin_claim($node, 'running', @where)->{outcome}, 'in_progress', 'a lease runs on');
	is(call($node, 'idem_complete', @where, key => $_, token => $token{$_}),
		't', "$_: the holder can complete")
	  foreach qw(running late);
	like(complaint('stored', $strict), qr/ERROR:  22004/, 'a policy holds');
	add_expired($node, 10, database => 'stored');
	is_swept($node, 'stored', 'and sweeping begins');
};

# ---- under load ----

# Each round is a transaction with two effects, one of which the other workers try as well.
my $load = q{
	CREATE TABLE stop ();
	CREATE TABLE effect (worker int, round int, key text);
	CREATE TABLE refused (worker int, round int);
	CREATE PROCEDURE load(worker int) LANGUAGE plpgsql AS $$
	DECLARE
		round int := 0;
	BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP
			round := round + 1;
			BEGIN
				INSERT INTO effect SELECT worker, round, key
				FROM unnest(ARRAY[format('own-%s-%s', worker, round), format('common-%s', round)]) AS key
				WHERE idem_once(key);
			EXCEPTION WHEN object_not_in_prerequisite_state THEN
				INSERT INTO refused VALUES (worker, round);
			END;
			COMMIT;
		END LOOP;
	END $$};

my $all_were = 'SELECT count(DISTINCT worker) = 2 FROM ';
my $change = q{
	SELECT bool_and(r.last < e.first)
	FROM (SELECT worker, max(round) AS last FROM refused GROUP BY worker) AS r
	JOIN (SELECT worker, min(round) AS first FROM effect GROUP BY worker) AS e USING (worker)};
my $twice_and_unrecorded = q{
	SELECT count(*) - count(DISTINCT e.key), count(*) FILTER (WHERE r.key IS NULL)
	FROM effect AS e LEFT JOIN idempotency.records AS r ON r.key = e.key AND r.status = 'completed'};

subtest 'under load' => sub {
	old_database('busy');
	$node->safe_psql('busy', $load);
	my @sessions = map { session($node, 'busy') } 1 .. 2;

	ask_later($sessions[ $_ - 1 ], "CALL load($_)") foreach 1 .. 2;
	$node->poll_query_until('busy', "$all_were refused") or die 'not all are refused';
	update('busy');
	ok($node->poll_query_until('busy', "$all_were effect"), 'sessions at work are served');
	$node->safe_psql('busy', 'INSERT INTO stop DEFAULT VALUES');
	is(ask($_), '', 'nothing else went wrong') foreach @sessions;
	is($node->safe_psql('busy', $change), 't', 'refused until the update, and not once after it');
	is($node->safe_psql('busy', $twice_and_unrecorded), '0|0', 'each effect came once, with its record');
	$_->quit foreach @sessions;
};

# ---- as if new ----

# Everything that belongs to the extension, as SQL. Only pg_upgrade's way to dump includes the
# members of extensions. OIDs and file numbers are each database's own.
sub definition
{
	my ($database) = @_;
	my ($sql) = run_command([ 'pg_dump', '--binary-upgrade', '--schema-only', '-d',
			$node->connstr($database) ]);

	$sql =~ s/^SELECT pg_catalog\.binary_upgrade_set_next_\w+\(\K.*//mg;
	$sql =~ s/(WHERE oid = )'\d+'/${1}OID/g;
	$sql =~ s/'\{[\d,]+\}'/OIDS/g;
	return [ grep { !/relfrozenxid|^\\(?:un)?restrict / } split /\n/, $sql ];
}

subtest 'as if the current version had been installed' => sub {
	old_database('updated');
	update('updated');
	add_database($node, 'fresh', 'public');
	my ($updated, $fresh) = map { definition($_) } qw(updated fresh);
	my $dumped = q{SELECT extconfig::regclass[] FROM pg_extension WHERE extname = 'idempotency'};

	ok((grep { /^CREATE VIEW idempotency\.in_flight / } @$fresh), 'the objects are looked at');
	is_deeply($updated, $fresh, 'every object is the same');
	is($node->safe_psql('updated', $dumped), $node->safe_psql('fresh', $dumped), 'as is what is dumped');
};

# Copies a folder of regression files. The database of the test begins with the oldest version.
sub copy_with_old_start
{
	my ($name, $target) = @_;

	mkdir "$target/$name" or die "cannot make $target/$name: $!";
	copy($_, "$target/$name") or die "cannot copy $_: $!" foreach glob "$root/$name/*.*";
	foreach my $file (glob "$target/$name/01_setup.*")
	{
		my $content = slurp_file($file);
		$content =~ s/^CREATE EXTENSION idempotency;$/CREATE EXTENSION idempotency VERSION '$oldest';\nALTER EXTENSION idempotency UPDATE;/m
		  or die "$file does not create the extension";
		unlink $file;
		append_to_file($file, $content);
	}
	return;
}

subtest 'the regression tests' => sub {
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my @tests = sort grep { !/^idempotency--/ } map { m{([^/]+)\.sql$} } glob "$root/sql/*.sql";

	configure($node, 'idempotency.cleanup_interval' => '0');
	copy_with_old_start($_, $folder) foreach qw(sql expected);
	$node->command_ok(
		[
			$ENV{PG_REGRESS}, '--encoding=UTF8', '--no-locale',
			'--bindir=' . $node->config_data('--bindir'),
			"--inputdir=$folder", "--outputdir=$folder",
			'--host=' . $node->host, '--port=' . $node->port, @tests
		],
		'pass in an updated database');
	diag slurp_file("$folder/regression.diffs") if -s "$folder/regression.diffs";
};

$node->stop;
done_testing();
