# A full lock table, cancelled statements and timeouts: an error ends only that transaction, and
# neither a lock nor a row of it stays.
use Idem;

my $node = new_node('main',
	max_connections => 10,
	max_locks_per_transaction => 10,
	max_wal_senders => 0,
	max_worker_processes => 2);
my $session = session($node);
my $other = session($node);
my $pid = pid_of($session);

# Claims as many keys as the lock table allows and keeps them: only the failing call is undone.
$node->safe_psql('postgres', q{
	CREATE FUNCTION fill_lock_table() RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		n integer := 0;
	BEGIN
		LOOP
			n := n + 1;
			BEGIN
				PERFORM idem_begin('fill-' || n);
			EXCEPTION WHEN OTHERS THEN
				RETURN SQLSTATE;
			END;
		END LOOP;
	END $$;
	CREATE FUNCTION slow(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(1);
		RETURN request;
	END $$});

my $claim_locks = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18756};

# A claim that $other holds in an open transaction.
sub held_by_other ($key)
{
	ask($other, 'BEGIN');
	is(outcome_in($other, $key), 'execute', "$key: another transaction holds the key");
	return;
}

sub nothing_is_left ($key)
{
	is($node->safe_psql('postgres', $claim_locks), '0', "$key: no lock is left");
	is(record_state($node, $key), 'absent', "$key: no record either");
	return;
}

# Runs a call that has to wait, and cancels it during the wait.
sub cancelled ($what, $sql)
{
	ask_later($session, $sql);
	wait_until_blocked($node, $pid);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	is(ask($session), '57014', "$what is cancelled");
	return;
}

# One message to the server: the setting applies to this statement alone, which fails, and ends with
# it. A second message might come too late to reset it.
sub with_setting ($setting, $sql)
{
	return "SET $setting\\; $sql";
}

sub begin_waiting ($key)
{
	return 'SELECT outcome FROM ' . invocation('idem_begin', key => $key, wait => '1 hour');
}

subtest 'the lock table is full' => sub {
	my $reader = session($node);
	is(begin_claim($node, 'leased-before')->{outcome}, 'execute', 'a claim from before');
	is(ask($reader, q{SELECT idem_once('done-before')}), 't', 'and an answer');
	ask($other, 'BEGIN');
	is(outcome_in($other, 'mine'), 'execute', 'another session has a claim');

	ask($session, 'BEGIN');
	is(ask($session, 'SELECT fill_lock_table()'), '53200', 'begin meets the end of the lock table');
	is(outcome_in($reader, 'new'), '53200', 'as does a caller that would get a new claim');
	is(outcome_in($reader, 'done-before'), 'replay', 'who gets an answer needs no lock');
	is(outcome_in($reader, 'leased-before'), 'in_progress', 'a caller that has to retry does not');
	is(outcome_in($other, 'mine'), 'in_progress', 'and a claim is kept');
	is(ask($session, 'ROLLBACK'), '', 'all the claims are rolled back');
	is(ask($other, completion('mine')), 't', 'then it can be completed');
	is(ask($other, 'COMMIT'), '', 'and committed');
	is($node->safe_psql('postgres', $claim_locks), '0', 'all locks are given back');
	is(record_state($node, 'fill-1'), 'absent', 'and no claim is recorded');
	is(outcome_in($session, 'fill-1'), 'execute', 'the session goes on');
	is(outcome_in($reader, 'new'), 'execute', 'so does everybody');
	$reader->quit;
};

subtest 'one statement with more keys than locks' => sub {
	my $many = q{SELECT count(*) FROM generate_series(1, 100000) AS n, %s};
	my $begin = sprintf $many, q{idem_begin('many-' || n)};

	is(ask($session, $begin), '53200', 'too many open claims');
	nothing_is_left('many-1');
	is(ask($session, 'SELECT 1'), '1', 'the session goes on');
};

subtest 'idem_begin, waiting for a transaction' => sub {
	held_by_other('waits');
	cancelled('idem_begin', begin_waiting('waits'));
	is(outcome_in($session, 'waits'), 'in_progress', 'the holder has kept its claim');
	is(ask($session, with_setting(q{statement_timeout = '20ms'}, begin_waiting('waits'))),
		'57014', 'statement_timeout ends the wait');
	is(ask($session, with_setting(q{lock_timeout = '20ms'}, begin_waiting('waits'))),
		'55P03', 'lock_timeout, too');
	ask($other, 'ROLLBACK');
	nothing_is_left('waits');
	is(outcome_in($session, 'waits'), 'execute', 'then it is free');
};

subtest 'idem_begin, waiting for a lease' => sub {
	my $token = begin_claim($node, 'leased')->{token};

	ask_later($session, begin_waiting('leased'));
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Extension'"
		  . " FROM pg_stat_activity WHERE pid = $pid")
	  or die 'idem_begin does not wait';
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	is(ask($session), '57014', 'cancelled');
	is(ask($session, with_setting(q{statement_timeout = '20ms'}, begin_waiting('leased'))),
		'57014', 'statement_timeout ends the wait');
	is(ask($other, completion('leased', $token)), 't', 'the holder has kept its claim');
	is(ask($session, begin_waiting('leased')), 'replay', 'and the next is answered');
};

subtest 'idem_complete, waiting for a transaction on its claim' => sub {
	my $token = begin_claim($node, 'extended')->{token};

	ask($other, 'BEGIN');
	ask($other, 'SELECT ' . invocation('idem_extend', key => 'extended', token => $token));
	cancelled('idem_complete', completion('extended', $token));
	ask($other, 'COMMIT');
	is(record_state($node, 'extended'), 'in_progress', 'nothing is recorded');
	is(ask($session, completion('extended', $token)), 't', 'the next try is');
};

subtest 'idem_once' => sub {
	held_by_other('once');
	cancelled('idem_once', q{SELECT idem_once('once')});
	is(ask($session, q{SELECT idem_once('once', wait => '10ms')}), '55P03', 'or gives up');
	is(ask($other, completion('once')), 't', 'the holder has kept its claim');
	ask($other, 'COMMIT');
	is(ask($session, q{SELECT idem_once('once')}), 'f', 'and the next is answered');
};

subtest 'idem_execute' => sub {
	my $execute = q{SELECT outcome, status FROM idem_execute('run', 'slow(jsonb)', '{}')};

	ask($other, 'SELECT pg_advisory_lock(1)');
	cancelled('the operation', $execute);
	nothing_is_left('run');
	ask($other, 'SELECT pg_advisory_unlock(1)');
	is(ask($session, $execute), 'execute|completed', 'the next try runs it');
};

# A table lock that admits look-ups stops writers, and thus the call that grants a key. From then on
# no other writer comes between.
subtest 'where the row is written' => sub {
	my $stop_writers = 'LOCK TABLE idempotency.record IN SHARE MODE';

	ask($other, $_) foreach 'BEGIN', $stop_writers;
	cancelled('a grant', 'SELECT outcome FROM ' . invocation('idem_begin', key => 'commit'));
	ask($other, 'COMMIT');
	nothing_is_left('commit');
	is(join(', ', (claim_in($session, 'commit'))[0, 1]), 'execute, 1', 'begun anew');

	my (undef, undef, $token) = claim_in($session, 'write');
	ask($session, $_) foreach 'BEGIN', 'SAVEPOINT s';
	ask($other, $_) foreach 'BEGIN', $stop_writers;
	cancelled('idem_complete', completion('write', $token));
	ask($other, 'COMMIT');
	ask($session, 'ROLLBACK TO s');
	is(ask($session, completion('write', $token)), 't', 'after a savepoint the claim is still there');
	ask($session, 'COMMIT');
	is(record_state($node, 'write'), 'completed', 'and recorded');
};

subtest 'a holder that falls asleep' => sub {
	my $sleeper = session($node);
	my $sleeper_pid = pid_of($sleeper);

	ask($sleeper, q{SET idle_in_transaction_session_timeout = '20ms'});
	$sleeper->query_until(qr/execute/,
		"BEGIN\\; " . q{SELECT outcome FROM idem_begin('asleep');} . "\n");
	wait_until_gone($node, $sleeper_pid);
	nothing_is_left('asleep');
	is(join(', ', (claim_in($other, 'asleep'))[0, 1]), 'execute, 1', 'the key is free');
	$sleeper->quit;
};

$_->quit foreach $session, $other;
$node->stop;
done_testing();
