# DROP EXTENSION while sessions have claims, plans and policies of it: they wait or get a clear
# error, and a new extension starts empty.
use Idem;

my $node = new_node('main');

# A whole transaction: begin, complete, and the answer to the repeat.
sub serves ($session, $key, $why)
{
	ask($session, 'BEGIN');
	is(join(', ', (claim_in($session, $key))[0, 1]), 'execute, 1', "$why: executed");
	is(ask($session, completion($key)), 't', "$why: completed");
	ask($session, 'COMMIT');
	is(outcome_in($session, $key), 'replay', "$why: replayed");
	return;
}

subtest 'dropped and created in one session' => sub {
	my $session = session($node);

	ask($session, q{
		CREATE FUNCTION ask_again() RETURNS text LANGUAGE plpgsql
		AS $$ BEGIN RETURN (idem_begin('key')).outcome; END $$});
	foreach my $round (1 .. 3)
	{
		serves($session, 'key', "round $round");
		is(ask($session, 'SELECT ask_again()'), 'replay', "round $round: also from PL/pgSQL");
		ask($session, q{SELECT idem_policy_set('', on_missing_key => 'error')});
		is(outcome_in($session, undef), '22004', "round $round: its policy holds");

		is(ask($session, 'DROP EXTENSION idempotency'), '', "round $round: dropped");
		is(outcome_in($session, 'key'), '42883', "round $round: there is no idem_begin");
		is(ask($session, 'SELECT ask_again()'), '42883', "round $round: nor in PL/pgSQL");
		is(ask($session, 'CREATE EXTENSION idempotency'), '', "round $round: created");
		is(outcome_in($session, undef), 'execute', "round $round: without the old policy");
	}
	$session->quit;
};

subtest 'a session that has it all cached, and another that drops it' => sub {
	my $session = session($node);

	serves($session, 'cached', 'before');
	ask($session, q{SELECT idem_policy_set('', on_missing_key => 'error')});
	is(outcome_in($session, undef), '22004', 'a policy is cached');
	$node->safe_psql('postgres', 'DROP EXTENSION idempotency; CREATE EXTENSION idempotency');
	is(outcome_in($session, undef), 'execute', 'the old policies are forgotten');
	serves($session, 'cached', 'after');
	$session->quit;
};

subtest 'a DROP that is rolled back' => sub {
	my $session = session($node);

	serves($session, 'before', 'before');
	ask($session, $_) foreach 'BEGIN', 'DROP EXTENSION idempotency', 'ROLLBACK';
	is(outcome_in($session, 'before'), 'replay', 'changes nothing');
	serves($session, 'after', 'after');

	ask($session, $_) foreach 'BEGIN', 'SAVEPOINT s', 'DROP EXTENSION idempotency',
	  'CREATE EXTENSION idempotency';
	is(outcome_in($session, 'before'), 'execute', 'a new one inside of the savepoint is empty');
	ask($session, 'ROLLBACK TO s');
	is(outcome_in($session, 'before'), 'replay', 'after it the old one is back');
	is(outcome_in($session, 'inside'), 'execute', 'and works');
	is(ask($session, 'COMMIT'), '', 'and commits');
	is(record_state($node, 'inside'), 'in_progress', 'the claim begun there');
	$session->quit;
};

subtest 'DROP waits for an open claim' => sub {
	my ($session, $other) = (session($node), session($node));
	my $pid = pid_of($other);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'open'), 'execute', 'a claim is open');
	ask_later($other, 'DROP EXTENSION idempotency');
	wait_until_blocked($node, $pid);
	is(ask($session, completion('open')), 't', 'its holder completes it');
	is(ask($session, 'COMMIT'), '', 'and commits');
	is(ask($other), '', 'then the extension is dropped');
	is(outcome_in($session, 'open'), '42883', 'which the holder learns at its next call');
	$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
	serves($session, 'open', 'a new one');
	$_->quit foreach $session, $other;
};

subtest 'DROP in the transaction that has a claim open' => sub {
	my $session = session($node);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'orphan'), 'execute', 'begun');
	is(ask($session, 'DROP EXTENSION idempotency'), '', 'dropped');
	# The SQL store has already written the row, which goes with the table.
	my $written = $node->safe_psql('postgres', 'SHOW idempotency.store') eq 'sql';
	is(ask($session, 'COMMIT'), $written ? '' : '42P01', 'a claim that can not be recorded can not be committed');
	$node->safe_psql('postgres', 'CREATE EXTENSION idempotency') if $written;
	is(record_state($node, 'orphan'), 'absent', 'so nothing is left of it');
	serves($session, 'orphan', 'and the session goes on');

	ask($session, 'BEGIN');
	ask($session, completion('ended')) if outcome_in($session, 'ended') eq 'execute';
	is(ask($session, 'DROP EXTENSION idempotency'), '', 'a claim that has ended');
	is(ask($session, 'COMMIT'), '', 'does not keep the extension from going');
	$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
	$session->quit;
};

subtest 'the tables are gone, the functions are not' => sub {
	add_database($node, 'broken', 'public');
	my $broken = session($node, 'broken');
	serves($broken, 'key', 'whole');
	$node->safe_psql('broken', q{
		ALTER EXTENSION idempotency DROP VIEW idempotency.records;
		ALTER EXTENSION idempotency DROP VIEW idempotency.in_flight;
		ALTER EXTENSION idempotency DROP VIEW idempotency.abandoned;
		ALTER EXTENSION idempotency DROP VIEW idempotency.sweeper;
		ALTER EXTENSION idempotency DROP TABLE idempotency.record;
		DROP TABLE idempotency.record CASCADE});
	is(outcome_in($broken, 'key'), '42P01', 'no table record: idem_begin names it');
	is(ask($broken, q{SELECT idem_get('key')}), '42P01', 'so does idem_get');
	is(ask($broken, q{SELECT idem_complete('key', token => 1)}), '42P01', 'and idem_complete');
	is(ask($broken, 'SELECT idem_cleanup()'), '42P01', 'and idem_cleanup');
	$node->safe_psql('broken', q{
		ALTER EXTENSION idempotency DROP VIEW idempotency.policies;
		ALTER EXTENSION idempotency DROP TABLE idempotency.policy;
		DROP TABLE idempotency.policy CASCADE});
	is(outcome_in($broken, 'key'), '42P01', 'no policy: the same');
	my (undef, undef, $stderr) = $node->psql('broken', q{SELECT idem_begin('key')});
	like($stderr, qr/extension "idempotency" is not installed in this database\n.*HINT: /s,
		'in words');
	is(ask($broken, 'SELECT 1'), '1', 'the session goes on');
	$broken->quit;
};

subtest 'search_path' => sub {
	my $session = session($node);

	serves($session, 'path', 'by default');
	ask($session, q{SET search_path = ''});
	is(ask($session, q{SELECT outcome FROM public.idem_begin('path')}), 'replay', 'empty');
	is(ask($session, q{SELECT outcome FROM public.idem_begin('path-2')}), 'execute', 'still empty');
	ask($session, q{
		CREATE SCHEMA hostile;
		CREATE TABLE hostile.record (LIKE idempotency.record);
		CREATE FUNCTION hostile.no(text, text) RETURNS boolean LANGUAGE sql RETURN false;
		CREATE OPERATOR hostile.= (FUNCTION = hostile.no, LEFTARG = text, RIGHTARG = text);
		SET search_path = hostile, pg_catalog, public, idempotency});
	is(outcome_in($session, 'path'), 'replay', 'hostile');
	serves($session, 'path-3', 'still hostile');
	is(ask($session, 'SELECT count(*) FROM hostile.record'), '0', 'nothing went astray');
	ask($session, 'RESET search_path');
	$session->quit;
};

subtest 'two databases' => sub {
	add_database($node, 'twin', 'public');
	my ($here, $there) = (session($node), session($node, 'twin'));

	ask($_, 'BEGIN') foreach $here, $there;
	is(outcome_in($_, 'shared'), 'execute', 'the same key in each') foreach $here, $there;
	is(ask($_, completion('shared')), 't', 'completed in each') foreach $here, $there;
	ask($there, 'ROLLBACK');
	ask($here, 'COMMIT');
	is(outcome_in($here, 'shared'), 'replay', 'kept in one');
	is(outcome_in($there, 'shared'), 'execute', 'and not in the other');
	$there->quit;
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE twin');
	my $copied = begin_claim($node, 'shared', -database => 'copy');
	is($copied->{outcome}, 'in_progress', 'a copy of a database has its claims');
	$node->safe_psql('twin', 'DROP EXTENSION idempotency');
	is(outcome_in($here, 'shared'), 'replay', 'dropped in one, kept in the other');
	is(($node->psql('postgres', 'DROP DATABASE twin'))[0], 0, 'DROP DATABASE is not blocked');
	$here->quit;
};

$node->stop;
done_testing();
