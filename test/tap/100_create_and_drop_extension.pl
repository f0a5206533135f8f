# CREATE and DROP EXTENSION while launcher and sweepers are at work.
use Idem;
use Sweeping;

# A table like ours, in a schema of our name, made by a user.
my $look_alike = q{
	CREATE SCHEMA idempotency;
	CREATE TABLE idempotency.record (scope text, principal text, key text, status "char",
		retained_until timestamptz);
	INSERT INTO idempotency.record VALUES ('', '', 'theirs', 'c', '2000-01-01')};

my $creator;
my $node = sweeping_node('main',
	-prepare => sub {
		my ($node) = @_;
		add_database($node, $_, 'public') foreach qw(dropped restored swept);
		$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(bare foreign_schema);
		$node->safe_psql('foreign_schema', $look_alike);
		$creator = session($node, 'bare');
		ask($creator, $_) foreach 'BEGIN', 'CREATE EXTENSION idempotency';
	});

subtest 'schema of our name without the extension' => sub {
	wait_until { visits($node, 'foreign_schema') > 0 } 'the first visit';
	no_sweeper($node);
	is(records($node, 'foreign_schema'), '1', 'nothing in its tables is touched');
	is_deeply([ trouble($node, 0) ], [], 'and nothing is wrong with it');
};

subtest 'CREATE EXTENSION rolled back' => sub {
	wait_until { visits($node, 'bare') > 0 } 'a visit before the commit';
	# The sweeper does not wait for the session that creates the extension.
	no_sweeper($node);
	ask($creator, 'ROLLBACK');
	$creator->quit;
	# A new launcher has seen no database yet.
	$node->stop;
	my $size = log_size($node);
	$node->start;
	wait_until { visits($node, 'bare', $size) > 0 } 'a visit after it';
	no_sweeper($node);
	is_deeply([ trouble($node, 0) ], [], 'the database stays one without the extension');
};

subtest 'CREATE EXTENSION' => sub {
	my $plain = new_node('plain',
		'idempotency.cleanup_interval' => '1s',
		log_min_messages => 'debug1');

	add_expired($plain, 10);
	is_deeply([ workers($plain) ], [], 'not preloaded: nothing runs before the first claim');
	is(begin_claim($plain, 'first')->{outcome}, 'execute', 'the first claim');
	is_swept($plain, 'postgres', 'starts the launcher, which visits the database');
	my $launcher = launcher($plain);

	stay_due($plain, 'postgres');
	add_database($plain, 'late', 'public');
	add_expired($plain, 10, database => 'late');
	my $size = log_size($plain);
	is_swept($plain, 'late', 'a launcher that runs already finds it');
	# Meanwhile the other database is visited once per interval.
	my @late = (visits($plain, 'late', $size))[0] // ();
	cmp_ok(scalar(grep { !@late || $_ < $late[0] } visits($plain, 'postgres', $size)),
		'<=', 10, 'within ten intervals');
	is(launcher($plain), $launcher, 'and is still the same');
	$plain->stop;
};

subtest 'DROP EXTENSION' => sub {
	my $size = log_size($node);

	add_expired($node, 10, database => 'dropped');
	is_swept($node, 'dropped', 'swept before');
	$node->safe_psql('dropped', 'DROP EXTENSION idempotency');
	wait_for_visits($node, 'dropped', 2);
	my ($first, $second) = (visits($node, 'dropped'))[ -2, -1 ];
	cmp_ok($second - $first, '>', 9.5, 'later visits are ten intervals apart');
	is_deeply([ trouble($node, $size) ], [], 'and find nothing to complain of');
};

subtest 'DROP EXTENSION rolled back' => sub {
	my $session = session($node, 'restored');

	ask($session, $_) foreach 'BEGIN', 'DROP EXTENSION idempotency';
	wait_for_visits($node, 'restored', 2);
	ask($session, 'ROLLBACK');
	$session->quit;
	add_expired($node, 10, database => 'restored');
	is_swept($node, 'restored', 'sweeping goes on');
};

sub blocked_by_a_sweeper ($pid)
{
	return $node->safe_psql('postgres', qq{
		SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'idempotency sweeper' AND pid = ANY (pg_blocking_pids($pid))});
}

sub is_dropped ($pid)
{
	return $node->safe_psql('postgres', qq{
		SELECT pid FROM pg_stat_activity
		WHERE pid = $pid AND query LIKE 'DROP%' AND state = 'idle in transaction'});
}

# A sweeper stays at a gate for four seconds. If that was too short, the DROP is undone.
sub too_late ($session, $size)
{
	is(ask($session), '', 'DROP succeeds');
	return 0 unless log_since($node, $size, qr/canceling statement due to statement timeout/);
	ask($session, 'ROLLBACK');
	# Only the first error of a streak is logged.
	untrigger($node, 'swept');
	wait_for_visits($node, 'swept', 2);
	return 1;
}

subtest 'DROP EXTENSION during a sweep' => sub {
	my $session = session($node, 'swept');
	my $dropper = pid_of($session);
	my $size;

	configure($node, 'idempotency.cleanup_batch_size' => 1);
	do
	{
		$size = log_size($node);
		my $gate = close_gate($node, 'swept');
		add_expired($node, 1000, database => 'swept') if records($node, 'swept') eq '0';
		wait_for_sweeper($node, 'swept', q{wait_event = 'advisory'});
		ask($session, 'BEGIN');
		ask_later($session, 'DROP EXTENSION idempotency');
		wait_until { blocked_by_a_sweeper($dropper) || is_dropped($dropper) } 'DROP to wait';
		# From now on a batch takes long enough to show that no other comes between.
		trigger_on_delete($node, 'swept', 'PERFORM pg_catalog.pg_sleep(3600)');
		open_gate($gate);
	} while (too_late($session, $size));
	pass('it waits for the running batch');
	is(ask($session, 'COMMIT'), '', 'and goes first then');
	$session->quit;
	no_sweeper($node);
	is_deeply([ trouble($node, $size) ], [], 'which the sweeper does not mind');
	configure($node, 'idempotency.cleanup_batch_size' => 200);
};

$node->stop;
done_testing();
