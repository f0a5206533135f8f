# Records that can't be distributed, or that a user has distributed by hand: a clear error, and
# nothing changes.
use Idem;
use Citus;

my @nodes = new_cluster('citus.shard_count' => 4);
my ($coordinator, $worker1, $worker2) = @nodes;

# The message, SQLSTATE, detail and hint of the error that statements end with.
sub refusal
{
	my ($sql, $database) = @_;

	my ($status, $out, $err) =
	  $coordinator->psql($database // 'postgres', "\\set VERBOSITY verbose\n$sql", on_error_stop => 1);
	return $err;
}

# Citus's metadata about our tables and functions.
my $of_ours = q{
	SELECT (SELECT count(*) FROM pg_dist_partition WHERE logicalrelid::text LIKE 'idempotency.%'),
	       (SELECT count(*) FROM pg_dist_object o JOIN pg_proc p ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid
	         WHERE p.proname LIKE 'idem\_%'),
	       (SELECT count(*) FROM idempotency.granted)};

subtest 'tables to colocate with' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE TABLE reference (tenant text PRIMARY KEY);
		SELECT create_reference_table('reference');
		CREATE TABLE managed (tenant text PRIMARY KEY);
		SELECT citus_add_local_table_to_metadata('managed');
		CREATE TABLE appended (tenant text);
		SELECT create_distributed_table('appended', 'tenant', 'append');
		CREATE TABLE ranged (tenant text);
		SELECT create_distributed_table('ranged', 'tenant', 'range');
		CREATE TABLE single (tenant text);
		SELECT create_distributed_table('single', NULL);
		CREATE TABLE numbered (tenant integer PRIMARY KEY);
		SELECT create_distributed_table('numbered', 'tenant', colocate_with => 'none');
		CREATE TABLE varied (tenant varchar PRIMARY KEY);
		SELECT create_distributed_table('varied', 'tenant', colocate_with => 'none');
		CREATE DOMAIN name_of_tenant AS text;
		CREATE TABLE named (tenant name_of_tenant PRIMARY KEY);
		SELECT create_distributed_table('named', 'tenant', colocate_with => 'none');
		CREATE VIEW viewed AS SELECT * FROM payment;
		CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE loosely (tenant text COLLATE loose PRIMARY KEY)});
	# Citus itself has no such table.
	is(try_sql($coordinator, q{SELECT create_distributed_table('loosely', 'tenant')}), '0A000',
		'a nondeterministic collation distributes nothing');

	foreach my $table (qw(reference managed appended ranged single viewed loosely payment_pkey
		idempotency.record idempotency.policy))
	{
		like(refusal("SELECT idem_distribute('$table')"),
			qr/42809: .*\nDETAIL:  It is not distributed by the hash of a column.\nHINT:  Distribute it by its tenant/, $table);
	}
	foreach my $case ([ numbered => 'integer' ], [ varied => 'character varying' ], [ named => 'public.name_of_tenant' ])
	{
		my ($table, $type) = @$case;
		like(refusal("SELECT idem_distribute('$table')"),
			qr/42809: .*\nDETAIL:  It is distributed by column tenant of type \Q$type\E.\nHINT:  Principals have type text/, $table);
	}
	like(refusal('SELECT idem_distribute(1)'), qr/42809: /, 'a table that is none');
	is($coordinator->safe_psql('postgres', $of_ours), '0|0|0', 'nothing has changed');
};

subtest 'in which transactions' => sub {
	is(try_sql($coordinator, q{BEGIN READ ONLY; SELECT idem_distribute('payment')}), '25006', 'one that may not write');
	like(try_sql($coordinator, q{BEGIN; SELECT idem_begin('open', principal => 'tenant 1');
			SELECT idem_distribute('payment');
			SELECT idem_complete('open', principal => 'tenant 1'); COMMIT}),
		qr/^(?:ID404|55000)$/, 'a claim that is open is not found any more');
	is($coordinator->safe_psql('postgres', $of_ours), '0|0|0', 'and the transaction with it');

	$coordinator->safe_psql('postgres', q{
		SELECT idem_begin('old', principal => 'tenant 1');
		SELECT idem_begin('nobody''s');
		CREATE ROLE app LOGIN;
		SELECT idem_grant('app');
		CREATE TABLE local (i integer)});
	my @worked = (
		'has written' => q{
			INSERT INTO payment VALUES ('tenant 1', 'a', 1), ('tenant 2', 'a', 1), ('tenant 3', 'a', 1), ('tenant 4', 'a', 1);
			INSERT INTO local VALUES (1);
			SELECT idem_policy_set('x', lease => '77s')},
		'has completed a claim' => q{
			SELECT idem_begin('mine', principal => 'tenant 1'); SELECT idem_complete('mine', principal => 'tenant 1')},
		'is repeatable read' => q{SET TRANSACTION ISOLATION LEVEL REPEATABLE READ},
		'is serializable' => q{SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM payment},
		'has a savepoint' => q{SAVEPOINT s});
	while (my ($name, $sql) = splice(@worked, 0, 2))
	{
		like(try_sql($coordinator, qq{BEGIN; $sql; SELECT idem_distribute('payment');
				SELECT 'then ' || outcome FROM idem_begin('old', principal => 'tenant 1');
				SELECT 'then ' || outcome FROM idem_begin('new', principal => 'tenant 2'); ROLLBACK}),
			qr/^(?:then in_progress\nthen execute|55000)$/m, "one that $name; calls are answered right or refused");
		is($coordinator->safe_psql('postgres', $of_ours), '0|0|0', 'and takes it back');
		is(join(' ', on_each(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'record\_1%' AND relkind = 'r'})), '0 0 0', 'leaves no shard');
	}
	is($coordinator->safe_psql('postgres', q{
			SELECT string_agg(key, ' ' ORDER BY key) FROM idempotency.records}), "nobody's old", 'every record is there');
	is(try_sql($coordinator, q{SET ROLE app; SELECT outcome FROM idem_begin('old', principal => 'tenant 1')}),
		'in_progress', 'and the rights');
	is(try_sql($coordinator, q{SELECT count(*) FROM idempotency.policies}), '0', 'no policy stays');
	# Not every connection of that transaction sees the shards.
	$coordinator->safe_psql('postgres', q{SELECT idem_once('spent', principal => 'tenant ' || i) FROM generate_series(1, 20) i});
	unlike(try_sql($coordinator, join(';', 'BEGIN', q{SELECT idem_distribute('payment')},
				(map { "SELECT idem_once('spent', principal => 'tenant $_')" } 1 .. 20), 'ROLLBACK')),
		qr/^t$/m, 'the transaction that distributes executes nothing again');

	like(refusal(q{BEGIN; SELECT idem_begin('mine', principal => 'tenant 1'); SELECT idem_complete('mine', principal => 'tenant 1');
			SELECT idem_distribute('payment'); COMMIT}),
		qr/WARNING:  01000: records without a principal are all on one shard\n/, 'it warns of records without a principal');
	is(join(' ', map { begin_claim($_, 'mine', principal => 'tenant 1')->{outcome} } @nodes),
		'replay replay replay', 'a claim that was completed before, in the same transaction, is on its shard');
	is(join(' ', map { begin_claim($_, "nobody's")->{outcome} } @nodes),
		'in_progress in_progress in_progress', 'those without a principal, too');
	is(try_sql($_, q{SET ROLE app; SELECT outcome FROM idem_begin('old', principal => 'tenant 1')}), 'in_progress', 'rights go with it')
	  foreach @nodes;
	like(refusal(q{SELECT idem_distribute('payment')}),
		qr/55000: .*\nDETAIL:  Table idempotency.record is a Citus table.\nHINT:  Nodes that join later/, 'once');
};

subtest 'by hand' => sub {
	my %by_hand = (
		by_key => q{SELECT create_distributed_table('idempotency.record', 'key', colocate_with => 'none')},
		as_reference => q{SELECT create_reference_table('idempotency.record')});
	foreach my $database (sort keys %by_hand)
	{
		add_cluster_database($database);
		$coordinator->safe_psql($database, q{BEGIN; SELECT idem_begin('old', principal => 'tenant 1');
			SELECT idem_complete('old', principal => 'tenant 1'); COMMIT});
		like(refusal("BEGIN; SELECT idem_begin('open', principal => 'tenant 1'); $by_hand{$database};"
				  . q{SELECT idem_complete('open', principal => 'tenant 1')}, $database),
			qr/55000: records are not distributed by principal/, "$database: a claim of the same transaction is not lost");
		$coordinator->safe_psql($database, $by_hand{$database});
		foreach my $call (q{idem_begin('old', principal => 'tenant 1')}, q{idem_once('new')}, q{idem_get('old', principal => 'tenant 1')},
			q{idem_complete('old', principal => 'tenant 1')}, q{idem_forget('old', principal => 'tenant 1')})
		{
			is(join(' ', map { try_sql($_, "SELECT $call", dbname => $database) } @nodes), '55000 55000 55000', "$database: $call");
		}
		is(join(' ', map { $_->safe_psql($database, 'SELECT DISTINCT why FROM idempotency.stores') } @nodes),
			join(' ', ('It is distributed, but not by the hash of principal.') x 3), 'the views say so');
		like(refusal('SELECT idem_distribute()', $database), qr/HINT:  Dump the database, restore it/, 'and says what to do');
	}

	add_cluster_database('by_principal');
	$coordinator->safe_psql('by_principal', q{
		BEGIN; SELECT idem_begin('old', principal => 'tenant 1'); SELECT idem_complete('old', principal => 'tenant 1'); COMMIT;
		SELECT create_distributed_table('idempotency.record', 'principal', colocate_with => 'none', shard_count => 4)});
	my %answers = map { try_sql($_, q{SELECT outcome FROM idem_begin('old', principal => 'tenant 1')}, dbname => 'by_principal') => 1 } @nodes;
	is(join(' ', sort keys %answers), '0A000 replay', 'by principal alone: the node that has the record answers, the others refuse');
	like(refusal('SELECT idem_distribute()', 'by_principal'), qr/DETAIL:  Table idempotency.record is a Citus table, but the other tables are not/,
		'and it is not distributed a second time');
};

done_testing();
