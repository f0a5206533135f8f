# Operations on all nodes from one node: sweeping, cleanup, decisions, views.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;
my %name = map { $_->name => $_->host . ':' . $_->port } @nodes;

# The same answer from every node, once.
sub from_everywhere
{
	my ($sql) = @_;

	my %seen = map { $_ => 1 } on_each($sql);
	return join("\n", sort keys %seen);
}

subtest 'which store serves' => sub {
	if (($ENV{IDEM_STORE} // 'auto') eq 'sql')
	{
		is(from_everywhere(q{SELECT store, why, count(*) FROM idempotency.stores GROUP BY 1, 2}),
			'sql|idempotency.store is sql.|4', 'SQL, as it is set');
		return;
	}
	is(from_everywhere(q{SELECT store, count(*) FROM idempotency.stores WHERE why IS NULL GROUP BY 1}),
		'heap|4', 'the heap store serves every shard');
	is(from_everywhere('SELECT DISTINCT node FROM idempotency.stores ORDER BY 1'),
		join("\n", sort @name{qw(worker1 worker2)}), 'on both workers');
	my ($shard) = place_of($here);
	$coordinator->safe_psql('postgres', 'SET citus.enable_unsafe_triggers = on;
		CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
		CREATE TRIGGER other BEFORE INSERT ON idempotency.record FOR EACH ROW EXECUTE FUNCTION nothing()');
	is(from_everywhere(q{SELECT store, why, count(*) FROM idempotency.stores GROUP BY 1, 2}),
		'sql|It has triggers or rules.|4', 'or SQL, and why');
	is(begin_claim($_, 'with a trigger', principal => $there)->{outcome}, $_ == $coordinator ? 'execute' : 'in_progress',
		$_->name . ' is served')
	  foreach @nodes;
	$coordinator->safe_psql('postgres', 'SET citus.enable_unsafe_triggers = on; DROP TRIGGER other ON idempotency.record');
	is(from_everywhere(q{SELECT DISTINCT store FROM idempotency.stores}), 'heap', 'until it has gone');
};

subtest 'views' => sub {
	call($coordinator, 'idem_stats_reset');
	is(from_everywhere('SELECT sum(executed) FROM idempotency.stats WHERE total'), '0', 'counters begin anew, on all nodes');
	my @sessions = (session($coordinator), session($worker1));
	ask($_, 'BEGIN') foreach @sessions;
	is(outcome_in($sessions[0], 'open here', principal => $here), 'execute', 'a claim from the coordinator');
	is(outcome_in($sessions[1], 'open there', principal => $there), 'execute', 'and one from a worker');
	my %lease = (lease => '1us', holder => 'gone');
	begin_claim($worker2, 'left here', principal => $here, %lease);
	begin_claim($worker2, 'left there', principal => $there, %lease);
	begin_claim($worker2, 'leased there', principal => $there);
	is(from_everywhere(q{SELECT kind, key, node FROM idempotency.in_flight WHERE key IS NULL OR key LIKE 'leased%' ORDER BY node, 1}),
		join("\n", sort { ($a =~ /[^|]*$/g)[0] cmp ($b =~ /[^|]*$/g)[0] or $a cmp $b }
			  "transactional||$name{worker1}", "transactional||$name{worker2}", "leased|leased there|$name{worker2}"),
		'in_flight');
	is(from_everywhere('SELECT key, holder, node FROM idempotency.abandoned ORDER BY 1'),
		"left here|gone|$name{worker1}\nleft there|gone|$name{worker2}", 'abandoned');
	is(from_everywhere(q{SELECT key, node FROM idempotency.records WHERE key LIKE 'left%' ORDER BY 1}),
		"left here|$name{worker1}\nleft there|$name{worker2}", 'records');
	is(from_everywhere(q{SELECT executed, node FROM idempotency.stats WHERE total AND executed > 0 ORDER BY 1}),
		"2|$name{worker1}\n3|$name{worker2}", 'stats');
	ask($_, 'ROLLBACK') foreach @sessions;
	$_->quit foreach @sessions;

	$coordinator->safe_psql('postgres', 'CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
	foreach my $view (qw(in_flight abandoned sweeper stats stores))
	{
		is(try_sql($worker1, "SET ROLE watcher; SELECT count(*) > 0 FROM idempotency.$view"), 't', "who monitors sees $view");
	}
	is(try_sql($worker1, 'SET ROLE watcher; SELECT body FROM idempotency.records'), '42501', 'and not what clients got');

	# An exporter on each node, with pg_monitor alone.
	my %queries = slurp_file("$FindBin::RealBin/../../monitoring/queries.yaml") =~ /^(\w+):\n(?:  cache_seconds: \d+\n)?  query: \|\n((?:    .*\n)+)/mg;
	is(join(' ', sort keys %queries), 'idempotency idempotency_decisions idempotency_due idempotency_encryption_keys idempotency_leased_claims idempotency_statistics idempotency_storage'
		  . ' idempotency_stores idempotency_sweeper idempotency_transactional_claims',
		'the queries of monitoring');
	foreach my $query (sort keys %queries)
	{
		unlike(try_sql($_, "SET ROLE watcher; $queries{$query}"), qr/^[0-9A-Z]{5}$/, "$query on " . $_->name) foreach @nodes;
	}
	is(join(' ', map { (split /\|/, try_sql($_, "SET ROLE watcher; $queries{idempotency_leased_claims}"))[1] } @nodes),
		join(' ', on_each(q{SELECT count(*) FROM idempotency.in_flight_here WHERE kind = 'leased'})),
		'each counts the leased claims of its own node');
};

subtest 'a node that is away' => sub {
	$worker2->stop('immediate');
	foreach my $node ($coordinator, $worker1)
	{
		foreach my $view (qw(in_flight abandoned sweeper stats stores))
		{
			my ($status, $out, $err) = $node->psql('postgres', "SELECT DISTINCT node FROM idempotency.$view");
			is($status, 0, "$view on " . $node->name . ' shows something');
			like($err, qr/WARNING: /, 'and warns');
			unlike($out, qr/^\Q$name{worker2}\E$/m, 'of a node that is missing');
		}
		is($node->safe_psql('postgres', 'SELECT DISTINCT node FROM idempotency.sweeper ORDER BY 1'),
			join("\n", sort @name{qw(coordinator worker1)}), 'the others are seen');
	}
	is(begin_claim($coordinator, 'while away', principal => $here)->{outcome}, 'execute', 'its tenants alone are held up');
	$worker2->start;
};

subtest 'a node that has an error' => sub {
	$worker2->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; ALTER VIEW idempotency.sweeper_here RENAME TO gone');
	my ($status, $out, $err) = $coordinator->psql('postgres', 'SELECT node FROM idempotency.sweeper ORDER BY 1');
	is($out, join("\n", sort @name{qw(coordinator worker1)}), 'the others are seen');
	like($err, qr/WARNING:  a node could not be queried and is left out\nDETAIL:  .*sweeper_here/s, 'and why it is missing');
	$worker2->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; ALTER VIEW idempotency.gone RENAME TO sweeper_here');
};

subtest 'decisions' => sub {
	is(call($worker1, 'idem_resolve', key => 'left there', principal => $there, action => 'complete'), 't', 'resolve');
	is(begin_claim($coordinator, 'left there', principal => $there)->{outcome}, 'replay', 'is heard of');
	is(call($worker2, 'idem_forget', key => 'left there', principal => $there), 't', 'forget');
	is(begin_claim($coordinator, 'left there', principal => $there)->{outcome}, 'execute', 'as well');
};

# Expired records, on both workers.
sub expire
{
	my ($name, $count) = @_;

	$coordinator->safe_psql('postgres',
		"SELECT count(idem_once('$name ' || i, principal => p, ttl => '1us'))"
		  . " FROM generate_series(1, $count) i, unnest(ARRAY['$here', '$there']) p");
	return;
}

sub left
{
	my ($name) = @_;

	return from_everywhere("SELECT count(*) FROM idempotency.records WHERE key LIKE '$name %'");
}

subtest 'cleanup' => sub {
	$coordinator->safe_psql('postgres', q{SELECT idem_policy_set('', ttl => '1us', retention => '1us')});
	expire('old', 20);
	is(left('old'), '40', 'there is something to do');
	is(from_everywhere('SELECT sum(backlog) FROM idempotency.sweeper'), '40', 'as the views say');
	is(call($worker1, 'idem_cleanup', max_rows => 25), '25', 'some of it, and no more');
	is(call($coordinator, 'idem_cleanup'), '15', 'and the rest');
	is(left('old'), '0', 'on all nodes');
};

subtest 'sweeping' => sub {
	expire('swept', 20);
	# A table of the same name that belongs to no metadata, as a move leaves one behind.
	my $shard = $coordinator->safe_psql('postgres', "SELECT get_shard_id_for_distribution_column('idempotency.record', '$here')");
	my $orphan = "idempotency.record_$shard";
	$worker2->safe_psql('postgres', qq{
		SET citus.enable_ddl_propagation = off; SET citus.override_table_visibility = off;
		CREATE TABLE $orphan (LIKE idempotency.record INCLUDING ALL);
		INSERT INTO $orphan (scope, principal, key, status, attempt, token, lease_us, created_at, claimed_at, expires_at, retained_until)
		VALUES ('', '$here', 'orphan', 'c', 1, 1, 1, now(), now(), now() - interval '1 day', now() - interval '1 day')});
	foreach my $node (@nodes)
	{
		$node->safe_psql('postgres', q{ALTER SYSTEM SET idempotency.cleanup_interval = '1s'});
		$node->safe_psql('postgres', q{ALTER SYSTEM SET idempotency.cleanup_grace = 0});
		$node->reload;
	}
	wait_until { left('swept') eq '0' } 'the sweepers';
	is(from_everywhere(q{SELECT total_rows > 0 FROM idempotency.sweeper WHERE node <> '} . $name{coordinator} . q{'}),
		"t\nt", 'each worker has swept its own');
	call($_, 'idem_cleanup') foreach @nodes;
	is($worker2->safe_psql('postgres', "SELECT count(*) FROM $orphan"), '1', 'and no table that is not its own shard');
};

done_testing();
