# Procedures that commit after each batch: what a cancel or an error leaves, what they report
# meanwhile, and that no state outlives a call.
use Idem;

# Makes the names of some thousand records spill to a file.
my $node = new_node('main', work_mem => '64kB', jit => 'off',
	log_min_messages => 'notice');

# A session that writes or removes the record of a key listed there waits for the lock of that
# number.
$node->safe_psql('postgres', q{
	CREATE TABLE gate (key text PRIMARY KEY, number integer);
	CREATE FUNCTION at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		found integer := (SELECT number FROM public.gate g WHERE g.key = OLD.key);
	BEGIN
		IF found = 0 THEN
			RAISE division_by_zero;
		ELSIF found > 0 THEN
			PERFORM pg_advisory_xact_lock(found);
		END IF;
		RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
	END $$;
	CREATE TRIGGER at_gate BEFORE UPDATE OR DELETE ON idempotency.record
		FOR EACH ROW EXECUTE FUNCTION at_gate()});

# abandoned(25): that many claims with expired leases, in order.
sub abandoned ($count)
{
	$node->safe_psql('postgres', qq{
		TRUNCATE idempotency.record, idempotency.audit, gate;
		INSERT INTO idempotency.record (scope, principal, key, status, attempt, token, lease_us,
			created_at, claimed_at, expires_at, retained_until, lease_until)
		SELECT 's', 'p', 'k' || n, 'i', 1, n, 1, t, t, t, t, t
		FROM generate_series(1, $count) AS n, CAST(now() - interval '1 day' + n * interval '1 s' AS timestamptz) AS t});
	return;
}

sub answer
{
	return $node->safe_psql('postgres', @_);
}

# Unchanged records, and rows of the audit.
my $state = q{SELECT count(*) FILTER (WHERE status = 'i'), (SELECT count(*) FROM idempotency.audit) FROM idempotency.record};
my $files = q{SELECT count(*) FROM pg_ls_tmpdir()};
my %calls = (
	q{CALL idem_resolve_all('release', scope => 's', batch_size => 10)} => 'deciding',
	q{CALL idem_forget_principal('p', batch_size => 10)} => 'forgetting');

foreach my $call (sort keys %calls)
{
	my $what = $calls{$call};
	my $session = session($node);
	my $pid = pid_of($session);

	abandoned(5000);
	$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('k25', 7)});
	my $keeper = session($node);
	ask($keeper, 'SELECT pg_advisory_lock(7)');
	ask_later($session, $call);
	wait_until_blocked($node, $pid);
	is(answer($state), '4980|20', "$what: whole batches are committed meanwhile");
	cmp_ok(answer($files), '>', 0, 'the names of the others lie in a file');
	answer("SELECT pg_cancel_backend($pid)");
	is(ask($session), '57014', 'cancelled');
	is(answer($state), '4980|20', 'and stay, and nothing of the one that was broken off');
	is(answer($files), '0', 'the file is gone, too');
	ask($keeper, 'SELECT pg_advisory_unlock(7)');
	$keeper->quit;

	$node->safe_psql('postgres', q{UPDATE gate SET key = 'k45', number = 0});
	is(ask($session, $call), '22012', 'an error');
	is(answer($state), '4960|40', '... leaves whole batches as well');
	$node->safe_psql('postgres', 'TRUNCATE gate');
	like(ask($session, $call), qr/^4960\|0\|\[\]/, 'the next call does the rest');
	is(answer($files), '0', 'and leaves no file');
	is(answer(q{SELECT count(*) FROM idempotency.record WHERE status = 'i'}), '0', 'nothing is left');
	is(ask($session, q{SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'}),
		'0', 'no lock either');
	is(ask($session, 'SELECT current_user = session_user'), 't', 'as oneself again');
	$session->quit;
}

# A long call reports its progress.
abandoned(3);
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('k1', 7)});
my $keeper = session($node);
ask($keeper, 'SELECT pg_advisory_lock(7)');
my $session = session($node);
my $pid = pid_of($session);
ask($session, q{\set VERBOSITY terse});
ask_later($session, q{CALL idem_resolve_all('release', scope => 's')});
wait_until_blocked($node, $pid);
answer('SELECT pg_sleep(5.1)');
ask($keeper, 'SELECT pg_advisory_unlock(7)');
$keeper->quit;
$session->query('');
like($session->{stderr},
	qr/NOTICE:  idem_resolve_all\(\): 1 of 3 records, of which 0 are being executed/, 'progress');
$session->quit;

# The procedure names a hundred keys that are being executed, and counts all of them.
abandoned(150);
$node->safe_psql('postgres', q{UPDATE idempotency.record SET lease_until = now() + interval '1 hour' WHERE key <> 'k7'});
$session = session($node);
my ($resolved, $running, $keys) =
  split /\|/, ask($session, q{CALL idem_resolve_all('release', scope => 's')});
is("$resolved|$running", '1|149', 'running ones are counted');
my %told = map { $_ => 1 } $keys =~ /"key": "(k\d+)"/g;
is(scalar(keys %told), 100, 'a hundred are reported');
$session->quit;
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
like($log, qr/NOTICE:  idem_resolve_all/, 'the log has the progress');
unlike($log, qr/"key":/, 'and no key');

$node->stop;
done_testing();
