# A session that waits for a leased claim is woken when the transaction that ends the claim commits.
# A waiter that is not woken looks again after ten seconds, as deadlock_timeout is longer than that.
# So as many of them as the loop below has could not be answered before the test times out.
use Idem;
use Time::HiRes qw(time);

my $node = new_node('main',
	shared_preload_libraries => 'idempotency',
	deadlock_timeout => '1h',
	max_prepared_transactions => 2);
my $waiter = session($node);
my $pid = pid_of($waiter);
my $holder = session($node);

# The token of a leased claim that the waiter waits for.
sub waited_for ($key, %named)
{
	my (undef, undef, $token) = claim_in($holder, $key, lease => '1 hour', %named);
	ask_later($waiter,
		'SELECT outcome FROM ' . invocation('idem_begin', key => $key, wait => '2 hours'));
	is_asleep($key);
	return $token;
}

sub is_asleep ($key)
{
	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid")
	  or die "no wait for $key";
	return;
}

# How a claim can end, with what its waiter is told.
my %ends = (
	complete => [ replay => sub ($key, $token) { completion($key, $token) } ],
	fail => [ replay => sub ($key, $token)
		{ 'SELECT ' . invocation('idem_fail', key => $key, token => $token) } ],
	'fail for now' => [ retry_later => sub ($key, $token)
		{ 'SELECT ' . invocation('idem_fail', key => $key, token => $token, retryable => \'true') } ],
	unknown => [ unknown => sub ($key, $token)
		{ 'SELECT ' . invocation('idem_unknown', key => $key, token => $token) } ],
	release => [ execute => sub ($key, $token)
		{ 'SELECT ' . invocation('idem_release', key => $key, token => $token) } ],
	resolve => [ replay => sub ($key, $token)
		{ 'SELECT ' . invocation('idem_resolve', key => $key, action => 'complete') } ]);

my $rounds = 1 + int($PostgreSQL::Test::Utils::timeout_default / 9 / keys %ends);
my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

foreach my $round (1 .. $rounds)
{
	foreach my $how (sort keys %ends)
	{
		my ($told, $end) = $ends{$how}->@*;
		my $key = "$how $round";
		my $token = waited_for($key);

		ask($holder, $end->($key, $token));
		is(ask($waiter), $told, "$key: $told");
	}
}
ok(time < $deadline, 'the waiters were woken');

subtest 'an end that is rolled back' => sub {
	my $token = waited_for('undone');

	ask($holder, 'BEGIN');
	ask($holder, completion('undone', $token));
	ask($holder, 'ROLLBACK');
	is_asleep('undone');
	ask($holder, completion('undone', $token));
	is(ask($waiter), 'replay', 'wakes no session, and the next end does');
};

subtest 'a savepoint, and many ends in one transaction' => sub {
	my @tokens = map { (claim_in($holder, "many $_", lease => '1 hour'))[2] } 1 .. 40;
	my $token = waited_for('with many');

	ask($holder, 'BEGIN');
	ask($holder, 'SAVEPOINT s');
	ask($holder, completion("many $_", $tokens[ $_ - 1 ])) foreach 1 .. 40;
	ask($holder, 'ROLLBACK TO s');
	ask($holder, completion('with many', $token));
	ask($holder, 'COMMIT');
	is(ask($waiter), 'replay', 'woken');
};

subtest 'a prepared transaction' => sub {
	my $token = waited_for('prepared');

	ask($holder, 'BEGIN');
	ask($holder, completion('prepared', $token));
	ask($holder, q{PREPARE TRANSACTION 'p'});
	ask($holder, q{COMMIT PREPARED 'p'});
	is(ask($waiter), 'replay', 'is found by looking again');
};

subtest 'the lease expires' => sub {
	claim_in($holder, 'expires', lease => '2s');
	is(outcome_in($waiter, 'expires', wait => '2 hours'), 'execute', 'granted to the waiter');
};

subtest 'the wait is canceled' => sub {
	my $token = waited_for('canceled');

	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	is(ask($waiter), '57014', 'canceled');
	is(ask($holder, completion('canceled', $token)), 't', 'the end meets no waiter');
	is(outcome_in($waiter, 'canceled'), 'replay', 'and the session goes on');
};

subtest 'the waiter is killed' => sub {
	my $token = waited_for('killed');

	end_backend($node, $pid);
	abandon($waiter);
	is(ask($holder, completion('killed', $token)), 't', 'its slot wakes no process in its place');
};

done_testing();
