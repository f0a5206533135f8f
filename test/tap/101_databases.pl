# Databases are dropped, renamed and copied while sweepers are at work in them. They come from a
# template whose records take minutes to remove, so that one visit follows another.
use Idem;
use Sweeping;

my $backlog = 2000;

my $node = sweeping_node('main',
	'idempotency.cleanup_batch_size' => 1,
	-prepare => sub {
		my ($node) = @_;
		add_database($node, 'ready', 'public');
		add_expired($node, $backlog, database => 'ready');
		trigger_on_delete($node, 'ready', 'PERFORM pg_catalog.pg_sleep(0.1)');
		$node->safe_psql('postgres', q{
			ALTER DATABASE ready WITH IS_TEMPLATE true;
			CREATE DATABASE closed TEMPLATE ready;
			ALTER DATABASE closed WITH ALLOW_CONNECTIONS false;
			CREATE DATABASE broken TEMPLATE ready;
			UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'broken'});
	});

# Creates a database in which a sweeper is at work when this returns.
sub create_busy ($name)
{
	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE ready");
	wait_for_sweeper($node, $name);
	return;
}

# A utility command succeeds, although a sweeper is at work when it starts.
sub succeeds ($database, $command)
{
	wait_for_sweeper($node, $database);
	succeeds_now($command);
	return;
}

sub succeeds_now ($command)
{
	my ($status, undef, $stderr) = $node->psql('postgres', $command);
	is("$status $stderr", '0 ', $command);
	return;
}

sub is_being_swept ($database, $why)
{
	my $before = records($node, $database);

	wait_until { records($node, $database) < $before } "a sweeper in $database";
	pass($why);
	return;
}

subtest 'invalid database' => sub {
	wait_for_visits($node, 'postgres', 2);
	is(visits($node, 'broken'), 0, 'left out');
	$node->safe_psql('postgres',
		q{UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'broken'});
	wait_for_sweeper($node, 'broken');
	pass('it would be visited, if it were valid');
	$node->safe_psql('postgres', 'DROP DATABASE broken WITH (FORCE)');
};

subtest 'template and no-connection databases' => sub {
	wait_for_visits($node, 'postgres', 2);
	is(visits($node, $_), 0, "$_: left out") foreach qw(ready closed template0 template1);
	$node->safe_psql('postgres', 'ALTER DATABASE closed WITH ALLOW_CONNECTIONS true');
	wait_for_sweeper($node, 'closed');
	pass('it would be visited, if it were open');
	$node->safe_psql('postgres', 'DROP DATABASE closed WITH (FORCE)');
	is_deeply([ trouble($node, 0) ], [], 'no connection was refused');
};

subtest 'DROP DATABASE' => sub {
	create_busy('dropped');
	cmp_ok(records($node, 'dropped'), '>', $backlog / 2, 'there is much to sweep');
	succeeds('dropped', 'DROP DATABASE dropped');
};

# The rest after such a batch would exceed the time that DROP DATABASE waits.
subtest 'DROP DATABASE after a batch that took long' => sub {
	create_busy('slow');
	trigger_on_delete($node, 'slow', 'PERFORM pg_catalog.pg_sleep(2.5)');
	is_being_swept('slow', 'such a batch has ended');
	succeeds_now('DROP DATABASE slow');
};

subtest 'CREATE DATABASE TEMPLATE' => sub {
	create_busy('original');
	succeeds('original', 'CREATE DATABASE copy TEMPLATE original');
	is_being_swept('copy', 'the copy is visited as a new database');
	is_being_swept('original', 'and the original goes on');
	$node->safe_psql('postgres', 'DROP DATABASE original WITH (FORCE)');
};

subtest 'RENAME' => sub {
	succeeds('copy', 'ALTER DATABASE copy RENAME TO moved');
	is_being_swept('moved', 'workers go by OID');
	$node->safe_psql('postgres', 'DROP DATABASE moved WITH (FORCE)');
};

subtest 'DROP DATABASE FORCE' => sub {
	my $launcher = launcher($node);

	create_busy('forced');
	trigger_on_delete($node, 'forced', 'PERFORM pg_catalog.pg_sleep(3600)');
	my $sweeper = wait_for_sweeper($node, 'forced', q{wait_event = 'PgSleep'});
	my $size = log_size($node);
	succeeds('forced', 'DROP DATABASE forced WITH (FORCE)');
	is( $node->safe_psql('postgres',
			"SELECT count(*) FROM pg_stat_activity WHERE pid = $sweeper"),
		'0', 'the sweeper is terminated');
	add_expired($node, 3);
	is_swept($node, 'postgres', 'the launcher goes on elsewhere');
	wait_for_visits($node, 'postgres', 2);
	is(launcher($node), $launcher, 'it is the same');
	is_deeply([ trouble($node, $size) ], [], 'and it forgets the database');
};

$node->stop;
done_testing();
