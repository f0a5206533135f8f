# Shards that move while claims are open.
use Idem;
use Citus;

# The WAL of a commit that does not wait is not written by itself.
my @nodes = new_cluster('wal_writer_delay' => '10s');
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my $tenant = principal_on($worker1);

sub other_worker { return (place_of($tenant))[1] == $worker1->port ? $worker2 : $worker1 }
sub pay { return "INSERT INTO payment VALUES ('$tenant', '$_[0]', 1)" }
sub complete { return "SELECT idem_complete('$_[0]', 200, 'done'::text, principal => '$tenant')" }

# A claim that has written its row, on each node in turn, survives the move of its shard.
foreach my $mode ('block_writes', 'force_logical')
{
	foreach my $node (@nodes)
	{
		my $name = "$mode, asked on " . $node->name;
		subtest "a move waits for claims: $name" => sub {
			my $key = "waits $name";
			my $session = session($node);
			ask($session, 'BEGIN');
			is(outcome_in($session, $key, principal => $tenant), 'execute', 'executes');
			ask($session, pay($key));
			is(ask($session, complete($key)), 't', 'completes');

			my $target = other_worker();
			my $mover = session($coordinator);
			ask_later($mover, move_shard($tenant, $target, $mode));
			# Citus's own lock, for the payment, holds back a move on the node that was asked.
			wait_until { waiting() > 0 } 'the mover' if $mode eq 'block_writes';
			ask($session, 'COMMIT');
			ask($mover);
			$mover->quit;
			is((place_of($tenant))[1], $target->port, 'the shard has moved');
			is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
			is($_, '1', 'with one effect') foreach on_each("SELECT count(*) FROM payment WHERE id = '$key'");
			$session->quit;
		};
	}
}

# When writers are held back, Citus asks how far the WAL is written, and waits until that is copied.
subtest 'a logical move takes what was committed without waiting for the disk' => sub {
	my ($shard, $port) = place_of($tenant);
	my ($source) = grep { $_->port == $port } @nodes;
	my $target = other_worker();
	my $session = session($source);
	# A writer's lock, before it writes.
	ask($session, "BEGIN; SELECT lock_shard_metadata(5, ARRAY[$shard])");
	my $mover = session($coordinator);
	ask_later($mover, move_shard($tenant, $target, 'force_logical'));
	wait_until { waiting() > 0 } 'the mover';
	ask($session, 'SET LOCAL synchronous_commit = off');
	is(ask($session, "SELECT idem_once('not written', principal => '$tenant')"), 't', 'a request');
	ask($session, pay('not written'));
	ask($session, 'COMMIT');
	ask($mover);
	$_->quit foreach $mover, $session;
	is((place_of($tenant))[1], $target->port, 'the shard has moved');
	is($_, 'completed', 'with the record') foreach on_each("SELECT status FROM idem_get('not written', principal => '$tenant')");
	is($_, '1', 'and the effect') foreach on_each(q{SELECT count(*) FROM payment WHERE id = 'not written'});
};

subtest 'a claim alone holds a mover back' => sub {
	foreach my $node (@nodes)
	{
		my $key = 'alone ' . $node->name;
		my $session = session($node);
		my $target = other_worker();
		ask($session, 'BEGIN');
		outcome_in($session, $key, principal => $tenant);
		ask($session, complete($key));
		my $mover = session($coordinator);
		ask_later($mover, move_shard($tenant, $target, 'block_writes'));
		wait_until { waiting() > 0 || (place_of($tenant))[1] == $target->port } 'the mover';
		cmp_ok(waiting(), '>', 0, 'it waits for a claim made on ' . $node->name);
		ask($session, 'COMMIT');
		ask($mover);
		$mover->quit;
		$session->quit;
		is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
	}
};

subtest 'a caller waits for a mover, and asks where the shard is then' => sub {
	foreach my $node (@nodes)
	{
		my $key = 'after ' . $node->name;
		my $mover = session($coordinator);
		my $session = session($node);
		# Plans, connections and caches date from before.
		outcome_in($session, "before $key", principal => $tenant);
		ask($mover, 'BEGIN');
		ask($mover, move_shard($tenant, other_worker(), 'block_writes'));
		ask_later($session, "SELECT outcome FROM idem_begin('$key', principal => '$tenant')");
		wait_until { waiting() > 0 } 'the caller';
		ask($mover, 'COMMIT');
		like(ask($session), qr/^(?:execute|40001)$/m, $node->name . ' executes, or is to repeat');
		my $again = begin_claim($node, $key, principal => $tenant)->{outcome};
		like($again, qr/^(?:execute|in_progress)$/, 'the repeat is answered');
		is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', $_->name . ' knows') foreach @nodes;
		$session->quit;
		$mover->quit;
	}
};

subtest 'a leased claim is completed after a move' => sub {
	foreach my $mode ('block_writes', 'force_logical')
	{
		my $claim = begin_claim($worker2, "leased $mode", principal => $tenant);
		is($claim->{outcome}, 'execute', 'claimed');
		$coordinator->safe_psql('postgres', move_shard($tenant, other_worker(), $mode));
		is(begin_claim($_, "leased $mode", principal => $tenant)->{outcome}, 'in_progress', $_->name . ' knows') foreach @nodes;
		is(call($coordinator, 'idem_complete', key => "leased $mode", principal => $tenant, token => $claim->{token}),
			't', 'completed');
		is(begin_claim($_, "leased $mode", principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
	}
};

subtest 'the old shard of a move is not used' => sub {
	# Citus drops the old table later.
	$coordinator->safe_psql('postgres', 'ALTER SYSTEM SET citus.defer_shard_delete_interval = -1');
	$coordinator->safe_psql('postgres', 'SELECT pg_reload_conf()');
	my $key = 'orphan';
	call($coordinator, 'idem_once', key => $key, principal => $tenant);
	$coordinator->safe_psql('postgres', move_shard($tenant, other_worker(), 'block_writes'));
	call($coordinator, 'idem_forget', key => $key, principal => $tenant);
	is(begin_claim($_, $key, principal => $tenant)->{outcome}, $_ == $coordinator ? 'execute' : 'in_progress', $_->name)
	  foreach @nodes;
};

done_testing();
