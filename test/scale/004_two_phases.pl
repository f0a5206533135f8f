# A transaction over several nodes commits in two phases, and the claim with it, also if a node dies
# in between.
use Idem;
use Citus;

# Here only the test's call of recover_prepared_transactions() commits a node's prepared
# transactions.
my @nodes = new_cluster('citus.recover_2pc_interval' => -1);
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;

# The state of a key of one tenant with the effect for another.
sub state_of
{
	my ($key, $tenant, $payee) = @_;

	return seen($key, $tenant, $payee);
}

sub work
{
	my ($session, $key, $tenant, $payee) = @_;

	ask($session, 'BEGIN');
	is(outcome_in($session, $key, principal => $tenant), 'execute', 'executes');
	ask($session, "INSERT INTO payment VALUES ('$payee', '$key', 1)");
	is(ask($session, "SELECT idem_complete('$key', 200, principal => '$tenant')"), 't', 'completes');
	return;
}

# Commits of this node wait between the two phases: after its own commit, for a standby that does
# not exist. They wait once the checkpointer has seen the setting.
sub hold_commits
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$node->reload;
	my $probe = session($node);
	my $pid = pid_of($probe);
	my $tries = 0;
	my $state;
	do
	{
		ask($probe) if $tries > 0;
		$tries++;
		ask_later($probe, "CREATE TEMP TABLE probe_$tries ()");
		wait_until { ($state = commit_of($node, $pid)) ne 'active' } 'the probe';
	} until $state eq 'waits';
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	ask($probe);
	$probe->quit;
	return;
}

# Whether a backend waits for the standby.
sub commit_of
{
	my ($node, $pid) = @_;

	return $node->safe_psql('postgres',
		"SELECT CASE WHEN wait_event = 'SyncRep' THEN 'waits' ELSE state END FROM pg_stat_activity WHERE pid = $pid");
}

sub let_commits_go
{
	my ($node) = @_;

	# Otherwise it would wait for itself.
	$node->adjust_conf('postgresql.auto.conf', 'synchronous_standby_names', undef);
	$node->reload;
	return;
}

sub prepared { return $_[0]->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts') }

subtest 'claim and effect on different nodes' => sub {
	foreach my $node (@nodes)
	{
		foreach my $case ([ $here, $there ], [ $there, $here ])
		{
			my ($tenant, $payee) = @$case;
			my $key = 'apart ' . $node->name;
			my $session = session($node);
			work($session, $key, $tenant, $payee);
			ask($session, 'COMMIT');
			is(state_of($key, $tenant, $payee), '1 completed', 'both are there');
			work($session, "$key undone", $tenant, $payee);
			ask($session, 'ROLLBACK');
			is(state_of("$key undone", $tenant, $payee), '0 absent', 'or both are undone');
			$session->quit;
		}
	}
};

# A crash of the asking node before its own commit undoes both, so the other node must not have
# committed. PREPARE prevents that, in whatever form the claim was written.
subtest 'every node that has written is prepared' => sub {
	foreach my $node (@nodes)
	{
		foreach my $case ([ $here, $there ], [ $there, $here ])
		{
			my ($tenant, $payee) = @$case;
			my $key = 'prepared ' . $node->name;
			my $session = session($node);
			work($session, $key, $tenant, $payee);
			hold_commits($node);
			ask_later($session, 'COMMIT');
			wait_until { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) > 0 } 'the commit';
			my @others = grep { $_ != $node && $_ != $coordinator } @nodes;
			is(prepared($_), '1', $_->name . ' has prepared for ' . $node->name) foreach @others;
			# As if every session there had died.
			$node->stop('immediate');
			abandon($session);
			$node->adjust_conf('postgresql.auto.conf', 'synchronous_standby_names', undef);
			$node->start;
			is(begin_claim($worker1, $key, principal => $tenant)->{outcome}, 'in_progress', 'the key is not free')
			  unless $node == $worker1 && $tenant eq $here || $node == $worker2 && $tenant eq $there;
			$node->safe_psql('postgres', 'SELECT recover_prepared_transactions()');
			is(state_of($key, $tenant, $payee), '1 completed', 'it is committed everywhere');
		}
	}
};

subtest 'a worker dies between the phases' => sub {
	foreach my $case ([ $worker1, $here ], [ $worker2, $there ])
	{
		my ($victim, $tenant) = @$case;
		my $payee = $tenant eq $here ? $there : $here;
		my $key = 'died ' . $victim->name;
		my $session = session($coordinator);
		work($session, $key, $tenant, $payee);
		hold_commits($coordinator);
		ask_later($session, 'COMMIT');
		wait_until { prepared($victim) eq '1' } 'the first phase';
		$victim->stop('immediate');
		let_commits_go($coordinator);
		ask($session);
		$session->quit;
		$victim->start;
		is(prepared($victim), '1', $victim->name . ' has what it prepared');
		is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', 'it is not executed again, on ' . $_->name)
		  foreach @nodes;
		$coordinator->safe_psql('postgres', 'SELECT recover_prepared_transactions()');
		is(state_of($key, $tenant, $payee), '1 completed', 'claim and effect are there');
	}
};

done_testing();
