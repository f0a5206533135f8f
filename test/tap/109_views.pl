# idempotency.in_flight, abandoned and sweeper.
use Idem;
use Sweeping;

my $node = sweeping_node('main',
	max_prepared_transactions => 2,
	-prepare => sub { add_database($_[0], 'other', 'public') });

sub rows ($sql)
{
	return $node->safe_psql('postgres', $sql);
}

subtest 'in_flight' => sub {
	my $columns = 'SELECT kind, scope, key, attempt, holder, pid, application_name,'
	  . q{ age BETWEEN '0' AND '1 h' AS young, lease_until > now() FROM idempotency.in_flight};

	is(rows($columns), '', 'nothing');
	my $token = begin_claim($node, 'k1', scope => 's', lease => '1 h', holder => 'worker-7')->{token};
	is(rows($columns), 'leased|s|k1|1|worker-7|||t|t', 'a leased claim');
	call($node, 'idem_complete', key => 'k1', scope => 's', token => $token);
	is(rows($columns), '', 'completed');

	my $session = session($node);
	my $pid = pid_of($session);
	ask($session, $_) foreach q{SET application_name = 'shop'}, 'BEGIN';
	is(outcome_in($session, 'k2'), 'execute', 'a transaction has a claim');
	is(rows($columns), "transactional|||||$pid|shop|t|", 'which is known by its lock');
	my $waiter = session($node);
	my $waiting = pid_of($waiter);
	ask_later($waiter, 'SELECT outcome FROM ' . invocation('idem_begin', key => 'k2', wait => '1 h'));
	wait_until_blocked($node, $waiting);
	is(rows('SELECT pid FROM idempotency.in_flight'), $pid, 'who waits for it executes nothing');
	end_backend($node, $waiting);
	abandon($waiter);
	ask($session, q{PREPARE TRANSACTION 'k2'});
	is(rows('SELECT kind, pid FROM idempotency.in_flight'), 'prepared|', 'prepared');
	ask($session, q{COMMIT PREPARED 'k2'});
	is(rows('SELECT kind, key, pid FROM idempotency.in_flight'), 'leased|k2|', 'and committed');
	ask($session, q{SELECT idem_resolve('k2', 'fail')});
	is(rows($columns), '', 'nothing again');

	is(outcome_in($session, 'k3', hold => \'true', lease => '1 h'), 'execute', 'a held claim');
	is(rows('SELECT kind, key FROM idempotency.in_flight'), 'leased|k3', 'is there once');
	$session->quit;
	call($node, 'idem_resolve', key => 'k3', action => 'fail');

	my $elsewhere = session($node, 'other');
	ask($elsewhere, 'BEGIN');
	is(outcome_in($elsewhere, $_), 'execute', "$_ in another database") foreach qw(k4 k5);
	is(rows($columns), '', 'is not seen here');
	is($node->safe_psql('other', 'SELECT count(*) FROM idempotency.in_flight'), '2', 'but there');
	$elsewhere->quit;
};

subtest 'abandoned' => sub {
	my $columns = 'SELECT scope, key, status, attempt, holder, recovery_point,'
	  . q{ overdue BETWEEN '0' AND '1 h' FROM idempotency.abandoned ORDER BY key};

	is(rows($columns), '', 'nothing');
	my $token = begin_claim($node, 'a1', scope => 's', holder => 'worker-7')->{token};
	call($node, 'idem_checkpoint', key => 'a1', scope => 's', token => $token,
		recovery_point => 'charged', lease => '1 ms');
	call($node, 'idem_policy_set', scope_pattern => 'u', on_lease_expiry => 'unknown');
	begin_claim($node, 'a2', scope => 'u', lease => '1 ms');
	begin_claim($node, 'a3', lease => '1 h');
	is( rows($columns),
		"s|a1|in_progress|1|worker-7|charged|t\nu|a2|unknown|1|||t",
		'claims without a takeover');
	is(rows('SELECT key FROM idempotency.in_flight'), 'a3', 'which no session executes');
	is(begin_claim($node, 'a1', scope => 's', lease => '1 h')->{attempt}, '2', 'taken over');
	call($node, 'idem_resolve', key => 'a2', scope => 'u', action => 'fail');
	is(rows($columns), '', 'and resolved: nothing again');
};

subtest 'sweeper' => sub {
	my $columns = 'SELECT database, last_rows, total_rows, backlog, failures, last_error'
	  . ' FROM idempotency.sweeper';
	my $launcher = launcher($node);

	is(rows('SELECT launcher_pid FROM idempotency.sweeper'), $launcher, 'the launcher');
	$node->poll_query_until('postgres', 'SELECT last_run IS NOT NULL FROM idempotency.sweeper')
	  or die 'no run is noted';
	is(rows($columns), 'postgres|0|0|0|0|', 'before the first removal');

	my $gate = close_gate($node, 'postgres');
	hold_back($node);
	begin_claim($node, 'open', ttl => '1 ms', lease => '1 ms');
	add_expired($node, 10);
	is(rows($columns), 'postgres|0|0|0|0|', 'records within the grace are no backlog');
	let_go($node);
	wait_for_sweeper($node, 'postgres', q{wait_event = 'advisory'});
	# Whatever happens to a sweeper that waits there for too long.
	is(rows('SELECT database, last_rows, total_rows, backlog FROM idempotency.sweeper'),
		'postgres|0|0|10', 'a backlog, without what has no result');
	my $before = rows('SELECT now()');
	open_gate($gate);
	# A following idle visit leaves the journal unchanged for a while.
	$node->poll_query_until('postgres', 'SELECT total_rows = 10 FROM idempotency.sweeper')
	  or die 'no removal is noted';
	like(rows($columns), qr/^postgres\|(?:10|0)\|10\|0\|0\|/, 'it is gone');
	is(rows("SELECT last_run > timestamptz '$before' - interval '1 min' AND last_run < now()"
			. q{ AND last_duration BETWEEN '0' AND '1 h' FROM idempotency.sweeper}),
		't', 'when, and how long it took');
};

$node->stop;
done_testing();
