# What callers do while records are distributed must not hurt them.
use strict;
use warnings FATAL => 'all';

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin, "$FindBin::RealBin/../tap";
use Citus;
use Idem;

my @nodes = new_cluster();
my ($coordinator) = @nodes;
my $tenant = principal_on($nodes[1]);

# Whoever lives on the coordinator is nobody where the record will be.
my $holder = session($coordinator);
is(outcome_in($holder, 'held', principal => $tenant, hold => \'true'), 'execute', 'a claim is held');

subtest 'a caller who has looked and then claims' => sub {
	my $caller = session($coordinator);
	ask($caller, 'BEGIN');
	is(ask($caller, "SELECT idem_get('looked', principal => '$tenant') IS NULL"), 't', 'looks');
	my $owner = session($coordinator);
	ask_later($owner, q{SELECT 'distributed' FROM idem_distribute('payment')});
	wait_until {
		$coordinator->safe_psql('postgres', q{
			SELECT count(*) > 0 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted}) eq 't'
	} 'the distribution';
	is(outcome_in($caller, 'looked', principal => $tenant), 'execute', 'claims while the distribution waits');
	is(ask($caller, "SELECT idem_complete('looked', 200, principal => '$tenant')"), 't', 'completes');
	is(ask($caller, 'COMMIT'), '', 'commits');
	is(ask($owner), 'distributed', 'and then the records are distributed');
	$_->quit foreach $caller, $owner;
};

is(begin_claim($_, 'looked', principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
is(begin_claim($_, 'held', principal => $tenant)->{outcome}, 'in_progress', 'the claim is still held, says ' . $_->name)
  foreach @nodes;
$holder->quit;

done_testing();
