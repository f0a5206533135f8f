# Citus itself, its nodes and its metadata change while sessions continue: a running key is not
# granted a second time on any node.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;

# A session that has called before Citus changes, and continues after it.
sub outcome_of
{
	my ($session, $key, $tenant) = @_;

	return ask($session, 'SELECT outcome FROM ' . invocation('idem_begin', key => $key, principal => $tenant));
}

subtest 'Citus is loaded, and in this database it comes and goes' => sub {
	$coordinator->safe_psql('postgres', 'CREATE DATABASE other');
	$coordinator->safe_psql('other', 'CREATE EXTENSION idempotency');
	my $session = session($coordinator, 'other');
	is(outcome_of($session, 'plain', 'a'), 'execute', 'a plain table');
	foreach my $change ('CREATE EXTENSION citus', 'DROP EXTENSION citus CASCADE', 'CREATE EXTENSION citus')
	{
		$coordinator->safe_psql('other', $change);
		is(outcome_of($session, 'plain', 'a'), 'in_progress', "$change: it stays one");
		is(begin_claim($coordinator, 'plain', principal => 'a', -database => 'other')->{outcome}, 'in_progress', 'for others, too');
	}
	$session->quit;
};

subtest 'each shard lies on one node, whatever Citus would do with other tables' => sub {
	$coordinator->safe_psql('postgres', 'SET citus.shard_replication_factor = 2; SELECT idem_distribute()');
	is($coordinator->safe_psql('postgres', q{
			SELECT repmodel, count(*) = count(DISTINCT shardid) FROM pg_dist_partition
			  JOIN pg_dist_shard USING (logicalrelid) JOIN pg_dist_placement USING (shardid)
			 WHERE logicalrelid = 'idempotency.record'::regclass GROUP BY 1}), 's|t', 'by the metadata');
	is($coordinator->safe_psql('postgres', 'SELECT DISTINCT store FROM idempotency.stores'), 'heap', 'and is served directly');
};

# One tenant on each worker.
sub tenant_of
{
	my ($node) = @_;

	my $port = $node->port;
	return $coordinator->safe_psql('postgres', qq{
		SELECT 'tenant ' || i FROM generate_series(1, 100) i
		 WHERE get_shard_id_for_distribution_column('idempotency.record', 'tenant ' || i) IN
		       (SELECT shardid FROM pg_dist_placement JOIN pg_dist_node USING (groupid) WHERE nodeport = $port)
		 ORDER BY i LIMIT 1});
}
my ($here, $there) = map { tenant_of($_) } $worker1, $worker2;

my @sessions = map { session($_) } @nodes;
sub all_say
{
	my ($key, $tenant) = @_;

	return join(' ', map { outcome_of($_, $key, $tenant) } @sessions);
}
is(all_say('here', $here), 'execute in_progress in_progress', 'a claim');
is(all_say('there', $there), 'execute in_progress in_progress', 'and another');

sub tell_node
{
	my ($function, $node) = @_;

	$coordinator->safe_psql('postgres', "SELECT $function('" . $node->host . "', " . $node->port . ')');
	return;
}

# The shard with the records of a tenant.
sub move_records
{
	my ($tenant, $from, $to) = @_;

	my ($old, $new) = map { "'" . $_->host . "', " . $_->port } $from, $to;
	$coordinator->safe_psql('postgres', qq{
		SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('idempotency.record', '$tenant'), $old, $new, 'block_writes')});
	return;
}

subtest 'a node without metadata grants nothing' => sub {
	tell_node('stop_metadata_sync_to_node', $worker1);
	is(outcome_of($sessions[1], 'here', $here), '55000', 'it knows that it has shards');
	is(try_sql($worker1, "SELECT outcome FROM idem_begin('new', principal => '$there')"), '55000', 'also in a new session');
	is(all_say('here', $here), '0A000 55000 0A000', 'the others do not grant it, since Citus sends nothing there');
	is(all_say('there', $there), 'in_progress 55000 in_progress', 'and go on with what others have');
	tell_node('start_metadata_sync_to_node', $worker1);
	is(all_say('here', $here), 'in_progress in_progress in_progress', 'with the metadata all know again');
	is(all_say('there', $there), 'in_progress in_progress in_progress', 'of every claim');
};

subtest 'a node is disabled, activated and removed' => sub {
	my $worker3 = new_worker('worker3');
	join_cluster($worker3);
	my $session = session($worker3);
	is(outcome_of($session, 'here', $here), 'in_progress', 'it has joined');
	$coordinator->safe_psql('postgres', "SELECT citus_disable_node('" . $worker3->host . "', " . $worker3->port . ', true)');
	unlike(outcome_of($session, 'here', $here), qr/execute/, 'disabled, it does not grant a key that runs');
	is($_, '2', 'views show the others')
	  foreach map { $_->safe_psql('postgres', 'SELECT count(*) FROM idempotency.in_flight') } @nodes;
	is($_, '0', 'cleanup goes on') foreach map { call($_, 'idem_cleanup') } @nodes;
	tell_node('citus_activate_node', $worker3);
	is(outcome_of($session, 'here', $here), 'in_progress', 'active again');
	tell_node('citus_remove_node', $worker3);
	unlike(outcome_of($session, 'here', $here), qr/execute/, 'removed, it does not grant it either');
	is(all_say('here', $here), 'in_progress in_progress in_progress', 'no other node does either');

	# It hears of no move.
	is(try_sql($worker3, "SELECT idem_once('asked', principal => '$here')"), 't', 'it sends a call on');
	move_records($here, $worker1, $worker2);
	foreach my $again (1, 2)
	{
		is(outcome_of($session, 'lost', $here), '40001', 'after a move it refuses every call for the shard');
		is(try_sql($worker3, "SELECT idem_once('lost', principal => '$here')"), '40001', 'also in a new session');
	}
	is(try_sql($worker3, "SELECT idem_once('asked', principal => '$there')"), 't', 'and sends on those for another');
	is($_, 't', 'nothing was written') foreach map { $_->safe_psql('postgres', "SELECT idem_get('lost', principal => '$here') IS NULL") } @nodes;
	move_records($here, $worker2, $worker1);
	$session->quit;
	$worker3->stop;
};

subtest 'a standby of a worker' => sub {
	call($coordinator, 'idem_once', key => 'read', principal => $here);
	$worker1->backup('secondary');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($worker1, 'secondary', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "citus.local_hostname = '" . $standby->host . "'");
	$standby->start;
	$coordinator->safe_psql('postgres', "SELECT citus_add_secondary_node('" . $standby->host . "', " . $standby->port
		. ", '" . $worker1->host . "', " . $worker1->port . ')');
	$worker1->wait_for_catchup($standby);
	is(try_sql($standby, "SELECT status FROM idem_get('read', principal => '$here')"), 'completed', 'reads its shards');
	is(try_sql($standby, "SELECT outcome FROM idem_begin('here', principal => '$here')"), '25006', 'and grants nothing');
	is(try_sql($standby, "SELECT outcome FROM idem_begin('there', principal => '$there')"), '25006', 'nor where other nodes would');
	call($coordinator, 'idem_once', key => 'read there', principal => $there);
	is(try_sql($standby, "SELECT status FROM idem_get('read there', principal => '$there')"), 'completed', 'other nodes are asked');
	is($_, '2', 'views count its rows once')
	  foreach map { $_->safe_psql('postgres', 'SELECT count(*) FROM idempotency.in_flight') } @nodes;
	is(join(' ', map { call($_, 'idem_cleanup') } @nodes), '0 0 0', 'cleanup does not ask it');
	is(all_say('here', $here), 'in_progress in_progress in_progress', 'and claims go on');
	$coordinator->safe_psql('postgres', "SELECT citus_remove_node('" . $standby->host . "', " . $standby->port . ')');
	$standby->stop;
};

subtest 'Citus is updated' => sub {
	my $now = $coordinator->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'citus'});
	# As after a start with the new library.
	foreach my $version ('13.1-1', $now)
	{
		$_->safe_psql('postgres', "UPDATE pg_extension SET extversion = '$version' WHERE extname = 'citus'") foreach @nodes;
		foreach my $node (@nodes)
		{
			unlike(try_sql($node, "SELECT outcome FROM idem_begin('here', principal => '$here')"), qr/execute/,
				"objects of $version: no key is granted twice on " . $node->name);
		}
		unlike(all_say('here', $here), qr/execute/, 'not in a session that has called before either');
	}
	is(all_say('here', $here), 'in_progress in_progress in_progress', 'updated');
	is(all_say('updated', $there), 'execute in_progress in_progress', 'and new keys are granted');
};

subtest 'Citus is dropped with all that it has distributed' => sub {
	$coordinator->safe_psql('postgres', 'DROP EXTENSION citus CASCADE');
	is(outcome_of($sessions[0], 'here', $here), '42883', 'the records are gone with it');
	foreach my $session (@sessions[1, 2])
	{
		unlike(outcome_of($session, 'here', $here), qr/execute/, 'who still has them grants nothing twice');
	}
	$coordinator->safe_psql('postgres', 'CREATE EXTENSION citus; CREATE EXTENSION idempotency');
	is(outcome_of($sessions[0], 'anew', 'a'), 'execute', 'created anew');
	is(begin_claim($coordinator, 'anew', principal => 'a')->{outcome}, 'in_progress', 'a plain table');
};

$_->quit foreach @sessions;
done_testing();
