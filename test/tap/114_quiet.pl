# The launcher does not visit a database in which nothing is due, however short the interval, until
# something is due there or a session has written.
use Idem;
use Sweeping;

my $node = sweeping_node('main',
	max_prepared_transactions => 2,
	-prepare => sub {
		my ($node) = @_;
		add_database($node, 'beat', 'public');
		stay_due($node, 'beat');
		add_expired($node, 1);
		$node->safe_psql('postgres', $_)
		  foreach 'CREATE TABLE kept AS SELECT * FROM idempotency.record', 'CREATE DATABASE without';
	});

# is_left_alone($node, $database): waits until another database, which is due at each interval, has
# had three visits and this one none.
sub is_left_alone ($node, $database, $why = undef)
{
	wait_until
	{
		my ($before, $beat) = map { scalar visits($node, $_) } $database, 'beat';
		wait_until { visits($node, 'beat') >= $beat + 3 } 'visits of another database';
		visits($node, $database) == $before
	}
	"$database to be left alone";
	pass($why) if $why;
	return;
}

sub is_visited ($database, $why)
{
	my $before = visits($node, $database);

	wait_until { visits($node, $database) > $before } $why;
	pass($why);
	return;
}

# The launcher's long-lived allocations, in bytes.
sub memory
{
	my $size = log_size($node);
	my $used;

	$node->safe_psql('postgres', 'SELECT pg_log_backend_memory_contexts(' . launcher($node) . ')');
	wait_until
	{
		($used) = map { /(\d+) used/ } log_since($node, $size, qr/TopMemoryContext: /);
		defined $used
	}
	'the memory of the launcher';
	return $used;
}

# become($sql, 'why'): waits until the answer is true, and writes nothing meanwhile.
sub become ($sql, $why)
{
	ok($node->poll_query_until('postgres', "SELECT $sql"), $why);
	return;
}

subtest 'nothing is due' => sub {
	is_left_alone($node, 'postgres', 'an empty table');
	is_left_alone($node, 'without', 'a database without the extension');
	add_expired($node, 10, ended => '-1 hour', key => 'young-');
	# Claims in progress, however many, never become due by age.
	$node->safe_psql('postgres', q{
		INSERT INTO idempotency.record (scope, principal, key, status, attempt, token, lease_us,
			created_at, claimed_at, lease_until, expires_at, retained_until)
		SELECT '', '', 'open-' || n, 'i', 1, n, 1, t, t, t, t, t
		FROM generate_series(1, 100) AS n, CAST(now() - interval '1 hour' AS timestamptz) AS t});
	is_left_alone($node, 'postgres', 'records that are not due, and claims without a result');
};

# Each due time is written in advance, and then no session writes.
subtest 'the time comes' => sub {
	configure($node, 'idempotency.audit_retention' => '1h');
	add_expired($node, 10, ended => '-10 seconds');
	is_left_alone($node, 'postgres');
	become(q{NOT EXISTS (SELECT FROM idempotency.record WHERE key LIKE 'old-%')}, 'of records');

	$node->safe_psql('postgres', q{
		INSERT INTO idempotency.attempt (scope, principal, key, attempt, token, begun, ended, how, retained_until)
		SELECT '', '', 'k', 1, 1, now(), now(), 'failed', now() + interval '10 s'});
	is_left_alone($node, 'postgres');
	become(q{NOT EXISTS (SELECT FROM idempotency.attempt)}, 'of attempts');

	$node->safe_psql('postgres', q{
		INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as)
		SELECT now() - interval '1 hour' + interval '10 s', 'forget', 'me', 'me'});
	is_left_alone($node, 'postgres');
	become(q{NOT EXISTS (SELECT FROM idempotency.audit WHERE action = 'forget')}, 'of decisions');

	# Claims of other scopes with expired leases are never due.
	$node->safe_psql('postgres', 'SELECT '
		  . invocation('idem_policy_set', scope_pattern => 's', abandon_after => '5 s', on_abandon => 'fail'));
	begin_claim($node, 'k', scope => 's', lease => '5 s');
	is_left_alone($node, 'postgres');
	become(q{status = 'failed' FROM idempotency.records WHERE scope = 's'}, 'of claims');
	is_left_alone($node, 'postgres', 'and then nothing is due again');
};

subtest 'a session writes' => sub {
	my $session = session($node);

	add_expired($node, 10);
	is_swept($node, 'postgres', 'a record with a shorter life');

	is_left_alone($node, 'postgres');
	my $file = PostgreSQL::Test::Utils::tempdir() . '/records';
	$node->safe_psql('postgres', qq{\\copy kept TO '$file'});
	is_left_alone($node, 'postgres');
	$node->safe_psql('postgres', qq{\\copy idempotency.record FROM '$file'});
	is_swept($node, 'postgres', 'COPY');

	# Visits before the commit see nothing, and count nothing.
	ask($session, $_)
	  foreach 'BEGIN', q{INSERT INTO idempotency.record SELECT * FROM kept};
	is_left_alone($node, 'postgres');
	ask($session, 'COMMIT');
	is_swept($node, 'postgres', 'a transaction that was open for long');
	ask($session, $_)
	  foreach 'BEGIN', q{INSERT INTO idempotency.record SELECT * FROM kept}, q{PREPARE TRANSACTION 'p'};
	is_left_alone($node, 'postgres');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	is_swept($node, 'postgres', 'a prepared one');
	$session->quit;

	is_left_alone($node, 'without');
	$node->safe_psql('without', 'CREATE EXTENSION idempotency');
	add_expired($node, 10, database => 'without');
	is_swept($node, 'without', 'CREATE EXTENSION');
};

subtest 'counters that tell nothing' => sub {
	is_left_alone($node, 'postgres');
	$node->safe_psql('postgres', 'SELECT pg_stat_reset()');
	is_visited('postgres', 'they are reset');

	is_left_alone($node, 'postgres');
	configure($node, track_counts => 'off');
	is_visited('postgres', "nothing is counted: visit $_") foreach 1 .. 3;
	configure($node, track_counts => 'on');
};

subtest 'settings change what is due' => sub {
	hold_back($node);
	add_expired($node, 10);
	is_left_alone($node, 'postgres');
	let_go($node);
	is_swept($node, 'postgres', 'a shorter grace');
};

# The server then gives each look-up a separate copy.
subtest 'looks leave nothing behind' => sub {
	configure($node, stats_fetch_consistency => 'none');
	is_left_alone($node, 'postgres');
	my $before = memory();
	is_left_alone($node, 'postgres') foreach 1 .. 3;
	cmp_ok(memory() - $before, '<', 1000, 'nine visits later');
};

$node->stop;

subtest 'not preloaded' => sub {
	my $plain = new_node('plain',
		'idempotency.cleanup_interval' => '1s',
		log_min_messages => 'debug1');

	add_database($plain, 'beat', 'public');
	stay_due($plain, 'beat');
	is(begin_claim($plain, 'first')->{outcome}, 'execute', 'the first claim starts the launcher');
	is_left_alone($plain, 'postgres', 'nothing is due');
	add_expired($plain, 10);
	is_swept($plain, 'postgres', 'a session writes');
	$plain->stop;
};

done_testing();
