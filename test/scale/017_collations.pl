# Principals take on the collation of the column with which they are colocated, on every node,
# also on one that joins later.
use Idem;
use Citus;

my $collations = q{
	SELECT string_agg(DISTINCT c.collname, ' ') FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
	 WHERE a.attname = 'principal' AND a.attrelid::regclass::text ~ '^idempotency\.record(_\d+)?$'};

# The extension was there before Citus, with a view of the user's on its view.
my @nodes = new_cluster(-first => sub {
	my ($node) = @_;
	$node->safe_psql('postgres', q{
		CREATE EXTENSION idempotency;
		CREATE VIEW my_records AS SELECT principal, key, status FROM idempotency.records;
		SELECT idem_once('before', principal => 'a')});
});
my ($coordinator, $worker1, $worker2) = @nodes;

subtest 'refusals' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE COLLATION german (provider = icu, locale = 'de');
		CREATE TABLE own (tenant text COLLATE german PRIMARY KEY);
		SELECT create_distributed_table('own', 'tenant', colocate_with => 'none')});
	my ($status, $out, $err) = $coordinator->psql('postgres', "SELECT idem_distribute('own')");
	like($err, qr/Its distribution column tenant has the collation german/, 'a collation that other nodes can lack');
};

subtest 'next to a column that compares bytes' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE TABLE account (tenant text COLLATE "C", id text, PRIMARY KEY (tenant, id));
		SELECT create_distributed_table('account', 'tenant', colocate_with => 'none', shard_count => 8)});
	my ($status, $out, $err) = $coordinator->psql('postgres', "BEGIN; SELECT idem_distribute('account'); ROLLBACK");
	is($status, 0, 'and taken back') or diag($err);
	$coordinator->safe_psql('postgres', "SELECT idem_distribute('account')");
	is(join(' ', on_each($collations)), 'C C C', 'on every node');
	is($coordinator->safe_psql('postgres', q{SELECT count(DISTINCT colocation_id) FROM citus_tables
		WHERE table_name IN ('account'::regclass, 'idempotency.record'::regclass)}), 1, 'they are colocated');
};

# One transaction of one node, from each node; 'tenant 1' to 'tenant 20' are on all shards.
sub claims_work
{
	my ($name) = @_;

	foreach my $node (@nodes)
	{
		foreach my $tenant (map { "tenant $_" } 1 .. 10)
		{
			my $key = "$name " . $node->name;
			my ($status, $out, $err) = $node->psql('postgres', qq{
				SET citus.log_remote_commands = on;
				BEGIN;
				SELECT outcome FROM idem_begin('$key', principal => '$tenant');
				INSERT INTO account VALUES ('$tenant', '$key');
				SELECT idem_complete('$key', 201, 'done'::text, principal => '$tenant');
				COMMIT}, on_error_stop => 1);
			is($out, "execute\nt", "$name: $tenant from " . $node->name) or diag($err);
			unlike($err, qr/PREPARE TRANSACTION/, 'by one node');
			is(join(' ', map { try_sql($_, "SELECT outcome FROM idem_begin('$key', principal => '$tenant')") } @nodes),
				join(' ', ('replay') x @nodes), 'and replayed by all');
		}
	}
	return;
}

subtest 'calls' => sub {
	claims_work('now');
	is(try_sql($worker2, "SELECT status FROM idempotency.records WHERE principal = 'a'"), 'completed', 'a record from before');
	is($coordinator->safe_psql('postgres', "SELECT status FROM my_records WHERE principal = 'a'"), 'completed', "the user's view");
	is(join(' ', map { $coordinator->safe_psql('postgres', qq{
			SELECT string_agg(DISTINCT store, ' ') FROM idempotency.stores WHERE node LIKE '%:} . $_->port . q{'}) } $worker1, $worker2),
		'heap heap', 'heap store');
};

subtest 'a node that joins later' => sub {
	my $worker3 = new_worker('worker3');
	join_cluster($worker3);
	push @nodes, $worker3;
	$coordinator->safe_psql('postgres', 'SELECT rebalance_table_shards()');
	cmp_ok($worker3->safe_psql('postgres', 'SELECT count(*) FROM idempotency.stores_here'), '>', 0, 'gets shards');
	is(join(' ', on_each($collations)), 'C C C C', 'of that collation');
	claims_work('later');
};

done_testing();
