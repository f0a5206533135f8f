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

# SQL that splits the shard of a tenant in two halves, one for each worker.
sub split_shard
{
	my ($tenant, $mode) = @_;

	my ($shard) = place_of($tenant);
	my $ids = $coordinator->safe_psql('postgres',
		q{SELECT string_agg(nodeid::text, ',' ORDER BY nodeid) FROM pg_dist_node WHERE groupid > 0});
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

done_testing();
