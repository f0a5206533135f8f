# idem_distribute: which calls it refuses, which objects it keeps, and the result on every node,
# also on one that joins later.
use Idem;
use Citus;

my ($coordinator, $worker1, $worker2) = new_cluster();

# The message, detail and hint of the error that a statement ends with.
sub refusal
{
	my ($node, $sql) = @_;

	my ($status, $out, $err) = $node->psql('postgres', $sql);
	return $err;
}

subtest 'refusals' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE DATABASE plain;
		CREATE TABLE local (tenant text PRIMARY KEY);
		CREATE TABLE numbered (tenant bigint PRIMARY KEY);
		SELECT create_distributed_table('numbered', 'tenant', colocate_with => 'none')});
	$coordinator->safe_psql('plain', 'CREATE EXTENSION idempotency');

	my ($status, $out, $err) = $coordinator->psql('plain', 'SELECT idem_distribute()');
	like($err, qr/DETAIL:  The extension citus is not installed/, 'without Citus');
	like(refusal($worker1, 'SELECT idem_distribute()'),
		qr/DETAIL:  This node is not the coordinator/, 'on a worker');
	like(refusal($coordinator, q{SELECT idem_distribute('local')}),
		qr/HINT:  Distribute it by its tenant/, 'next to a table that is not distributed');
	like(refusal($coordinator, q{SELECT idem_distribute('numbered')}),
		qr/column tenant of type bigint.*\nHINT:  Principals have type text/, 'next to a table distributed by numbers');
	$coordinator->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
	is(try_sql($coordinator, q{SET ROLE nobody; SELECT idem_distribute('payment')}),
		'42501', 'by a role other than the owner');
};

subtest 'it is one transaction and keeps the records' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE ROLE app LOGIN;
		CREATE ROLE support LOGIN;
		CREATE ROLE jobs LOGIN;
		SELECT idem_grant('app'), idem_grant('support', operator => true), idem_grant('jobs', worker => true);
		SELECT idem_policy_set('kept*', lease => '77s');
		BEGIN;
		SELECT outcome FROM idem_begin('old', principal => 'tenant 1');
		SELECT idem_complete('old', 201, 'done'::text, principal => 'tenant 1');
		COMMIT;
		SELECT outcome FROM idem_begin('leased', scope => 'kept')});

	$coordinator->safe_psql('postgres', q{BEGIN; SELECT idem_distribute('payment'); ROLLBACK});
	is($coordinator->safe_psql('postgres', q{
			SELECT count(*) FROM pg_dist_partition WHERE logicalrelid::text LIKE 'idempotency.%'}),
		'0', 'a rollback leaves all as it was');
	is(begin_claim($coordinator, 'old', principal => 'tenant 1')->{outcome}, 'replay', 'and the records');

	like(refusal($coordinator, q{SELECT idem_distribute('payment')}),
		qr/WARNING:  records without a principal are all on one shard/, 'it warns of principals that are empty');
	foreach my $node ($coordinator, $worker1, $worker2)
	{
		is(begin_claim($node, 'old', principal => 'tenant 1')->{status_code}, 201, $node->name . ' replays');
		is(begin_claim($node, 'leased', scope => 'kept')->{outcome}, 'in_progress', $node->name . ' knows the lease');
	}
	like(refusal($coordinator, q{SELECT idem_distribute('payment')}),
		qr/ERROR:  records are distributed already/, 'once');
};

subtest 'policies are on every node' => sub {
	is($_, '00:01:17', 'as they were')
	  foreach on_each(q{SELECT lease FROM idempotency.policies WHERE scope_pattern = 'kept*'});

	# Sessions on every node, with calls for both workers, have read the policies before.
	my @tenants = map { principal_on($_) } $worker1, $worker2;
	my @sessions = map { session($_) } $coordinator, $worker1, $worker2;
	my $number = 0;
	my $too_large = sub {
		my ($session, $tenant) = @_;
		my %key = (key => 'body ' . $number++, scope => 'heard', principal => $tenant);
		ask($session, 'BEGIN');
		ask($session, 'SELECT ' . invocation('idem_begin', %key));
		my $answer = ask($session, 'SELECT ' . invocation('idem_complete', %key, body => \"repeat('x', 11)"));
		ask($session, 'ROLLBACK');
		return $answer;
	};
	my $answers = sub {
		return join(' ', map { my $session = $_; map { $too_large->($session, $_) } @tenants } @sessions);
	};
	is($answers->(), 't t t t t t', 'there is no limit');
	foreach my $node ($coordinator, $worker1, $worker2)
	{
		call($node, 'idem_policy_set', scope_pattern => 'heard', max_body_bytes => 10);
		is($answers->(), '54000 54000 54000 54000 54000 54000', 'all have heard of one that ' . $node->name . ' sets');
		call($node, 'idem_policy_drop', scope_pattern => 'heard');
		is($answers->(), 't t t t t t', 'and that it drops it');
	}
	$_->quit foreach @sessions;
};

# How many of our functions a role may call.
sub rights_of
{
	my ($role) = @_;

	return join(' ', on_each(qq{
		SELECT count(*) FROM pg_proc
		 WHERE proname LIKE 'idem\\_%' AND has_function_privilege('$role', oid, 'EXECUTE')}));
}

is($_, 'app|f|f|f support|t|f|f jobs|f|f|t' =~ s/ /\n/gr, 'rights of before')
  foreach on_each(q{SELECT * FROM idempotency.granted ORDER BY role = 'jobs', role});

my $operators = $coordinator->safe_psql('postgres', q{
	SELECT count(*) FROM pg_proc
	 WHERE proname LIKE 'idem\_%' AND has_function_privilege('support', oid, 'EXECUTE')});
my $callers = $coordinator->safe_psql('postgres', q{
	SELECT count(*) FROM pg_proc
	 WHERE proname LIKE 'idem\_%' AND has_function_privilege('app', oid, 'EXECUTE')});

subtest 'rights are on every node' => sub {
	is(rights_of('app'), "$callers $callers $callers", 'of callers');
	is(rights_of('support'), "$operators $operators $operators", 'of operators');
	$coordinator->safe_psql('postgres', 'CREATE ROLE late LOGIN');
	call($worker1, 'idem_grant', role => 'late');
	is(rights_of('late'), rights_of('app'), 'granted on a worker');
	call($worker2, 'idem_revoke', role => 'late');
	is(rights_of('late'), rights_of('nobody'), 'and taken back on another');
	isnt(rights_of('nobody'), rights_of('app'), 'which has fewer rights');
	my $tenant = principal_on($worker2);
	is(try_sql($_, qq{SET ROLE app; SELECT outcome FROM idem_begin('right', principal => '$tenant')}),
		$_ == $coordinator ? 'execute' : 'in_progress', 'app calls ' . $_->name)
	  foreach $coordinator, $worker1, $worker2;
	is(try_sql($_, qq{SET ROLE nobody; SELECT outcome FROM idem_begin('right', principal => '$tenant')}),
		'42501', 'nobody does not call ' . $_->name)
	  foreach $coordinator, $worker1, $worker2;
};

subtest 'a node that joins later has all of it' => sub {
	my $worker3 = new_worker('worker3');
	join_cluster($worker3);
	is(begin_claim($worker3, 'old', principal => 'tenant 1')->{outcome}, 'replay', 'it is asked');
	is($worker3->safe_psql('postgres', q{SELECT lease FROM idempotency.policies WHERE scope_pattern = 'kept*'}),
		'00:01:17', 'it knows the policies');
	call($worker3, 'idem_policy_set', scope_pattern => 'third', max_body_bytes => 10);
	is($_, '10', 'and sets them')
	  foreach on_each(q{SELECT max_body_bytes FROM idempotency.policies WHERE scope_pattern = 'third'});

	# Citus does this before it moves the first shard there.
	$coordinator->safe_psql('postgres', q{SELECT replicate_reference_tables('block_writes')});
	$coordinator->safe_psql('postgres', move_shard('tenant 1', $worker3, 'block_writes'));
	is((place_of('tenant 1'))[1], $worker3->port, 'a shard moves there');
	is(try_sql($_, q{SET ROLE app; SELECT outcome FROM idem_begin('old', principal => 'tenant 1')}),
		'replay', 'the rights are there, says ' . $_->name)
	  foreach $coordinator, $worker1, $worker2, $worker3;
	is(try_sql($_, q{SET ROLE app; SELECT outcome FROM idem_begin('new', principal => 'tenant 1')}),
		$_ == $coordinator ? 'execute' : 'in_progress', 'and the key is locked there, says ' . $_->name)
	  foreach $coordinator, $worker1, $worker2, $worker3;
};

done_testing();
