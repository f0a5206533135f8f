# Shards are split, and tenants get a separate shard, while claims are open.
use Idem;
use Citus;

my @nodes = new_cluster('citus.shard_count' => 4);
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();

# Servers since 2026 list the libraries that may decode.
foreach my $node (@nodes)
{
	next if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'}) eq '0';
	$node->safe_psql('postgres', q{ALTER SYSTEM SET output_plugin_libraries = pgoutput, citus});
	$node->reload;
}

my $shards = q{SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = 'idempotency.record'::regclass};

# SQL that splits the shard of a tenant in two halves, one for each worker, or both for one of them.
sub split_shard
{
	my ($tenant, $mode, @targets) = @_;

	my ($shard) = place_of($tenant);
	@targets = ($worker1, $worker2) unless @targets;
	my $ids = join(',', map { $coordinator->safe_psql('postgres', 'SELECT nodeid FROM pg_dist_node WHERE nodeport = ' . $_->port) } @targets);
	my $middle = $coordinator->safe_psql('postgres', qq{
		SELECT (shardminvalue::bigint + shardmaxvalue::bigint) / 2 FROM pg_dist_shard WHERE shardid = $shard});
	return "SELECT citus_split_shard_by_split_points($shard, ARRAY['$middle'], ARRAY[$ids], '$mode')";
}

sub isolate_tenant
{
	my ($tenant, $mode) = @_;

	return "SELECT isolate_tenant_to_new_shard('payment', '$tenant', 'CASCADE', shard_transfer_mode => '$mode')";
}

# Every tenant has a stored record.
my $kept = q{SELECT count(*) FROM generate_series(1, 100) i WHERE idem_once('kept', principal => 'tenant ' || i)};
is($coordinator->safe_psql('postgres', $kept), '100', 'a record of each tenant');

sub all_is_kept
{
	is(join(' ', on_each(q{SELECT count(*) FROM idempotency.records WHERE key = 'kept'})), '100 100 100', 'no record is lost');
	is(join(' ', on_each($kept)), '0 0 0', 'and nothing is executed again');
	return;
}

my @changes = (
	[ 'a split', \&split_shard, principal_on($worker1, 1), 'block_writes' ],
	[ 'a tenant isolated', \&isolate_tenant, principal_on($worker2, 1), 'block_writes' ],
	[ 'a logical split', \&split_shard, principal_on($worker2, 2), 'force_logical' ]);

foreach my $change (@changes)
{
	my ($name, $statement, $tenant, $mode) = @$change;
	subtest $name => sub {
		my $before = $coordinator->safe_psql('postgres', $shards);
		# Their plans, connections and caches date from before.
		my @sessions = map { session($_) } @nodes;
		is(ask($_, "SELECT idem_once('kept', principal => '$tenant')"), 'f', 'warm') foreach @sessions;
		my $leased = begin_claim($worker1, "leased $name", principal => $tenant);
		my $open = session($worker2);
		ask($open, 'BEGIN');
		is(outcome_in($open, "open $name", principal => $tenant), 'execute', 'a claim is open');
		is(ask($open, "SELECT idem_complete('open $name', 200, principal => '$tenant')"), 't', 'and completed');

		my $splitter = session($coordinator);
		ask_later($splitter, $statement->($tenant, $mode));
		if ($mode eq 'block_writes')
		{
			wait_until { waiting() > 0 || $coordinator->safe_psql('postgres', $shards) > $before } 'the split';
			cmp_ok(waiting(), '>', 0, 'a claim alone holds it back');
		}
		ask($open, 'COMMIT');
		unlike(ask($splitter), qr|^[0-9A-Z]{5}$|, 'it is done');
		cmp_ok($coordinator->safe_psql('postgres', $shards), '>', $before, 'there are more shards');

		is(join(' ', map { outcome_in($_, "open $name", principal => $tenant) } @sessions),
			'replay replay replay', 'a completed request is replayed');
		is(join(' ', map { outcome_in($_, "leased $name", principal => $tenant) } @sessions),
			'in_progress in_progress in_progress', 'leased claims are still leased');
		is(call($coordinator, 'idem_complete', key => "leased $name", principal => $tenant, token => $leased->{token}),
			't', 'and its holder completes it');
		ask($_, 'BEGIN') foreach @sessions;
		is(join(' ', map { outcome_in($_, "new $name", principal => $tenant) } @sessions),
			'execute in_progress in_progress', 'of a new key there is one lock');
		ask($_, 'ROLLBACK') foreach @sessions;
		$_->quit foreach @sessions, $open, $splitter;
		all_is_kept();
		is(join(' ', on_each(q{SELECT count(*) FROM idempotency.stores WHERE node IS NOT NULL})),
			join(' ', ($coordinator->safe_psql('postgres', $shards)) x 3), 'and all shards are known');
	};
}

# Citus can't replicate updates and deletes to a child on the shard's own node, and the split or isolation
# then hangs. docs/scaling.md has the ways that end.
subtest 'logical splits beside updates and deletes' => sub {
	my $tenant = principal_on($worker1, 1);
	my ($writer, $splitter) = map { session($coordinator) } 1, 2;
	my $count = 0;
	my $write = sub {
		my ($token) = (claim_in($writer, 'written ' . ++$count, principal => $tenant))[2];
		ask($writer, "SELECT idem_complete('written $count', 200, principal => '$tenant', token => $token)") if $token;
		ask($writer, "SELECT idem_forget('written $count', principal => '$tenant')");
	};
	my $stalls = sub {
		return grep { slurp_file($_->logfile) =~ /publisher did not send replica identity column/ } @nodes;
	};
	foreach my $change (split_shard($tenant, 'force_logical'), isolate_tenant($tenant, 'force_logical'))
	{
		truncate($_->logfile, 0) foreach @nodes;
		my $before = $coordinator->safe_psql('postgres', $shards);
		my $leased = begin_claim($coordinator, "kept $change", principal => $tenant);
		my $pid = pid_of($splitter);
		ask_later($splitter, $change);
		wait_until { $write->(); $stalls->() || $coordinator->safe_psql('postgres', $shards) > $before } 'the split or its stalling';
		if ($stalls->())
		{
			note "$change hangs";
			$coordinator->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
			is(ask($splitter), '57014', 'it can be cancelled');
			is($coordinator->safe_psql('postgres', $shards), $before, 'and has changed nothing');
		}
		else
		{
			unlike(ask($splitter), qr|^[0-9A-Z]{5}$|, 'it has ended');
		}
		is(call($_, 'idem_complete', key => "kept $change", principal => $tenant, token => $leased->{token}), $_ == $coordinator ? 't' : 'f',
			'a claim of before is there, once') foreach @nodes;
		all_is_kept();
	}
	foreach my $change ([ 'force_logical', $worker2, $worker2 ], [ 'block_writes' ])
	{
		my $before = $coordinator->safe_psql('postgres', $shards);
		ask_later($splitter, split_shard($tenant, @$change));
		wait_until { $write->(); $coordinator->safe_psql('postgres', $shards) > $before } 'the split';
		unlike(ask($splitter), qr|^[0-9A-Z]{5}$|, 'a split with both children elsewhere, or that blocks, ends');
		all_is_kept();
	}
	$_->quit foreach $writer, $splitter;
};

done_testing();
