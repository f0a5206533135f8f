# One transaction runs idem_once for 100,000 keys with the server's default settings: a key whose
# row is written needs no entry in the lock table. With the SQL store each key needs one, and a full
# lock table is an error that leaves nothing behind.
use Idem;

my $keys = 100_000;
my $all_keys = "SELECT count(*) FROM generate_series(1, $keys) i WHERE idem_once('k' || i)";
my $memory = 'SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts';

# The defaults, which the test framework lowers.
sub node_with ($store)
{
	return new_node($store, 'idempotency.store' => $store, max_connections => 100,
		max_locks_per_transaction => 64);
}

sub records { return $_[0]->safe_psql('postgres', 'SELECT count(*) FROM idempotency.record') }

sub key_locks
{
	return $_[0]->safe_psql('postgres',
		q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18756});
}

subtest 'heap store' => sub {
	my $node = node_with('heap');
	my ($session, $other) = map { session($node) } 1 .. 2;
	is(ask($session, q{SELECT idem_once('first')}), 't', 'caches are warm');
	my $before = ask($session, $memory);

	ask($session, 'BEGIN');
	is(ask($session, $all_keys), $keys, 'every key is new');
	is(key_locks($node), '0', 'no key is locked');
	cmp_ok(ask($session, $memory) - $before, '<', 1024 * 1024, 'memory does not grow either');
	is(ask($other, q{SELECT outcome FROM idem_begin('k5')}), 'in_progress', 'yet it is taken');
	ask($session, 'ROLLBACK');
	is(records($node), '1', 'a rollback leaves nothing');

	is(ask($session, $all_keys), $keys, 'all over again');
	is(ask($other, $all_keys), '0', 'and not once more');
	is(records($node), $keys + 1, 'a record of each');
	$_->quit foreach $session, $other;
	$node->stop;
};

subtest 'SQL store' => sub {
	my $node = node_with('sql');
	my ($session, $other) = map { session($node) } 1 .. 2;
	ask($session, 'BEGIN');
	is(ask($session, $all_keys), '53200', 'the lock table is full');
	ask($session, 'ROLLBACK');
	is(key_locks($node), '0', 'no lock is left');
	is(records($node), '0', 'no record either');
	is(ask($other, q{SELECT idem_once('k5')}), 't', 'and others go on');
	$_->quit foreach $session, $other;
	$node->stop;
};

done_testing();
