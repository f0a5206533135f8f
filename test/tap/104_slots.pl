# Too few worker slots: answers stay right, expired records stay in the table.
use Idem;
use Sweeping;

my $shortage = qr/LOG:  idempotency: no free worker slot for (?:a|the) \w+/;

# The logical replication launcher would take one.
my @no_other_worker = (max_logical_replication_workers => 0);

# A session whose parallel worker takes a slot, and its process id.
sub take_slot ($node)
{
	my $session = session($node);
	my $pid = pid_of($session);
	my $parallel = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';

	ask($session, "SET $parallel = on");
	ask_later($session, 'SELECT pg_sleep(3600)');
	$node->poll_query_until('postgres',
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE leader_pid = $pid)")
	  or die 'there is no parallel worker';
	return ($session, $pid);
}

sub give_slot_back ($node, $session, $pid)
{
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	is(ask($session), '57014', 'a slot is free again');
	$session->quit;
	return;
}

# Execute, complete, replay; and an expired record counts as absent.
sub answers_stay_right ($node)
{
	my $session = session($node);

	add_expired($node, 1, key => 'over-');
	foreach my $key (qw(new over-1))
	{
		ask($session, 'BEGIN');
		is(outcome_in($session, $key), 'execute', "$key: executed");
		is(ask($session, completion($key)), 't', "$key: completed");
		ask($session, 'COMMIT');
		is(outcome_in($session, $key), 'replay', "$key: replayed");
	}
	$session->quit;
	return;
}

subtest 'no free worker slot' => sub {
	my $node = new_node('sweeper',
		@no_other_worker,
		shared_preload_libraries => 'idempotency',
		'idempotency.cleanup_interval' => 0,
		max_worker_processes => 2);
	launcher($node);
	my @taken = take_slot($node);
	my $size = log_size($node);

	add_expired($node, 10);
	configure($node, 'idempotency.cleanup_interval' => '1s');
	$node->wait_for_log($shortage, $size);
	answers_stay_right($node);
	# Three times the interval, so that the launcher tries a few more times.
	$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
	is(scalar(log_since($node, $size, $shortage)), 1, 'a sweeper: logged once');
	is_deeply([ workers($node) ], ['launcher'], 'none runs');
	give_slot_back($node, @taken);
	is_swept($node, 'postgres', 'it is tried again');

	# Fewer slots than sweepers that may run is not an error.
	add_database($node, "d$_", 'public') foreach 1 .. 3;
	$size = log_size($node);
	add_expired($node, 10, database => "d$_") foreach 1 .. 3;
	is_swept($node, "d$_", "one slot for all: database $_") foreach 1 .. 3;
	is(scalar(log_since($node, $size, $shortage)), 0, 'which is no shortage');
	$node->stop;

	my $plain = new_node('launcher', @no_other_worker, max_worker_processes => 1);
	@taken = take_slot($plain);
	add_expired($plain, 10);
	answers_stay_right($plain);
	is(scalar(log_since($plain, 0, $shortage)), 1, 'a launcher: logged once by a session');
	is_deeply([ workers($plain) ], [], 'none runs');
	give_slot_back($plain, @taken);
	begin_claim($plain, 'later');
	# The first sweeper finds the one slot taken by the launcher.
	launcher($plain);
	pass('another session starts it');
	$plain->stop;
};

subtest 'max_worker_processes = 0' => sub {
	foreach my $libraries ('idempotency', '')
	{
		my $node = new_node($libraries ? 'preloaded' : 'plain',
			@no_other_worker,
			shared_preload_libraries => $libraries,
			'idempotency.cleanup_interval' => '1s',
			max_worker_processes => 0);
		my $name = $node->name;

		add_expired($node, 10);
		answers_stay_right($node);
		is_deeply([ workers($node) ], [], "$name: no worker");
		is($node->safe_psql('postgres', 'SELECT backlog, launcher_pid FROM idempotency.sweeper'),
			'10|', "$name: which the view shows");
		is(call($node, 'idem_cleanup'), '10', "$name: idem_cleanup by hand");
		is(records($node), '2', "$name: removes expired records only");
		$node->stop;
	}
};

done_testing();
