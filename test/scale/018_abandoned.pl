# Abandoned claims on every node: decided by idem_cleanup from any node, and by the sweeper of the
# node with the shard. A claim whose holder returns is left alone on each.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;

sub policy
{
	my ($scope, @named) = @_;

	call($coordinator, 'idem_policy_set', scope_pattern => $scope, @named);
	return;
}

sub statuses
{
	my ($scope) = @_;

	return $coordinator->safe_psql('postgres',
		"SELECT string_agg(key || ' ' || status, ', ' ORDER BY key) FROM idempotency.records WHERE scope = '$scope'");
}

# Two claims on each worker: one is abandoned, one alive.
sub claims_in
{
	my ($scope) = @_;

	foreach my $where ([ 'here', $here ], [ 'there', $there ])
	{
		my ($name, $principal) = @$where;
		begin_claim($coordinator, "left $name", scope => $scope, principal => $principal, lease => '1us');
		begin_claim($coordinator, "lives $name", scope => $scope, principal => $principal, lease => '1 hour');
	}
	return;
}

subtest 'idem_cleanup' => sub {
	claims_in($_) foreach qw(fail release unknown none);
	policy($_, abandon_after => '1us', on_abandon => $_) foreach qw(fail release unknown);
	is(call($worker1, 'idem_cleanup'), '0', 'from a worker, for all: nothing is removed');
	my %expected = (fail => 'failed', release => 'retryable', unknown => 'unknown', none => 'in_progress');
	is(statuses($_), "left here $expected{$_}, left there $expected{$_}, lives here in_progress, lives there in_progress", $_)
	  foreach sort keys %expected;
	is(begin_claim($worker2, 'left here', scope => 'release', principal => $here)->{attempt}, 2, 'released: the next attempt');
	is(begin_claim($worker1, 'left there', scope => 'fail', principal => $there)->{outcome}, 'replay', 'failed: replayed');
	is($coordinator->safe_psql('postgres', q{SELECT sum(abandoned) FROM idempotency.stats WHERE total}), '6',
		'counted by the nodes that did it');
};

subtest 'a key that another session decides about' => sub {
	claims_in('busy');
	policy('busy', abandon_after => '1us', on_abandon => 'fail');
	my $taker = session($worker2);
	ask($taker, 'BEGIN');
	is(outcome_in($taker, 'left here', scope => 'busy', principal => $here), 'execute', 'it is being taken over');
	is(call($coordinator, 'idem_cleanup'), '0', 'idem_cleanup does not wait');
	ask($taker, 'COMMIT');
	is(statuses('busy'), 'left here in_progress, left there failed, lives here in_progress, lives there in_progress',
		'and passes over it');
};

subtest 'sweepers' => sub {
	claims_in('swept');
	policy('swept', abandon_after => '1us', on_abandon => 'fail');
	foreach my $node (@nodes)
	{
		$node->append_conf('postgresql.conf', "idempotency.cleanup_interval = '1s'");
		$node->reload;
	}
	ok( $coordinator->poll_query_until('postgres',
			q{SELECT count(*) = 2 FROM idempotency.records WHERE scope = 'swept' AND status = 'failed'}),
		'each node gives up its own')
	  or diag($coordinator->safe_psql('postgres', 'SELECT * FROM idempotency.sweeper'));
	is(statuses('swept'), 'left here failed, left there failed, lives here in_progress, lives there in_progress', 'and no others');
	is($coordinator->safe_psql('postgres', 'SELECT sum(failures) FROM idempotency.sweeper'), '0', 'without an error');
};

done_testing;
