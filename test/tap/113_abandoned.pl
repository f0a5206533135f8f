# The sweeper decides abandoned claims: behind any number of others, with a line in the log and a
# count, and without delaying the removal of expired records.
use Idem;
use Sweeping;

# The server itself must not log the strings that the test looks for.
my $node = sweeping_node('main',
	log_statement => 'none',
	log_min_error_statement => 'panic',
	'idempotency.log_events' => 'problems');

# policy(scope, option => value, ...)
sub policy ($scope, @named)
{
	$node->safe_psql('postgres', 'SELECT ' . invocation('idem_policy_set', scope_pattern => $scope, @named));
	return;
}

sub statuses ($scope)
{
	return $node->safe_psql('postgres',
		"SELECT string_agg(key || ' ' || status, ', ' ORDER BY key) FROM idempotency.records WHERE scope = '$scope'");
}

sub become ($scope, $expected)
{
	$node->poll_query_until('postgres', "SELECT string_agg(key || ' ' || status, ', ' ORDER BY key) = '$expected'"
		  . " FROM idempotency.records WHERE scope = '$scope'")
	  or die "$scope: " . statuses($scope);
	return pass("$scope: $expected");
}

subtest 'each by its policy' => sub {
	policy($_, abandon_after => '1 ms', on_abandon => $_) foreach qw(fail release unknown);
	my $size = log_size($node);
	begin_claim($node, 'k', scope => $_, lease => '1 ms') foreach qw(fail release unknown other);
	begin_claim($node, 'long', scope => $_, lease => '1 hour') foreach qw(fail);
	become('fail', 'k failed, long in_progress');
	become('release', 'k retryable');
	become('unknown', 'k unknown');
	is(statuses('other'), 'k in_progress', 'a scope without the option: its claim stays');
	is_deeply(
		[ sort map { s/^.*? LOG:  idempotency: //r } log_since($node, $size, qr/idempotency: abandoned/) ],
		[ map { "abandoned=$_ scope=\"$_\" attempt=1" } qw(fail release unknown) ],
		'a line for each, without the key');
	is( $node->safe_psql('postgres',
			q{SELECT string_agg(scope || ' ' || abandoned, ', ' ORDER BY scope) FROM idempotency.stats
			  WHERE NOT total AND abandoned > 0}),
		'fail 1, release 1, unknown 1',
		'and counted');
	configure($node, 'idempotency.log_events' => 'off');
	$size = log_size($node);
	begin_claim($node, 'silent', scope => 'fail', lease => '1 ms');
	become('fail', 'k failed, long in_progress, silent failed');
	is_deeply([ log_since($node, $size, qr/idempotency: abandoned/) ], [], 'no line where nothing is logged');
};

subtest 'a session that holds' => sub {
	my $holder = session($node);
	claim_in($holder, 'held', scope => 'fail', lease => '1 ms', hold => \'true');
	my $visits = visits($node, 'postgres');
	begin_claim($node, 'after', scope => 'fail', lease => '1 ms');
	become('fail', 'after failed, held in_progress, k failed, long in_progress, silent failed');
	$holder->quit;
	become('fail', 'after failed, held failed, k failed, long in_progress, silent failed');
};

# A pass over claims that are not due, in batches of one; some have the same claim time.
subtest 'behind many others' => sub {
	configure($node, 'idempotency.cleanup_interval' => 0);
	begin_claim($node, "k$_", scope => 'others', lease => '1 ms') foreach 1 .. 10;
	$node->safe_psql('postgres', q{UPDATE idempotency.record SET claimed_at = now() - '1 hour'::interval, lease_until = now() - '1 hour'::interval
		WHERE scope = 'others' AND key IN ('k4', 'k5', 'k6')});
	begin_claim($node, $_, scope => 'behind', lease => '1 ms') foreach qw(last next);
	is(statuses('behind'), 'last in_progress, next in_progress', 'no caller has come');
	policy('behind', abandon_after => '1 ms', on_abandon => 'fail');
	configure($node, 'idempotency.cleanup_batch_size' => 1);
	configure($node, 'idempotency.cleanup_interval' => '1s');
	become('behind', 'last failed, next failed');
	policy('others', abandon_after => '1 ms', on_abandon => 'fail');
	become('others', join(', ', map { "k$_ failed" } 1, 10, 2 .. 9));
	configure($node, 'idempotency.cleanup_batch_size' => 200);
};

# The policies can't be read: the sweeper decides no claim, but removes expired records.
subtest 'a broken table of policies' => sub {
	$node->safe_psql('postgres', q{
		DELETE FROM idempotency.record;
		ALTER EXTENSION idempotency DROP VIEW idempotency.policies;
		DROP VIEW idempotency.policies;
		ALTER TABLE idempotency.policy RENAME COLUMN abandon_after TO given_up_after});
	add_expired($node, 10);
	is_swept($node, 'postgres', 'expired records are removed');
	wait_until { $node->safe_psql('postgres', 'SELECT failures > 0 FROM idempotency.sweeper') eq 't' }
	'the error is reported';
	$node->safe_psql('postgres', 'ALTER TABLE idempotency.policy RENAME COLUMN given_up_after TO abandon_after');
	begin_claim($node, 'k', scope => 'fail', lease => '1 ms');
	become('fail', 'k failed');
};

done_testing;
