# Claims on the client's own node, which Citus does not see being written there.
use Idem;
use Citus;

my ($coordinator, $worker1, $worker2) = new_cluster();
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;

sub claim { return "SELECT outcome FROM idem_begin('$_[0]', principal => '$_[1]')"; }

sub payment { return "INSERT INTO payment VALUES ('$_[1]', '$_[0]', 1)"; }

# Whether a transaction on the first worker has another node prepare; Citus may have several
# connections to it.
sub prepares
{
	my ($status, $out, $err) = $worker1->psql('postgres',
		join(';', 'SET citus.log_remote_commands = on; BEGIN', @_, 'COMMIT'), on_error_stop => 1);
	is($status, 0, 'runs') or diag($err);
	return $err =~ /issuing PREPARE TRANSACTION/ ? 1 : 0;
}

subtest 'it is one of two nodes that have written, in either order' => sub {
	is(prepares(claim('a', $here), payment('a', $there)), 1, 'claim, then effect elsewhere');
	is(prepares(payment('b', $there), claim('b', $here)), 1, 'effect elsewhere, then claim');
	is(prepares(claim('c', $here), claim('c', $there)), 1, 'claim, then claim elsewhere');
	is(prepares(claim('d', $there), claim('d', $here)), 1, 'claim elsewhere, then claim');
	is(prepares('SELECT count(*) FROM payment', claim('e', $here), payment('e', $there)), 1, 'after a look at all nodes');
	is(prepares('SAVEPOINT s', claim('f', $here), 'RELEASE s', payment('f', $there)), 1, 'in a savepoint');
	is(prepares(payment('g', $there), 'SAVEPOINT s', claim('g', $here), 'RELEASE s'), 1, 'also behind the effect');
};

subtest 'and the only one' => sub {
	is(prepares(claim('h', $here), payment('h', $here)), 0, 'claim and effect here');
	is(prepares(claim('i', $there), payment('i', $there)), 0, 'or both there');
};

# Citus 13.2 adds a plan to a prepared statement each time it runs it for a shard of its own node.
subtest 'a session that claims and claims does not grow' => sub {
	my $session = session($worker1);
	my $size = sub {
		my ($number, @before) = @_;
		foreach my $turn (1 .. $number)
		{
			ask($session, 'BEGIN');
			ask($session, $_) foreach @before;
			ask($session, 'SELECT 1 FROM idem_begin(gen_random_uuid()::text, principal => ' . "'$here')");
			ask($session, 'COMMIT');
		}
		return ask($session, q{SELECT coalesce(sum(total_bytes), 0) FROM pg_backend_memory_contexts WHERE name = 'CachedPlan'});
	};
	my $first = $size->(20);
	is($size->(60), $first, 'in transactions of this node');
	my @look = ("SELECT count(*) FROM payment WHERE tenant = '$there'");
	$first = $size->(20, @look);
	is($size->(60, @look), $first, 'and of several');
	$session->quit;
};

done_testing();
