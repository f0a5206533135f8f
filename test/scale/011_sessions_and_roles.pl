# Sessions with changing users: resets between clients, role switches, and rights granted and
# revoked on every node. And one transaction with very many keys.
use Idem;
use Citus;

my @nodes = new_cluster('citus.shard_count' => 4);
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;
$coordinator->safe_psql('postgres', q{
	CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN; SELECT idem_grant('app'); GRANT ALL ON payment TO app});

subtest 'a session that is reset' => sub {
	foreach my $node (@nodes)
	{
		my $session = session($node);
		foreach my $tenant ($here, $there)
		{
			my $key = 'reset ' . $node->name;
			my $call = "SELECT outcome FROM idem_begin('$key', principal => '$tenant')";
			my $prepare = "PREPARE b AS SELECT outcome FROM idem_begin(\$1, principal => '$tenant')";
			ask($session, $prepare);
			is(ask($session, "EXECUTE b('$key')"), 'execute', $node->name . ' executes');
			ask($session, 'DISCARD ALL');
			is(ask($session, $call), 'in_progress', 'the lease outlasts the reset');
			ask($session, $prepare);
			is(ask($session, "EXECUTE b('$key')"), 'in_progress', 'and statements are prepared anew');
			ask($session, 'DISCARD ALL');
			ask($session, 'BEGIN');
			is(outcome_in($session, "$key open", principal => $tenant), 'execute', 'a claim of a transaction');
			ask($session, 'ROLLBACK');
			ask($session, 'DISCARD ALL');
			is(begin_claim($_, "$key open", principal => $tenant)->{outcome}, $_ == $coordinator ? 'execute' : 'in_progress', 'is gone with it')
			  foreach @nodes;
		}
		$session->quit;
	}
};

subtest 'roles that switch' => sub {
	foreach my $node (@nodes)
	{
		my $session = session($node);
		foreach my $tenant ($here, $there)
		{
			my $key = 'switched ' . $node->name;
			my $call = "SELECT outcome FROM idem_begin('$key', principal => '$tenant')";
			foreach my $switch ('SET ROLE', 'SET SESSION AUTHORIZATION')
			{
				ask($session, "$switch stranger");
				is(ask($session, $call), '42501', "$switch: a stranger may not, on " . $node->name);
				ask($session, 'DISCARD ALL');
				ask($session, "$switch app");
				is(ask($session, $call), $switch eq 'SET ROLE' ? 'execute' : 'in_progress', 'and app may');
				ask($session, 'DISCARD ALL');
			}
			ask($session, 'BEGIN');
			ask($session, 'SET LOCAL ROLE app');
			is(outcome_in($session, "$key local", principal => $tenant), 'execute', 'for one transaction');
			ask($session, "INSERT INTO payment VALUES ('$tenant', '$key local', 1)");
			is(ask($session, "SELECT idem_complete('$key local', 200, principal => '$tenant')"), 't', 'which completes');
			ask($session, 'COMMIT');
			is(seen("$key local", $tenant, $tenant), '1 completed', 'once');
		}
		$session->quit;
	}
};

# Its answer for a tenant of each worker, on every node.
sub calls_of
{
	my ($role, $key) = @_;

	return join(' ', map { my $node = $_; map { try_sql($node, "SET ROLE $role; SELECT idem_get('$key', principal => '$_') IS NULL") } $here, $there } @nodes);
}

subtest 'rights' => sub {
	is(calls_of('app', 'none'), 't t t t t t', 'app may on every node');
	call($worker2, 'idem_revoke', role => 'app');
	is(calls_of('app', 'none'), join(' ', ('42501') x 6), 'a revoke on one node applies to all');
	call($worker1, 'idem_grant', role => 'app');
	my $worker3 = new_worker('worker3');
	join_cluster($worker3);
	push @nodes, $worker3;
	is(calls_of('app', 'none'), 't t t t t t 42501 42501', 'a node that joins later has rights');
	$coordinator->safe_psql('postgres', q{SELECT replicate_reference_tables('block_writes')});
	$coordinator->safe_psql('postgres', move_shard($here, $worker3, 'block_writes'));
	is(calls_of('app', 'none'), 't t t t t t t t', 'when it has the reference tables');
	is(calls_of('stranger', 'none'), join(' ', ('42501') x 8), 'and a stranger may not');
	call($worker3, 'idem_revoke', role => 'app');
	is(calls_of('app', 'none'), join(' ', ('42501') x 8), 'it takes back for all');
};

subtest 'ten thousand keys in a transaction' => sub {
	my $keys = 10_000;
	# On the node with the tenant's rows, in the transaction's connection to it.
	$coordinator->safe_psql('postgres', q{
		CREATE FUNCTION memory() RETURNS bigint LANGUAGE sql VOLATILE AS
			'SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts'});
	my $locks = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18756};
	foreach my $node ($coordinator, $worker1)
	{
		my $session = session($node);
		my $name = $node->name;
		my $once = "SELECT count(*) FROM generate_series(1, COUNT) i WHERE idem_once('$name ' || i, principal => '$there')";
		ask($session, 'BEGIN');
		ask($session, $once =~ s/COUNT/100/r);
		my $before = ask($session, 'SELECT memory()');
		is(ask($session, $once =~ s/COUNT/$keys/r), $keys - 100, "asked on $name");
		cmp_ok(ask($session, 'SELECT memory()') - $before, '<', 1024 * 1024, 'no key is remembered');
		is(join(' ', on_each($locks)), join(' ', ('0') x @nodes), 'no locks either') if ($ENV{IDEM_STORE} // 'auto') ne 'sql';
		is(begin_claim($worker2, "$name 5", principal => $there)->{outcome}, 'in_progress', 'yet it is taken');
		ask($session, 'COMMIT');
		is(ask($session, $once =~ s/COUNT/10/r), '0', 'and not once more');
		$session->quit;
	}
};

done_testing();
