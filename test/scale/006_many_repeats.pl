# A thousand repeats of one running key, on 50 connections over all nodes.
use IPC::Run qw(start finish);
use Idem;
use Citus;

my @nodes = new_cluster();
distribute();
my ($tenant) = principal_on($nodes[1]);

# Each connection asks 20 times. `$wanted` executes the key in a transaction that stays open until
# all others have their answer.
sub repeats
{
	my ($key) = @_;

	my $call = "SELECT outcome FROM idem_begin('$key', principal => '$tenant');\n";
	my (@running, @out);
	foreach my $number (0 .. 49)
	{
		my ($in, $out, $err) = ($call x 20, '', '');
		push @out, \$out;
		push @running,
		  start([ 'psql', '-XAtq', '-d', $nodes[$number % @nodes]->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
	}
	finish($_) foreach @running;
	my %count;
	$count{$_}++ foreach map { split /\n/, $$_ } @out;
	return join(', ', map { "$_ $count{$_}" } sort keys %count);
}

my $session = session($nodes[2]);
ask($session, 'BEGIN');
is(outcome_in($session, 'one', principal => $tenant), 'execute', 'one executes');
is(repeats('one'), 'in_progress 1000', 'all others get in_progress immediately');
ask($session, "SELECT idem_complete('one', 200, principal => '$tenant')");
ask($session, 'COMMIT');
is(repeats('one'), 'replay 1000', 'and replay it when it has ended');
is(repeats('race'), 'execute 1, in_progress 999', 'of a thousand at the same time, one executes');

done_testing();
