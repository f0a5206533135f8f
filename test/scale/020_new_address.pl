# A node gets another address, as after a failover (citus_update_node): until Citus has told all nodes, it
# delegates no call.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my $tenant = principal_on($worker1);

# Another name of the folder with the worker's socket.
my $folder = $coordinator->data_dir . '/elsewhere';
symlink $worker1->host, $folder or die "$folder: $!";

my $number = $coordinator->safe_psql('postgres', 'SELECT nodeid FROM pg_dist_node WHERE nodeport = ' . $worker1->port);

sub update_node { return "SELECT citus_update_node($number, '$_[0]', " . $worker1->port . ", true, 1000)" }

sub claim { return "SELECT outcome FROM idem_begin('$_[0]', principal => '$tenant')" }

sub await_metadata
{
	wait_until {
		$coordinator->safe_psql('postgres', 'SELECT bool_and(metadatasynced) FROM pg_dist_node') eq 't'
	} 'the metadata';
	return;
}

subtest 'until the metadata are the same on all nodes, a call is to be repeated' => sub {
	my $session = session($coordinator);
	foreach my $call (
		claim('early'),
		"SELECT (idem_begin('early', principal => '$tenant')).outcome",
		"SELECT status FROM idem_get('early', principal => '$tenant')",
		"SELECT idem_forget('early', principal => '$tenant')")
	{
		ask($session, 'BEGIN');
		ask($session, update_node($folder));
		is(ask($session, $call), '40001', $call);
		ask($session, 'ROLLBACK');
	}
	$session->quit;
};

subtest 'afterwards all nodes find it there' => sub {
	is($coordinator->safe_psql('postgres', claim('before') . " WHERE idem_complete('before', 200, principal => '$tenant')"),
		'execute', 'a record of before');
	$coordinator->safe_psql('postgres', update_node($folder));
	await_metadata();
	foreach my $node (@nodes)
	{
		is(begin_claim($node, 'before', principal => $tenant)->{outcome}, 'replay', $node->name . ' replays');
		is($node->safe_psql('postgres', "SELECT count(DISTINCT node) FROM idempotency.stores"),
			2, $node->name . ' sees both');
	}
	is( $worker1->safe_psql('postgres', "SELECT DISTINCT node FROM idempotency.records WHERE principal = '$tenant'"),
		"$folder:" . $worker1->port,
		'with the new address');
};

subtest 'and back' => sub {
	$coordinator->safe_psql('postgres', update_node($worker1->host));
	await_metadata();
	is(begin_claim($_, 'before', principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
};

done_testing();
