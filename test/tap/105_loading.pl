# Both ways to run: preloaded, and loaded by the first call.
use Idem;
use Sweeping;

my $backends = 50;
my $outcome = q{SELECT outcome, count(*) FROM attempt GROUP BY outcome ORDER BY outcome};

# Starts pgbench with as many clients as there are backends, which all pass a gate at the same
# moment and then claim a key for the first time. $keys gives the key as SQL.
sub claim_at_once ($node, $key)
{
	my $gate = session($node);
	my $script = PostgreSQL::Test::Utils::tempdir() . '/claim.sql';

	append_to_file($script, qq{
		SELECT pg_advisory_lock_shared(1);
		INSERT INTO attempt SELECT outcome FROM idem_begin($key);});
	ask($gate, 'SELECT pg_advisory_lock(1)');
	local %ENV = $node->_get_env;
	my $pgbench = IPC::Run::start([ 'pgbench', '--no-vacuum', '--client' => $backends,
			'--transactions' => 1, '--file' => $script, 'postgres' ],
		'>', \my $out, '2>', \my $err);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $backends FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
	  or die 'not all have come to the gate';
	open_gate($gate);
	ok($pgbench->finish, 'all get an answer') or diag $err;
	return;
}

# One launcher runs and sweeps, and it stays the only one after a restart.
sub there_is_one_launcher ($node, $name)
{
	my $first = launcher($node);
	add_expired($node, 10);
	is_swept($node, 'postgres', "$name: one launcher, which sweeps");
	is(launcher($node), $first, "$name: and stays");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($first)");
	wait_until_gone($node, $first);
	my $second = launcher($node);
	add_expired($node, 10);
	is_swept($node, 'postgres', "$name: if it ends, one comes back");
	is(launcher($node), $second, "$name: and not all that were registered");
	return;
}

subtest 'library without SQL objects' => sub {
	my $node = sweeping_node('empty', -extension => 0);

	wait_for_visits($node, 'postgres', 1);
	is_deeply([ workers($node) ], ['launcher'], 'a short visit, and nothing else');
	is_deeply([ trouble($node, 0) ], [], 'nothing to complain of');
	is($node->safe_psql('postgres', q{SHOW idempotency.cleanup_interval}), '1s', 'it is loaded');
	$node->stop;
};

subtest 'SQL objects without preloaded library' => sub {
	my $node = new_node('plain', 'idempotency.cleanup_interval' => '1s');

	is_deeply([ workers($node) ], [], 'nothing runs');
	add_expired($node, 10);
	is(begin_claim($node, 'first')->{outcome}, 'execute', 'the first call loads the library');
	is_swept($node, 'postgres', 'and starts the launcher');
	is_deeply([ trouble($node, 0) ], [], 'nothing to complain of');

	$node->restart;
	is_deeply([ workers($node) ], [], 'after a restart nothing runs again');
	add_expired($node, 10);
	is(call($node, 'idem_once', key => 'message'), 't', 'idem_once is a first call, too');
	is_swept($node, 'postgres', 'and starts the launcher');
	$node->stop;
};

# With enough slots for all of them, and with fewer slots than backends.
subtest 'one launcher, even if many backends register one at the same time' => sub {
	foreach my $slots ($backends + 10, 8)
	{
		my $node = new_node("slots_$slots",
			'idempotency.cleanup_interval' => '1s',
			max_connections => $backends + 20,
			max_worker_processes => $slots);
		$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE attempt (outcome text)');
		claim_at_once($node, q{'key-' || pg_backend_pid()});
		is($node->safe_psql('postgres', $outcome), "execute|$backends", 'which is the right one');
		there_is_one_launcher($node, "$slots slots");
		$node->stop;
	}
};

done_testing();
