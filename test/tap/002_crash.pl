# Crashes at every step of the protocol. Afterwards each key is exactly one of absent, in progress
# and completed, as the fate of its transaction demands, and no caller has to wait.
use List::Util qw(max);
use Idem;

my $node = new_node('main',
	max_prepared_transactions => 10,
	wal_level => 'replica',
	max_wal_senders => 2,
	restart_after_crash => 'on',
	wal_writer_delay => '10s');
my @tokens;

# Starts a claim in a session and notes its token.
sub claim ($session, $key)
{
	my ($outcome, $attempt, $token) = claim_in($session, $key);
	is("$outcome, $attempt", 'execute, 1', "$key is begun");
	push @tokens, $token;
	return $token;
}

# Brings one key to each step, the key being the step's name behind a prefix. Returns the tokens by
# step and the sessions whose transactions are open.
sub bring_to_every_step ($prefix)
{
	my (%token, @open);
	my $short = session($node);

	$token{$_} = claim($short, "$prefix-$_") foreach qw(leased ending completed);
	is(ask($short, completion("$prefix-completed", $token{completed})), 't', 'one is completed');

	foreach my $step (qw(begun ended ending))
	{
		my $session = session($node);
		ask($session, 'BEGIN');
		$token{$step} //= claim($session, "$prefix-$step");
		is(ask($session, completion("$prefix-$step", $token{$step})), 't', "$step is completed")
		  if $step ne 'begun';
		push @open, $session;
	}
	foreach my $step (qw(prepared finished dropped))
	{
		ask($short, 'BEGIN');
		$token{$step} = claim($short, "$prefix-$step");
		ask($short, completion("$prefix-$step", $token{$step})) if $step ne 'prepared';
		is(ask($short, "PREPARE TRANSACTION '$prefix-$step'"), '', "$step is prepared");
	}
	$short->quit;
	return (\%token, @open);
}

sub check_states ($prefix)
{
	my %expected = (
		begun => 'absent',
		leased => 'in_progress',
		ending => 'in_progress',
		ended => 'absent',
		completed => 'completed',
		prepared => 'absent',
		finished => 'absent',
		dropped => 'absent');

	is(record_state($node, "$prefix-$_"), $expected{$_}, "$_: its record is $expected{$_}")
	  foreach sort keys %expected;
	return;
}

# Work that was not committed may run at once. Committed work is neither lost nor run again.
sub check_outcomes ($prefix, $token)
{
	my $session = session($node);

	is(outcome_in($session, "$prefix-$_"), 'in_progress', "$_: still claimed")
	  foreach qw(leased ending prepared finished dropped);
	is(begin_claim($node, "$prefix-completed")->{body}, '\\x646f6e65', 'completed: replayed');
	foreach my $step (qw(begun ended))
	{
		is(ask($session, completion("$prefix-$step", $token->{$step})),
			'ID404', "$step: the old holder has nothing to complete");
		my ($outcome, $attempt, $new) = claim_in($session, "$prefix-$step");
		is("$outcome, $attempt", 'execute, 1', "$step: begun again without a wait");
		cmp_ok($new, '>', max(@tokens), "$step: its token is larger than any before the crash");
		is(ask($session, completion("$prefix-$step", $token->{$step})),
			'ID409', "$step: the old holder's token is of no use");
	}
	is(ask($session, completion("$prefix-$_", $token->{$_})), 't', "$_: its holder completes it")
	  foreach qw(leased ending);
	$session->quit;
	return;
}

sub check_prepared ($prefix, $token)
{
	my $session = session($node);

	is(ask($session, "COMMIT PREPARED '$prefix-$_'"), '', "$_: committed after the crash")
	  foreach qw(prepared finished);
	is(ask($session, "ROLLBACK PREPARED '$prefix-dropped'"), '', 'dropped: rolled back');
	is(record_state($node, "$prefix-prepared"), 'in_progress', 'prepared: is a leased claim now');
	is(outcome_in($session, "$prefix-prepared"), 'in_progress', 'prepared: which others respect');
	is(ask($session, completion("$prefix-prepared", $token->{prepared})),
		't', 'prepared: and its holder completes');
	is(begin_claim($node, "$prefix-finished")->{body}, '\\x646f6e65', 'finished: replayed');
	is(outcome_in($session, "$prefix-dropped"), 'execute', 'dropped: free');
	$session->quit;
	return;
}

sub survives ($prefix, $crash)
{
	my ($token, @open) = bring_to_every_step($prefix);

	$crash->($open[0]);
	$_->quit foreach @open;
	check_states($prefix);
	check_outcomes($prefix, $token);
	check_prepared($prefix, $token);
	return;
}

sub stop_and_start
{
	$node->stop('immediate');
	$node->start;
	return;
}

# When one backend is killed, the server assumes damaged shared memory: it ends all other processes
# and recovers.
sub kill_a_backend ($session)
{
	my $started = 'SELECT pg_postmaster_start_time(), min(backend_start) FROM pg_stat_activity'
	  . " WHERE backend_type = 'checkpointer'";
	my $before = $node->safe_psql('postgres', $started);

	kill 'KILL', pid_of($session);
	wait_until { my (undef, $now) = try_to_ask($node->connstr('postgres'), $started); $now && $now ne $before }
	  'the restart after the crash';
	return;
}

survives('stopped', \&stop_and_start);
survives('killed', \&kill_a_backend);

# With synchronous_commit = off a crash may lose the newest commits. It loses a record together with
# the work it stands for, or neither. The WAL writer sleeps, so that there is something to lose.
my $pay = q{
	BEGIN;
	SELECT outcome FROM idem_begin('async-%1$d');
	INSERT INTO payment VALUES ('async-%1$d');
	SELECT idem_complete('async-%1$d', 201);
	COMMIT;
};
$node->safe_psql('postgres', 'CREATE TABLE payment (key text); CHECKPOINT');
$node->safe_psql('postgres',
	'SET synchronous_commit = off;' . join('', map { sprintf $pay, $_ } 1 .. 200));
stop_and_start();

is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM payment AS p
		FULL JOIN (SELECT * FROM idempotency.records WHERE key LIKE 'async-%') AS r USING (key)
		WHERE p.key IS NULL OR r.status IS DISTINCT FROM 'completed'}),
	'0', 'an asynchronous commit keeps or loses both record and payment');
my $kept = $node->safe_psql('postgres', 'SELECT count(*) FROM payment');
note "$kept of 200 asynchronous commits survived";
$node->safe_psql('postgres', join('', map { sprintf $pay, $_ } $kept + 1 .. 200));
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT key) FROM payment'),
	'200|200', 'the requests that were lost are executed when they come again');

# A commit that the server has not confirmed to its client, here because it waits for a standby that
# does not exist. The key is in progress until the crash, completed after it.
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
$node->restart;
my $client = session($node);
my $pid = pid_of($client);
ask($client, 'BEGIN');
claim($client, 'unconfirmed');
ask($client, completion('unconfirmed'));
ask_later($client, 'COMMIT');
$node->poll_query_until('postgres',
	"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid")
  or die 'the commit does not wait';
is(begin_claim($node, 'unconfirmed')->{outcome}, 'in_progress', 'while the commit waits');
$node->adjust_conf('postgresql.conf', 'synchronous_standby_names', undef);
stop_and_start();
abandon($client);
is(begin_claim($node, 'unconfirmed')->{body}, '\\x646f6e65', 'replayed to the repeat');

$node->stop;
done_testing();
