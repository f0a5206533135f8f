# Operators' decisions in a cluster: every node keeps its own, a view shows all, and
# many records are decided or forgotten from any node, wherever they are.
use Idem;
use Citus;

my @nodes = new_cluster('idempotency.log_keys' => 'on');
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;
my %name = map { $_->name => $_->host . ':' . $_->port } @nodes;
$coordinator->safe_psql('postgres', q{
	CREATE ROLE support LOGIN;
	CREATE ROLE app LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor});

# The same answer from every node, once.
sub from_everywhere
{
	my ($sql) = @_;

	my %seen = map { $_ => 1 } on_each($sql);
	return join("\n", sort keys %seen);
}

sub forget_decisions
{
	$_->safe_psql('postgres', 'TRUNCATE idempotency.audit') foreach @nodes;
	return;
}

sub abandon_claims
{
	my ($tenant, @keys) = @_;

	begin_claim($coordinator, $_, principal => $tenant, lease => '1us', holder => 'gone') foreach @keys;
	return;
}

subtest 'rights' => sub {
	forget_decisions();
	$coordinator->safe_psql('postgres', q{SELECT idem_grant('support', true, 'ticket 1', true), idem_grant('app')});
	is(from_everywhere(q{SELECT action, role, before, after, reason, node FROM idempotency.decisions ORDER BY decided_at}),
		qq(grant|support|{"worker": false, "operator": false, "protocol": false, "administrator": false}|{"worker": false, "operator": true, "protocol": true, "administrator": true}|ticket 1|$name{coordinator}\n)
		  . qq(grant|app|{"worker": false, "operator": false, "protocol": false, "administrator": false}|{"worker": false, "operator": false, "protocol": true, "administrator": false}||$name{coordinator}),
		'granted on one node, and seen from all');
	is(join(' ', on_each(q{SELECT has_function_privilege('support', oid, 'execute') FROM pg_proc
			WHERE proname = 'idem_resolve_all'})),
		't t t', 'procedures are granted on every node');
};

subtest 'policies' => sub {
	forget_decisions();
	is(try_sql($worker1, q{SET ROLE support; SELECT idem_policy_set('p', ttl => '1 day', reason => 'shorter'), idem_policy_drop('p')}),
		'|t', 'changed on a worker');
	is(from_everywhere(q{SELECT action, scope, before, after, reason, acting_as, node FROM idempotency.decisions ORDER BY decided_at}),
		qq(policy_set|p||{"ttl": "1 day"}|shorter|support|$name{worker1}\npolicy_drop|p|{"ttl": "1 day"}|||support|$name{worker1}),
		'and written down there');
};

subtest 'records' => sub {
	forget_decisions();
	foreach my $node (@nodes)
	{
		abandon_claims($_, $node->name) foreach $here, $there;
		foreach my $tenant ($here, $there)
		{
			is(try_sql($node, "SELECT idem_resolve('" . $node->name . "', 'fail', principal => '$tenant', reason => 'r')",
				extra_params => [ '-U', 'support' ]), 't', $node->name . " decides for $tenant");
		}
	}
	is(from_everywhere(q{SELECT key, principal, before ->> 'status', after ->> 'status', reason, decided_by, node
			FROM idempotency.decisions ORDER BY 1, 2}),
		join("\n", map { my $key = $_; map { "$key|$_->[0]|in_progress|failed|r|support|$_->[1]" }
			sort { $a->[0] cmp $b->[0] } [ $here, $name{worker1} ], [ $there, $name{worker2} ] }
			sort map { $_->name } @nodes),
		'each is written down where the record is, with who decided');
	is(try_sql($worker1, q{SET ROLE watcher; SELECT count(*) FROM idempotency.decisions}), '6', 'who monitors sees them');
	is(try_sql($worker1, q{SELECT count(*) FROM idempotency.decisions}, extra_params => [ '-U', 'support' ]), '42501',
		'an operator does not');

	# A rollback on one node undoes the decision on all.
	my $session = session($coordinator);
	ask($session, "BEGIN; SELECT idem_forget('worker1', principal => '$there'), idem_forget('worker1', principal => '$here'); ROLLBACK");
	$session->quit;
	is(from_everywhere('SELECT count(*) FROM idempotency.decisions'), '6', 'a rollback leaves no decision anywhere');
};

subtest 'many records, from any node' => sub {
	foreach my $node (@nodes)
	{
		forget_decisions();
		$coordinator->safe_psql('postgres', 'DELETE FROM idempotency.record');
		abandon_claims($_, map { "left-$_" } 1 .. 5) foreach $here, $there;
		begin_claim($coordinator, 'lives', principal => $there, lease => '1 hour');
		# Another transaction is using one of them.
		my $taker = session($coordinator);
		ask($taker, 'BEGIN');
		is(outcome_in($taker, 'left-3', principal => $here), 'execute', 'another caller takes over');
		is(try_sql($node, q{CALL idem_resolve_all('fail', 'the bank is gone', scope => '*', holder => 'gone', batch_size => 4)},
				extra_params => [ '-U', 'support' ]),
			qq(9|1|[{"key": "left-3", "scope": "", "principal": "$here"}]|0|[]|0|[]), $node->name . ': decided, but for what runs');
		ask($taker, 'ROLLBACK');
		$taker->quit;
		is(try_sql($node, q{CALL idem_resolve_all('fail', status => 'in_progress')}),
			qq(1|1|[{"key": "lives", "scope": "", "principal": "$there"}]|0|[]|0|[]), 'a live lease is left, too');
		is(from_everywhere(q{SELECT status, count(*) FROM idempotency.records GROUP BY 1 ORDER BY 1}),
			"failed|10\nin_progress|1", 'all nodes see it');
		is(from_everywhere(q{SELECT action, principal, count(*), count(*) FILTER (WHERE decided_by = 'support'), node
				FROM idempotency.decisions GROUP BY 2, 1, 5 ORDER BY 2}),
			join("\n", map { $_->[1] } sort { $a->[0] cmp $b->[0] }
				  [ $here, "fail|$here|5|4|$name{worker1}" ], [ $there, "fail|$there|5|5|$name{worker2}" ]), 'each is written down at its record');

		is(try_sql($node, "CALL idem_forget_principal('$there', 'ticket 2', batch_size => 2)", extra_params => [ '-U', 'support' ]),
			qq(5|1|[{"key": "lives", "scope": "", "principal": "$there"}]|0|[]|5|f), $node->name . ': a principal is forgotten');
		is(from_everywhere(q{SELECT principal, key FROM idempotency.records ORDER BY 1, 2}),
			join("\n", map { $_->[1] } sort { $a->[0] cmp $b->[0] }
				  [ $here, join "\n", map { "$here|left-$_" } 1 .. 5 ], [ $there, "$there|lives" ]),
			'and no other');
		is(from_everywhere("SELECT count(*) FROM idempotency.decisions d WHERE d::text LIKE '%$there%'"), '0', 'not named on any node');
		is(from_everywhere(q{SELECT sum((after ->> 'decisions')::integer), sum((after ->> 'forgotten')::integer), count(DISTINCT node)
				FROM idempotency.decisions WHERE action = 'erase' AND reason = 'ticket 2'}),
			'5|5|3', 'but that it was done');
	}
};

subtest 'scopes that are closed to the operator, and functions that are called alike' => sub {
	forget_decisions();
	$coordinator->safe_psql('postgres', q{
		DELETE FROM idempotency.record;
		SELECT idem_policy_set('closed', allowed_role => 'app', keep_history => true)});
	# Of users.
	foreach my $node (@nodes)
	{
		$node->safe_psql('postgres', q{
			SET citus.enable_ddl_propagation = off;
			CREATE FUNCTION idem_erase(integer) RETURNS text LANGUAGE sql RETURN 'passed';
			CREATE FUNCTION idem_cleanup(integer) RETURNS bigint LANGUAGE sql RETURN 1000});
	}
	begin_claim($coordinator, 'left', principal => $there, scope => $_, lease => '1us') foreach qw(closed open);
	is(try_sql($coordinator, qq(SELECT idem_resolve('left', 'fail', 'closed', '$there'))), 't', 'it has a history');
	foreach my $node (@nodes)
	{
		is(try_sql($node, "CALL idem_forget_principal('$there', 'ticket 5')", extra_params => [ '-U', 'support' ]),
			($node == $nodes[0] ? 1 : 0) . '|0|[]|1|[{"role": "app", "scope": "closed", "records": 1, "attempts": 1}]|'
			  . ($node == $nodes[0] ? 1 : 0) . '|f',
			$node->name . ': left, and reported');
	}
	is(try_sql($coordinator, 'SELECT idem_cleanup() < 1000'), 't', 'functions of others are not called on other nodes either');
	$coordinator->safe_psql('postgres', 'GRANT app TO support');
	is(try_sql($worker1, "CALL idem_forget_principal('$there', 'ticket 5')", extra_params => [ '-U', 'support' ]),
		'1|0|[]|0|[]|0|t', 'by a member nothing is left');
	$coordinator->safe_psql('postgres', q{REVOKE app FROM support; SELECT idem_policy_drop('closed', 'a test')});
	$_->safe_psql('postgres', q{
		SET citus.enable_ddl_propagation = off;
		DROP FUNCTION idem_erase(integer), idem_cleanup(integer)}) foreach @nodes;
};

subtest 'a node that is away' => sub {
	forget_decisions();
	abandon_claims($_, 'left') foreach $here, $there;
	like(try_sql($coordinator, q{CALL idem_resolve_all('fail', holder => 'gone', scope => '*')}), qr/^2\|0\|/, 'decided');
	$worker2->stop('immediate');
	is(try_sql($coordinator, "CALL idem_forget_principal('$here', 'ticket 3')"), '08000', 'it is missed');
	$worker2->start;
	$worker2->poll_query_until('postgres', 'SELECT true');
	is(try_sql($coordinator, "SELECT count(*) FROM idempotency.records WHERE principal = '$here'"), '0',
		'the records of the others are forgotten all the same');
	like(try_sql($coordinator, "CALL idem_forget_principal('$here', 'ticket 3')"), qr/^0\|0\|/, 'again when it is back');
	is(from_everywhere("SELECT count(*) FROM idempotency.decisions d WHERE d::text LIKE '%$here\"%' OR principal = '$here'"), '0',
		'then it is named nowhere');
	is(from_everywhere(q{SELECT (after ->> 'forgotten')::integer > 0, reason FROM idempotency.decisions WHERE after ? 'forgotten' ORDER BY decided_at}),
		"t|ticket 3\nf|ticket 3", 'and both calls are written down');
};

subtest 'a chain on each node' => sub {
	$_->safe_psql('postgres', 'TRUNCATE idempotency.audit, idempotency.audit_chain; INSERT INTO idempotency.audit_chain DEFAULT VALUES')
	  foreach @nodes;
	abandon_claims($_, 'chained') foreach $here, $there;
	like(try_sql($coordinator, q{CALL idem_resolve_all('fail', holder => 'gone', scope => '*')}), qr/^2\|0\|/, 'decided');
	try_sql($worker1, 'SELECT idem_cleanup()');
	is($worker1->safe_psql('postgres', 'SELECT count(*) FROM idempotency.decisions WHERE number IS NULL'), '0',
		'idem_cleanup on any node links the decisions of all');
	$worker2->safe_psql('postgres', q{UPDATE idempotency.audit SET reason = 'another' WHERE number = 1});
	is($worker2->safe_psql('postgres', 'SELECT problem FROM idem_audit_verify()'), 'changed', 'a change is seen on its node');
	is($_->safe_psql('postgres', 'SELECT count(*) FROM idem_audit_verify()'), '0', 'the chains of others are whole')
	  foreach $coordinator, $worker1;
};

subtest 'a limit of open claims holds from any node' => sub {
	try_sql($coordinator, q{SELECT idem_policy_set('few', max_open_claims => 1, reason_required => true)});
	foreach my $tenant ($here, $there)
	{
		my $begin = sub { try_sql($_[0], "SELECT outcome FROM idem_begin('$_[1]', scope => 'few', principal => '$tenant', lease => '1h')") };
		is($begin->($worker1, 'a'), 'execute', 'the first claim');
		is($begin->($_, 'b'), '53400', 'no second one') foreach @nodes;
		is(try_sql($coordinator, "SELECT idem_resolve('a', 'fail', 'few', '$tenant')"), '22023', 'no decision without a reason');
		is(try_sql($coordinator, "SELECT idem_resolve('a', 'fail', 'few', '$tenant', reason => 'ticket 4')"), 't', 'a decision');
		is($begin->($worker2, 'b'), 'execute', 'makes room');
	}
};

$_->stop foreach reverse @nodes;
done_testing();
