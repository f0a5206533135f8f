# Sweepers of several databases work at the same time, within the limit, and at most one per
# database.
use Idem;
use Sweeping;

my @databases = qw(a b c);
my $node = sweeping_node('main',
	'idempotency.cleanup_max_workers' => 2,
	-prepare => sub {
		my ($node) = @_;
		add_database($node, $_, 'public') foreach @databases;
	});
my $launcher = launcher($node);
# The highest number of concurrent sweepers seen, in all and in one database.
my ($most, $most_in_one) = (0, 0);

# at_gates(): the number of databases in which a sweeper now waits at a gate.
sub at_gates
{
	my ($gates, $all, $in_one) =
	  split /\|/, $node->safe_psql('postgres', q{
		SELECT sum(gates), coalesce(sum(sweepers), 0), coalesce(max(sweepers), 0) FROM
			(SELECT count(*) AS sweepers, max((wait_event = 'advisory')::int) AS gates FROM pg_stat_activity
			 WHERE backend_type = 'idempotency sweeper' AND datid <> 0 GROUP BY datid) AS by_database});

	$most = $all if $all > $most;
	$most_in_one = $in_one if $in_one > $most_in_one;
	return $gates || 0;
}

subtest 'side by side' => sub {
	my %gates = map { $_ => close_gate($node, $_) } @databases;

	add_expired($node, 10, database => $_) foreach @databases;
	# Each gives up after four seconds and comes again.
	wait_until { at_gates() == 2 } 'two sweepers at work';
	pass('two are at work');
	# A sweeper that waits at its gate does not delay what is due elsewhere.
	open_gate(delete $gates{a});
	is_swept($node, 'a', 'behind an open gate a database is swept');
	add_expired($node, 10);
	is_swept($node, 'postgres', 'and so are others');
	wait_until { at_gates() == 2 } 'the others to be visited again';
	is($most, 2, 'no more than may be are seen');
	is($most_in_one, 1, 'and no two in one database');
	open_gate($gates{$_}) foreach qw(b c);
	is_swept($node, $_, "$_: swept in the end") foreach qw(b c);
	is(launcher($node), $launcher, 'by one launcher');
};

subtest 'fewer or more by reload' => sub {
	configure($node, 'idempotency.cleanup_max_workers' => 3);
	my @gates = map { close_gate($node, $_) } @databases;
	add_expired($node, 10, database => $_) foreach @databases;
	wait_until { at_gates() == 3 } 'three sweepers at work';
	pass('three are at work');
	open_gate($_) foreach @gates;
	is_swept($node, $_, "$_: swept") foreach @databases;
	configure($node, 'idempotency.cleanup_max_workers' => 1);
	add_expired($node, 10, database => $_) foreach @databases;
	is_swept($node, $_, "$_: swept by one") foreach @databases;
};

# A database that has been due for long goes before one that is due again.
subtest 'busy databases' => sub {
	configure($node, 'idempotency.cleanup_batch_size' => 1);
	foreach my $database (@databases)
	{
		trigger_on_delete($node, $database, 'PERFORM pg_catalog.pg_sleep(0.1)');
		add_expired($node, 2000, database => $database);
	}
	wait_for_sweeper($node, $_) foreach @databases;
	add_expired($node, 1);
	is_swept($node, 'postgres', 'do not keep others waiting');
	cmp_ok(records($node, $_), '>', 0, "$_: still at it") foreach @databases;
};

$node->stop;
done_testing();
