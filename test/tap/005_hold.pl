# hold => true: a claim whose connection dies is taken over at once, although its lease lives; and
# the session's lock goes when the claim ends, or comes to nothing.
use strict;
use warnings FATAL => 'all';

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use Idem;

my @hold = (hold => \'true', lease => '1 hour');
my $node = new_node('main', max_prepared_transactions => 10);
my $other = session($node);

# How many liveness locks a session has.
sub locks_of
{
	my ($session) = @_;

	return $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18757 AND pid = "
		  . pid_of($session));
}

# A session and the token of its held claim, committed.
sub holding
{
	my ($key) = @_;

	my $session = session($node);
	my ($outcome, $attempt, $token) = claim_in($session, $key, @hold);
	is("$outcome, $attempt", 'execute, 1', "$key: begun");
	is(locks_of($session), '1', "$key: its session holds a lock");
	return ($session, $token);
}

sub is_taken_over
{
	my ($key, $why) = @_;

	my ($outcome, $attempt) = claim_in($other, $key);
	is("$outcome, $attempt", 'execute, 2', "$key: $why");
	return;
}

subtest 'the connection dies' => sub {
	my ($session, $token) = holding('dies');

	is(outcome_in($other, 'dies'), 'in_progress', 'respected while the session lives');
	end_backend($node, pid_of($session));
	$session->quit;
	is_taken_over('dies', 'taken over at once');
	is(ask($other, completion('dies', $token)), 'ID409', 'the old token is of no use');
	is(outcome_in($other, 'dies'), 'in_progress', 'the new claim, not held, has its lease');
};

subtest 'the connection dies before the commit' => sub {
	my $session = session($node);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'early', @hold), 'execute', 'begun');
	end_backend($node, pid_of($session));
	$session->quit;
	is(join(', ', (claim_in($other, 'early'))[0, 1]), 'execute, 1', 'as if it had not been begun');
};

subtest 'the server crashes' => sub {
	my ($session) = holding('crash');

	$node->stop('immediate');
	$_->quit foreach $session, $other;
	$node->start;
	$other = session($node);
	is_taken_over('crash', 'no session has survived that could hold it');
};

subtest 'the claim ends' => sub {
	my ($session, $token) = holding('ends');

	ask($session, 'BEGIN');
	is(ask($session, completion('ends', $token)), 't', 'completed');
	is(locks_of($session), '1', 'the lock stays until the commit');
	ask($session, 'ROLLBACK');
	is(locks_of($session), '1', 'and after a rollback');
	is(outcome_in($other, 'ends'), 'in_progress', 'because the claim still runs');
	is(ask($session, completion('ends', $token)), 't', 'completed and committed');
	is(locks_of($session), '0', 'the lock is given back');
	is(outcome_in($other, 'ends'), 'replay', 'the answer is replayed');
	$session->quit;
};

subtest 'every way to end a claim gives the lock back' => sub {
	my %ending = (
		idem_fail => { error => 'broken' },
		idem_release => {});

	foreach my $function (sort keys %ending)
	{
		my ($session, $token) = holding($function);
		my $call = invocation($function, key => $function, token => $token, %{ $ending{$function} });
		is(ask($session, "SELECT $call"), 't', $function);
		is(locks_of($session), '0', "$function: the lock is given back");
		$session->quit;
	}
	my $session = session($node);
	ask($session, 'BEGIN');
	is(outcome_in($session, 'one-go', @hold), 'execute', 'begun');
	is(ask($session, completion('one-go')), 't', 'and completed in the same transaction');
	ask($session, 'COMMIT');
	is(locks_of($session), '0', 'nothing is left at its commit');
	$session->quit;
};

subtest 'begun and rolled back' => sub {
	my $session = session($node);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'undone', @hold), 'execute', 'begun');
	ask($session, 'ROLLBACK');
	is(locks_of($session), '0', 'a rollback gives the lock back');
	is(outcome_in($other, 'undone'), 'execute', 'and frees the key');
	$session->quit;
};

subtest 'savepoints' => sub {
	my $session = session($node);

	ask($session, $_) foreach 'BEGIN', 'SAVEPOINT s';
	is(outcome_in($session, 'inner', @hold), 'execute', 'begun in a savepoint');
	ask($session, 'ROLLBACK TO s');
	is(locks_of($session), '0', 'whose rollback gives the lock back');
	is(outcome_in($other, 'inner'), 'execute', 'and frees the key');

	is(outcome_in($session, 'kept', @hold), 'execute', 'begun again');
	ask($session, 'RELEASE s');
	ask($session, 'SAVEPOINT t');
	is(ask($session, completion('kept')), 't', 'completed');
	ask($session, $_) foreach 'ROLLBACK TO t', 'COMMIT';
	is(locks_of($session), '1', 'a completion rolled back gives nothing back');
	is(outcome_in($other, 'kept'), 'in_progress', 'the claim is alive');
	end_backend($node, pid_of($session));
	$session->quit;
	is_taken_over('kept', 'taken over when the session dies');
};

subtest 'DISCARD ALL' => sub {
	my ($session, $token) = holding('discarded');

	is(outcome_in($session, 'discarded-2', @hold), 'execute', 'and another one');
	is(ask($session, 'DISCARD ALL'), '', 'is possible');
	is(locks_of($session), '0', 'and releases the locks');
	is(ask($session, 'SELECT ' . invocation('idem_release', key => 'nothing', token => 1)),
		'ID404', 'the session goes on');
	is_taken_over('discarded', 'nobody is known to be alive, so it is taken over');
	is(ask($session, completion('discarded', $token)), 'ID409', 'the old holder learns of it');
	$session->quit;
};

subtest 'pg_advisory_unlock_all' => sub {
	my ($session, $token) = holding('unlocked');

	ask($session, 'SELECT pg_advisory_unlock_all()');
	is(locks_of($session), '0', 'releases the lock');
	is($session->query(completion('unlocked', $token)),
		't', 'the claim can be completed as long as nobody has taken over');
	unlike($session->{stderr}, qr/WARNING/, 'without a warning about the lock');
	$session->quit;
};

subtest 'PREPARE TRANSACTION' => sub {
	my $session = session($node);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'prepared', @hold), 'execute', 'begun');
	is(ask($session, "PREPARE TRANSACTION 'held'"), '', 'prepared');
	is(locks_of($session), '1', 'the lock stays with the session');
	end_backend($node, pid_of($session));
	$session->quit;
	is(outcome_in($other, 'prepared'), 'in_progress', 'nobody takes a prepared claim');
	is(ask($other, "COMMIT PREPARED 'held'"), '', 'committed by another session');
	is_taken_over('prepared', 'and taken over, because its holder is gone');
};

subtest 'two who ask for the same lock' => sub {
	my ($first, $token) = holding('contended');

	is(ask($other, completion('contended', $token)), 't', 'completed by another session');
	is(ask($other, 'SELECT ' . invocation('idem_forget', key => 'contended')), 't', 'forgotten');
	is(outcome_in($other, 'contended', @hold), 'execute', 'begun by another session');
	is(locks_of($other), '0', 'which cannot have the lock');
	end_backend($node, pid_of($first));
	$first->quit;
	is(begin_claim($node, 'contended')->{outcome}, 'in_progress', 'so its lease serves');
};

$other->quit;
$node->stop;
done_testing();
