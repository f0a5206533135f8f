# A transaction with more subtransactions than the server caches (64): it then has to look up the
# parent of each. Answers are the same as with a few.
use Idem;

my $node = new_node('main', max_prepared_transactions => 10);
$node->safe_psql('postgres', 'CREATE TABLE effect (key text)');

# Nested savepoints, each with a transaction id.
sub deepen ($session, $depth)
{
	ask($session, join(';', map { "SAVEPOINT s$_; INSERT INTO effect VALUES ('$_')" } 1 .. $depth));
	return;
}

# The answers of all sessions, step by step, with that many savepoints.
sub answers ($depth)
{
	my ($holder, $other, $waiter) = map { session($node) } 1 .. 3;
	my $last = "s$depth";
	my $key = sub { "$_[0]-$depth" };
	my @seen;
	my $see = sub { push @seen, join ', ', map { $_ // '' } @_ };
	my $others = sub { $see->("others: @_", outcome_in($other, $key->($_[0]))) };

	# Begun outside, completed inside.
	ask($holder, 'BEGIN');
	$see->('begun', (claim_in($holder, $key->('outside')))[0, 1]);
	deepen($holder, $depth);
	$others->('outside');
	$see->('completed', ask($holder, completion($key->('outside'))));
	$others->('outside');
	# Begun and completed inside, in levels that are released.
	$see->('begun', (claim_in($holder, $key->('inside')))[0, 1]);
	$see->('completed', ask($holder, completion($key->('inside'))));
	ask($holder, "RELEASE $last");
	$others->('inside');
	# Begun inside, written inside, undone.
	ask($holder, 'SAVEPOINT undone');
	$see->('begun', (claim_in($holder, $key->('undone')))[0, 1]);
	$see->('completed', ask($holder, completion($key->('undone'))));
	$others->('undone');
	ask($holder, 'ROLLBACK TO undone');
	$others->('undone');
	# Snapshots taken meanwhile are marked as not knowing all of them.
	ask($other, $_) foreach 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM effect';
	$others->('inside');
	ask($other, 'ROLLBACK');
	ask_later($waiter, 'SELECT outcome FROM '
		  . invocation('idem_begin', key => $key->('inside'), wait => '10 minutes'));
	wait_until_blocked($node, pid_of_waiter());
	$see->('committed', ask($holder, 'COMMIT'));
	$see->('waiter', ask($waiter));
	$others->($_) foreach 'outside', 'inside';

	# Half of them rolled back, with the claims that they held.
	ask($holder, 'BEGIN');
	deepen($holder, int($depth / 2));
	$see->('begun', (claim_in($holder, $key->('kept')))[0, 1]);
	$see->('completed', ask($holder, completion($key->('kept'))));
	ask($holder, 'SAVEPOINT cut');
	deepen($holder, $depth);
	$see->('begun', (claim_in($holder, $key->('cut')))[0, 1]);
	$see->('completed', ask($holder, completion($key->('cut'))));
	$others->('cut');
	ask($holder, 'ROLLBACK TO cut');
	$others->('cut');
	$others->('kept');
	$see->('committed', ask($holder, 'COMMIT'));
	$others->('kept');

	# Blocks with an exception handler, as PL/pgSQL makes them; then prepared.
	ask($holder, 'BEGIN');
	$see->('blocks', ask($holder, qq{
		DO \$\$ BEGIN
			FOR i IN 1 .. $depth LOOP
				BEGIN
					PERFORM idem_begin('block-$depth-' || i);
					INSERT INTO effect VALUES ('block');
					PERFORM idem_complete('block-$depth-' || i, 200, 'done'::text);
					IF i % 2 = 0 THEN RAISE 'undone'; END IF;
				EXCEPTION WHEN raise_exception THEN NULL;
				END;
			END LOOP;
		END \$\$}));
	$others->('block');
	$see->('prepared', ask($holder, "PREPARE TRANSACTION 'p-$depth'"));
	$see->('others of a block', outcome_in($other, "block-$depth-1"));
	$see->('committed', ask($holder, "COMMIT PREPARED 'p-$depth'"));
	$see->("block $_", outcome_in($other, "block-$depth-$_")) foreach 1, 2;
	$see->('kept', $node->safe_psql('postgres',
			"SELECT count(*) = ceil($depth / 2.0) + 1 FROM idempotency.record WHERE key LIKE 'block-$depth-%'"));
	$_->quit foreach $holder, $other, $waiter;
	return \@seen;
}

sub pid_of_waiter
{
	my $pid;

	wait_until
	{
		$pid = $node->safe_psql('postgres',
			q{SELECT pid FROM pg_stat_activity WHERE query LIKE '%10 minutes%' AND state = 'active'
			  AND pid <> pg_backend_pid()});
	}
	'the waiter';
	return $pid;
}

my $few = answers(4);
is(scalar(grep { /55P03|XX|57014/ } @$few), 0, 'no unexpected answers');
is(grep({ $_ eq 'waiter, replay' } @$few), 1, 'the waiter gets the result');
is(grep({ $_ eq 'others: undone, execute' } @$few), 1, 'a key that was rolled back is free');
is_deeply(answers(200), $few, 'the same with two hundred');

$node->stop;
done_testing();
