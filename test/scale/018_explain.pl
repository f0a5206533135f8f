# idem_explain on a distributed table: called on any node and in any form, it describes the node
# with the tenant's records, agrees with idem_begin, and names the session there.
use JSON::PP ();
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;
my %node_of = ($here => $worker1, $there => $worker2);
$coordinator->safe_psql('postgres', q{
	SELECT idem_policy_set('pay', store_request => true, on_lease_expiry => 'unknown');
	CREATE ROLE clerk LOGIN;
	SELECT idem_grant('clerk', operator => true)});

# explained($node, $key, $tenant, ...): the answer as a hash.
sub explained
{
	my ($node, $key, $tenant, %named) = @_;
	my $role = delete $named{-role};

	my $json = $node->safe_psql('postgres',
		'SELECT row_to_json(e) FROM ' . invocation('idem_explain', key => $key, principal => $tenant, scope => 'pay', %named) . ' e',
		extra_params => $role ? [ '-U', $role ] : []);
	return JSON::PP->new->decode($json);
}

sub told
{
	my ($answer) = @_;
	return join(' ', map { $_ // '-' } @$answer{qw(outcome reason)}, $answer->{holder}{kind});
}

sub told_everywhere
{
	my ($key, $tenant, $expected, $what) = @_;

	is(told(explained($_, $key, $tenant)), $expected, "$what, asked on " . $_->name) foreach @nodes;
	return;
}

foreach my $tenant ($here, $there)
{
	subtest "of $tenant" => sub {
		my $place = $node_of{$tenant};
		my $name = $place->host . ':' . $place->port;
		told_everywhere('k', $tenant, 'execute no_record -', 'nothing is known');

		foreach my $from (@nodes)
		{
			my $session = session($from);
			ask($session, 'BEGIN');
			is(outcome_in($session, 'k', principal => $tenant, scope => 'pay'), 'execute', 'begun on ' . $from->name);
			foreach my $node (@nodes)
			{
				my $answer = explained($node, 'k', $tenant);
				is(told($answer), 'in_progress held transaction', 'held, asked on ' . $node->name);
				is($answer->{node}, $name, 'on the node that has the records');
				is($place->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $answer->{holder}{pid}"),
					1, 'by a backend that is there');
			}
			ask($session, 'ROLLBACK');
			$session->quit;
		}

		is(begin_claim($coordinator, 'k', request => '{"amount": 1}', principal => $tenant, scope => 'pay')->{outcome},
			'execute', 'a claim');
		told_everywhere('k', $tenant, 'in_progress leased -', 'leased');
		foreach my $node (@nodes)
		{
			my $answer = explained($node, 'k', $tenant, request => '{"amount": 2}', -role => 'clerk');
			is(told($answer), 'mismatch other_request -', 'a mismatch');
			is_deeply($answer->{request}{differ}, [ { path => '$.amount', how => 'changed' } ], 'and where');
			is($answer->{policy}{on_lease_expiry}{origin}, 'pay', 'the policy is known on each node');
			is($node->psql('postgres', "SELECT idem_explain('k', principal => '$tenant', show_values => true)",
					extra_params => [ '-U', 'clerk' ], on_error_stop => 1), 3, 'values are for the owner');
			is(explained($node, 'k', $tenant, request => '{"amount": 2}', show_values => \'true')->{request}{differ}[0]{stored},
				1, 'who sees them');
		}
		$_->safe_psql('postgres', "UPDATE idempotency.record SET lease_until = now() - interval '1 s' WHERE principal = '$tenant'")
		  foreach $coordinator;
		told_everywhere('k', $tenant, 'unknown takeover_forbidden -', 'its lease has expired');
		foreach my $node (@nodes)
		{
			is(begin_claim($node, 'k', request => '{"amount": 1}', principal => $tenant, scope => 'pay')->{outcome},
				'unknown', 'and so it is for idem_begin');
			is(try_sql($node, "SELECT e.outcome FROM generate_series(1, 1) i, idem_explain('k', scope => 'pay', principal => '$tenant' || left(i::text, 0)) e"),
				'unknown', 'also in a join');
			is(try_sql($node, "CREATE TEMP TABLE t AS SELECT (idem_explain('k', scope => 'pay', principal => '$tenant')).reason; TABLE t"),
				'takeover_forbidden', 'and as an expression');
			is(try_sql($node, "BEGIN READ ONLY; SELECT outcome FROM idem_explain('k', scope => 'pay', principal => '$tenant')"),
				'unknown', 'and in a read-only transaction');
		}
	};
}

$_->stop foreach @nodes;
done_testing();
