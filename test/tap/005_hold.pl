# hold => true: when the connection of a claim dies, another caller takes it over at once, although
# its lease has not expired. Nothing else that happens to the session ends the claim.
use Idem;

my @hold = (hold => \'true', lease => '1 hour');
my $node = new_node('main', max_prepared_transactions => 10);
my $other = session($node);

# A session and the token of its held claim, committed.
sub holding ($key)
{
	my $session = session($node);
	my ($outcome, $attempt, $token) = claim_in($session, $key, @hold);
	is("$outcome, $attempt", 'execute, 1', "$key: begun");
	return ($session, $token);
}

sub is_taken_over ($key, $why)
{
	my ($outcome, $attempt) = claim_in($other, $key);
	is("$outcome, $attempt", 'execute, 2', "$key: $why");
	return;
}

subtest 'the connection dies' => sub {
	my ($session, $token) = holding('dies');

	is(outcome_in($other, 'dies'), 'in_progress', 'respected while the session lives');
	end_backend($node, pid_of($session));
	$session->quit;
	is_taken_over('dies', 'taken over immediately');
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
	ask($session, 'ROLLBACK');
	is(outcome_in($other, 'ends'), 'in_progress', 'because the claim still runs');
	is(ask($session, completion('ends', $token)), 't', 'completed and committed');
	is(outcome_in($other, 'ends'), 'replay', 'the answer is replayed');
	$session->quit;
};

subtest 'begun and rolled back' => sub {
	my $session = session($node);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'undone', @hold), 'execute', 'begun');
	ask($session, 'ROLLBACK');
	is(outcome_in($other, 'undone'), 'execute', 'and frees the key');
	$session->quit;
};

subtest 'savepoints' => sub {
	my $session = session($node);

	ask($session, $_) foreach 'BEGIN', 'SAVEPOINT s';
	is(outcome_in($session, 'inner', @hold), 'execute', 'begun in a savepoint');
	ask($session, 'ROLLBACK TO s');
	is(outcome_in($other, 'inner'), 'execute', 'and frees the key');

	is(outcome_in($session, 'kept', @hold), 'execute', 'begun again');
	ask($session, 'RELEASE s');
	ask($session, 'SAVEPOINT t');
	is(ask($session, completion('kept')), 't', 'completed');
	ask($session, $_) foreach 'ROLLBACK TO t', 'COMMIT';
	is(outcome_in($other, 'kept'), 'in_progress', 'the claim is alive');
	end_backend($node, pid_of($session));
	$session->quit;
	is_taken_over('kept', 'taken over when the session dies');
};

subtest 'resets of a session by drivers' => sub {
	foreach my $reset ('DISCARD ALL', 'SELECT pg_advisory_unlock_all()')
	{
		my $key = $reset =~ /DISCARD/ ? 'discarded' : 'unlocked';
		my ($session, $token) = holding($key);

		ask($session, $reset);
		is(outcome_in($other, $key), 'in_progress', "$reset: the claim is held");
		ask($session, $_) foreach 'BEGIN', 'SELECT 1 / 0', 'ROLLBACK';
		is(outcome_in($other, $key), 'in_progress', 'a later rollback does not end it, either');
		is(ask($session, completion($key, $token)), 't', 'its holder completes it');
		$session->quit;
	}
};

subtest 'PREPARE TRANSACTION' => sub {
	my $session = session($node);

	ask($session, 'BEGIN');
	is(outcome_in($session, 'prepared', @hold), 'execute', 'begun');
	is(ask($session, "PREPARE TRANSACTION 'held'"), '', 'prepared');
	end_backend($node, pid_of($session));
	$session->quit;
	is(outcome_in($other, 'prepared'), 'in_progress', 'no caller takes a prepared claim over');
	is(ask($other, "COMMIT PREPARED 'held'"), '', 'committed by another session');
	is_taken_over('prepared', 'and taken over, because its holder is gone');
};

$other->quit;
$node->stop;
done_testing();
