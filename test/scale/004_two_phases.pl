# A transaction over several nodes commits in two phases, the claim with it, also when a node dies in
# between.
use strict;
use warnings FATAL => 'all';

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin, "$FindBin::RealBin/../tap";
use Citus;
use Idem;

# What a node has prepared is committed by recover_prepared_transactions() here, and not meanwhile.
my @nodes = new_cluster('citus.recover_2pc_interval' => -1);
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;

# What is there of a key of one tenant with the effect for another.
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

# Commits of this node wait between the two phases: after its own commit, for a standby that there is
# none of.
sub hold_commits
{
	my ($node, $hold) = @_;

	$node->safe_psql('postgres',
		'ALTER SYSTEM ' . ($hold ? q{SET synchronous_standby_names = 'nobody'} : 'RESET synchronous_standby_names'));
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
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
			is(state_of("$key undone", $tenant, $payee), '0 absent', 'or neither');
			$session->quit;
		}
	}
};

# A crash of the asking node before its own commit takes both; so the other node may not have
# committed. PREPARE is what keeps it from that, however the claim was written.
subtest 'every node that has written is prepared' => sub {
	foreach my $node (@nodes)
	{
		foreach my $case ([ $here, $there ], [ $there, $here ])
		{
			my ($tenant, $payee) = @$case;
			my $key = 'prepared ' . $node->name;
			my $session = session($node);
			work($session, $key, $tenant, $payee);
			hold_commits($node, 1);
			ask_later($session, 'COMMIT');
			wait_until { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) > 0 } 'the commit';
			my @others = grep { $_ != $node && $_ != $coordinator } @nodes;
			is(prepared($_), '1', $_->name . ' has prepared for ' . $node->name) foreach @others;
			# As if everybody there had died.
			$node->stop('immediate');
			abandon($session);
			$node->start;
			hold_commits($node, 0);
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
		hold_commits($coordinator, 1);
		ask_later($session, 'COMMIT');
		wait_until { prepared($victim) eq '1' } 'the first phase';
		$victim->stop('immediate');
		hold_commits($coordinator, 0);
		ask($session);
		$session->quit;
		$victim->start;
		is(prepared($victim), '1', $victim->name . ' has what it prepared');
		is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', 'nobody executes it again, on ' . $_->name)
		  foreach @nodes;
		$coordinator->safe_psql('postgres', 'SELECT recover_prepared_transactions()');
		is(state_of($key, $tenant, $payee), '1 completed', 'claim and effect are there');
	}
};

done_testing();
