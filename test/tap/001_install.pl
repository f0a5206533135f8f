# CREATE and DROP EXTENSION: in the default schema, in another one, and again after a drop.
use Idem;

my $functions_by_schema = q{
	SELECT DISTINCT n.nspname
	FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
	WHERE p.proname LIKE 'idem\_%' ORDER BY 1};

my $relations_outside = q{
	SELECT count(*)
	FROM pg_depend AS d JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
	JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE d.deptype = 'e' AND e.extname = 'idempotency' AND c.relkind <> 'c'
	AND c.relnamespace <> 'idempotency'::regnamespace};

my $traces = q{
	SELECT 'function ' || proname FROM pg_proc WHERE proname LIKE 'idem\_%'
	UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typname LIKE 'idem\_%'
	UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname = 'idempotency'};

my $uncommented = q{
	SELECT string_agg(p.oid::regprocedure::text, ', ' ORDER BY 1)
	FROM pg_depend AS d JOIN pg_proc AS p ON d.objid = p.oid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idempotency')
	AND p.proname LIKE 'idem\_%' AND obj_description(p.oid, 'pg_proc') IS NULL};

# The round that every installation has to manage: execute, complete, replay.
sub serves_a_request ($node, $database, $schema)
{
	my @where = (-database => $database, -function => "$schema.idem_begin");

	my $first = begin_claim($node, 'order-1', @where);
	is($first->{outcome}, 'execute', "$database: the first request is to be executed");
	is( call(
			$node, "$schema.idem_complete",
			-database => $database,
			key => 'order-1',
			status_code => 201,
			body => \"'done'::text",
			token => $first->{token}),
		't',
		"$database: its answer is recorded");
	my $second = begin_claim($node, 'order-1', @where);
	is($second->{outcome}, 'replay', "$database: the second is answered");
	is($second->{status_code}, 201, "$database: with the first one's status");
	is($second->{body}, '\\x646f6e65', "$database: and the first one's body");
	return;
}

my $node = new_node('main');

is($node->safe_psql('postgres', $functions_by_schema), 'public', 'functions are in public');
is($node->safe_psql('postgres', $relations_outside),
	'0', 'tables and views are in the schema idempotency');
is($node->safe_psql('postgres', $uncommented), '', 'every function has a comment');
serves_a_request($node, 'postgres', 'public');

add_database($node, 'shop', 'apps');
is($node->safe_psql('shop', $functions_by_schema), 'apps', 'functions are in the schema asked for');
is($node->safe_psql('shop', $relations_outside), '0', 'tables and views still in idempotency');
serves_a_request($node, 'shop', 'apps');

$node->safe_psql('shop', 'DROP EXTENSION idempotency');
is($node->safe_psql('shop', $traces), '', 'DROP EXTENSION leaves nothing behind');
is(begin_claim($node, 'order-1')->{outcome}, 'replay', 'the other database has kept its records');

$node->safe_psql('shop', 'CREATE EXTENSION idempotency SCHEMA apps');
serves_a_request($node, 'shop', 'apps');

my ($control) = slurp_file("$FindBin::RealBin/../../idempotency.control") =~
  /^default_version\s*=\s*'([^']+)'/m;
is( $node->safe_psql('shop', q{SELECT extversion FROM pg_extension WHERE extname = 'idempotency'}),
	$control, 'the version is that of the control file');

my ($status, undef, $stderr) = $node->psql('shop', 'ALTER EXTENSION idempotency SET SCHEMA public');
isnt($status, 0, 'the extension cannot be moved to another schema');
like($stderr, qr/does not support SET SCHEMA/, 'and the error says so');

$node->stop;
done_testing();
