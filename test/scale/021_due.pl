# idem_claim_due on a cluster answers for the node that is asked: workers on all nodes get all that is
# due, each record once. Their tokens count from any node. idem_once_each goes to the principal's node.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my @tenants = map { "t$_" } 1 .. 12;

# Each tenant has one record that may run again.
foreach my $tenant (@tenants)
{
	my $claim = begin_claim($coordinator, 'k', scope => 'jobs', principal => $tenant, lease => '1 hour');
	call($coordinator, 'idem_fail', key => 'k', scope => 'jobs', principal => $tenant,
		token => $claim->{token}, retryable => \'true', retry_after => '0');
}

# "tenant token" of each record that this call claims.
sub claimed
{
	my ($node) = @_;

	return split /\n/, $node->safe_psql('postgres',
		q{SELECT principal || ' ' || token FROM idem_claim_due('jobs', 100, '1 hour')});
}

subtest 'each node claims the records of its shards' => sub {
	my %token;
	my @counts;

	foreach my $node (@nodes)
	{
		my @claimed = claimed($node);
		push @counts, scalar @claimed;
		foreach (@claimed)
		{
			my ($tenant, $token) = split / /;
			is($token{$tenant}, undef, "$tenant is claimed once");
			$token{$tenant} = $token;
		}
	}
	is_deeply([ sort keys %token ], [ sort @tenants ], 'all of them together claim all');
	is(scalar(grep { $_ > 0 } @counts), $coordinator->safe_psql('postgres',
			q{SELECT count(DISTINCT node) FROM idempotency.records WHERE scope = 'jobs'}), 'each node that has some');
	is(call($worker2, 'idem_complete', key => 'k', scope => 'jobs', principal => $_, token => $token{$_}), 't', "$_ ends on another node")
	  foreach @tenants;
	is(scalar(map { claimed($_) } @nodes), 0, 'nothing is due any more');
};

subtest 'a batch of keys' => sub {
	my $new = q{SELECT string_agg(key, ' ') FROM idem_once_each(ARRAY['b', 'a', 'b'], scope => 'batch', principal => 't1') AS key};

	is($worker1->safe_psql('postgres', $new), 'b a', 'new on one node');
	is($worker2->safe_psql('postgres', $new), '', 'known on another');
	is($coordinator->safe_psql('postgres', $new), '', 'and on the coordinator');
	is(call($worker2, 'idem_once', key => 'a', scope => 'batch', principal => 't1'), 'f', 'to a single call, too');
};

# The planner makes a lone call of some of these, which took Citus down for functions of its own.
subtest 'forms of a statement' => sub {
	my %forms = (
		'a CTE' => q{WITH a AS (SELECT 't1' AS p) SELECT key FROM a, idem_once_each(ARRAY['%s'], scope => 'form', principal => a.p) AS key},
		'a subquery' => q{SELECT key FROM (SELECT 't1' AS p) a, idem_once_each(ARRAY['%s'], scope => 'form', principal => a.p) AS key},
		'VALUES' => q{SELECT key FROM (VALUES ('t1')) a (p), LATERAL idem_once_each(ARRAY['%s'], scope => 'form', principal => a.p) AS key},
		'the target list' => q{SELECT idem_once_each(ARRAY['%s'], scope => 'form', principal => 't1')},
		'a join' => q{SELECT a.key FROM idem_once_each(ARRAY['%s'], scope => 'form', principal => 't1') AS a (key) JOIN (VALUES (1)) b (x) ON true});

	foreach my $number (0 .. $#nodes)
	{
		foreach my $form (sort keys %forms)
		{
			is($nodes[$number]->safe_psql('postgres', sprintf($forms{$form}, "$form $number")), "$form $number", "$form, node $number");
		}
		is($nodes[$number]->safe_psql('postgres', q{WITH a AS (SELECT 1 AS n) SELECT d.key FROM a, idem_claim_due('none', a.n) AS d}),
			'', "idem_claim_due beside a CTE, node $number");
	}
};

done_testing();
