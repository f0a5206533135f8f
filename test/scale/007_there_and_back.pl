# A database with existing records moves to a cluster, and back to a single server.
use Idem;
use Citus;

# The extension was there before Citus.
my ($coordinator, $worker1, $worker2) = new_cluster(-first => sub {
	my ($node) = @_;
	$node->safe_psql('postgres', q{
		CREATE EXTENSION idempotency;
		CREATE ROLE app LOGIN;
		SELECT idem_grant('app');
		SELECT idem_policy_set('kept', lease => '77s');
		BEGIN;
		SELECT idem_begin('before ' || i, principal => 'tenant ' || i) FROM generate_series(1, 40) i;
		SELECT idem_complete('before ' || i, 201, 'done'::text, principal => 'tenant ' || i) FROM generate_series(1, 40) i;
		COMMIT});
});
distribute();
my @nodes = ($coordinator, $worker1, $worker2);

subtest 'there' => sub {
	is($_, '40', 'every record is there') foreach on_each('SELECT count(*) FROM idempotency.records');
	is(join(' ', sort map { $coordinator->safe_psql('postgres', qq{
			SELECT store FROM idempotency.stores WHERE node LIKE '%:} . $_->port . q{' GROUP BY 1}) } $worker1, $worker2),
		'heap heap', 'on both workers');
	foreach my $node (@nodes)
	{
		is(join(' ', map { try_sql($node, "SET ROLE app; SELECT outcome FROM idem_begin('before $_', principal => 'tenant $_')") } 1 .. 10),
			join(' ', ('replay') x 10), $node->name . ' replays');
	}
	is(try_sql($worker1, q{SELECT lease FROM idempotency.policies}), '00:01:17', 'policies as well');
	is($coordinator->safe_psql('postgres', 'SELECT pg_relation_size(\'idempotency.record\')'), '0',
		'nothing is left in the coordinator\'s own table');
};

subtest 'and back' => sub {
	is(begin_claim($worker2, 'leased', principal => 'tenant 1', lease => '1h')->{outcome}, 'execute', 'one is leased');
	my $dump = $coordinator->basedir . '/dump.sql';
	$coordinator->command_ok(
		[ 'pg_dump', '--no-sync', '--extension=idempotency', '--exclude-table=payment', '-f', $dump, '-d', $coordinator->connstr('postgres') ],
		'dumped on the coordinator');
	my $single = new_node('single', -extension => 0);
	$single->safe_psql('postgres', 'CREATE ROLE app');
	$single->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $single->connstr('postgres'), '-f', $dump ],
		'restored where there is no Citus');
	is($single->safe_psql('postgres', 'SELECT count(*) FROM idempotency.records'), '41', 'every record is there');
	is($single->safe_psql('postgres', q{
			SET ROLE app; SELECT outcome FROM idem_begin('before 7', principal => 'tenant 7')}), 'replay', 'rights and answers');
	is(begin_claim($single, 'leased', principal => 'tenant 1')->{outcome}, 'in_progress', 'leases');
	is($single->safe_psql('postgres', 'SELECT lease FROM idempotency.policies'), '00:01:17', 'and policies');
};

done_testing();
