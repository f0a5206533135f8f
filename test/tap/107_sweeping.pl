# What a sweep removes and spares, in which batches, and how it acts under errors and timeouts.
use Idem;
use Sweeping;

my $node = sweeping_node('main',
	-prepare => sub {
		my ($node) = @_;
		add_database($node, 'plain', 'public');
		# A line per batch: its transaction, rows and how long that has lasted.
		$node->safe_psql('postgres', q{
			CREATE TABLE batch (xid xid8, amount bigint, lasted interval);
			CREATE FUNCTION note_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO public.batch SELECT pg_current_xact_id(), count(*),
					clock_timestamp() - now() FROM gone HAVING count(*) > 0;
				RETURN NULL;
			END $$;
			CREATE TRIGGER note_batch AFTER DELETE ON idempotency.record
				REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note_batch()});
	});

sub in_view ($what)
{
	return $node->safe_psql('postgres', "SELECT $what FROM idempotency.sweeper");
}

subtest 'off and on again by reload' => sub {
	my $launcher = launcher($node);

	add_expired($node, 10);
	is_swept($node, 'postgres', 'on');
	configure($node, 'idempotency.cleanup_interval' => 0);
	my $visits = visits($node, 'postgres');
	add_expired($node, 10);
	$node->safe_psql('postgres', 'SELECT pg_sleep(2.5)');
	is(visits($node, 'postgres'), $visits, 'off: no visit');
	is(records($node), '10', 'so nothing is removed');
	configure($node, 'idempotency.cleanup_interval' => '1s');
	is_swept($node, 'postgres', 'on again');
	is(launcher($node), $launcher, 'all with one launcher');
};

subtest 'a shorter interval by reload' => sub {
	configure($node, 'idempotency.cleanup_interval' => '1h');
	my $visits = visits($node, 'postgres');
	# The pause after the first visit is the long one.
	$node->restart;
	wait_until { visits($node, 'postgres') > $visits } 'the first visit';
	no_sweeper($node);
	add_expired($node, 10);
	configure($node, 'idempotency.cleanup_interval' => '1s');
	is_swept($node, 'postgres', 'does not wait for the end of the long one');
	# Restored whatever the result, so that the other tests can run.
	$node->safe_psql('postgres', 'TRUNCATE idempotency.record');
	$node->restart;
};

# From 17 on the range has units.
subtest 'bad values are refused with their range' => sub {
	my %refused = (
		"cleanup_interval = -1" => qr/-1 s? ?is outside the valid range .*\(0(?: s)? \.\. 86400(?: s)?\)/,
		"cleanup_interval = '2d'" => qr/172800 .*\(0(?: s)? \.\. 86400(?: s)?\)/,
		"cleanup_interval = 'soon'" => qr/invalid value.*"soon"/,
		"cleanup_batch_size = 0" => qr/0 is outside the valid range .*\(1 \.\. 100000\)/,
		"cleanup_batch_size = 100001" => qr/100001 .*\(1 \.\. 100000\)/,
		"cleanup_grace = -1" => qr/-1 .*\(0(?: s)? \.\. 2147483647(?: s)?\)/,
		"log_events = 'some'" => qr/invalid value.*"some".*\n.*off, problems, all/);

	foreach my $setting (sort keys %refused)
	{
		my (undef, undef, $stderr) =
		  $node->psql('postgres', "ALTER SYSTEM SET idempotency.$setting");
		like($stderr, $refused{$setting}, $setting);
	}
	my $session = session($node);
	is(ask($session, "SET idempotency.$_"), '55P02', "$_ is not for a session")
	  foreach 'cleanup_interval = 1', 'cleanup_batch_size = 1', 'cleanup_grace = 1';
	$session->quit;
};

subtest 'batch size' => sub {
	$node->safe_psql('postgres', 'TRUNCATE batch');
	configure($node, 'idempotency.cleanup_batch_size' => 10);
	add_expired($node, 25);
	is_swept($node, 'postgres', 'in batches');
	is($node->safe_psql('postgres', q{SELECT string_agg(amount::text, ' ' ORDER BY xid) FROM batch}),
		'10 10 5', 'of the size that is set, a transaction each');
	configure($node, 'idempotency.cleanup_batch_size' => 200);
};

subtest 'grace' => sub {
	configure($node, 'idempotency.cleanup_grace' => '1h');
	add_expired($node, 5, ended => '2 hours');
	add_expired($node, 5, ended => '10 minutes', key => 'young-');
	is_swept($node, 'postgres', 'older records are removed');
	is(records($node), '5', 'younger records stay');
	configure($node, 'idempotency.cleanup_grace' => 0);
	ok( $node->poll_query_until('postgres',
			'SELECT NOT EXISTS (SELECT FROM idempotency.record)'),
		'and goes without grace');
};

# Decisions are kept for a time of their own, and are removed in batches of the same size.
subtest 'the audit' => sub {
	my $left = q{SELECT string_agg(acting_as, ' ' ORDER BY acting_as) FROM idempotency.audit};
	my $add = q{INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as)
		SELECT now() - n * interval '1 day', 'forget', 'me', to_char(n, 'FM00') FROM generate_series(1, 35) n};

	$node->safe_psql('postgres', "TRUNCATE idempotency.audit; $add");
	configure($node, 'idempotency.cleanup_batch_size' => 10, 'idempotency.audit_retention' => '756h');
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 31 FROM idempotency.audit'),
		'older records are removed');
	wait_for_visits($node, 'postgres', 1);
	is($node->safe_psql('postgres', $left),
		join(' ', map { sprintf '%02d', $_ } 1 .. 31), 'and nothing else');
	configure($node, 'idempotency.audit_retention' => 0);
	wait_for_visits($node, 'postgres', 1);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency.audit'), '31',
		'without a limit nothing goes');
	# The sweeper does not wait for a session that alters the table, and records are removed
	# meanwhile.
	my $ddl = session($node);
	ask($ddl, 'BEGIN; LOCK TABLE idempotency.audit');
	configure($node, 'idempotency.audit_retention' => '1d');
	add_expired($node, 25);
	is_swept($node, 'postgres', 'during DDL on the audit');
	is(in_view('failures'), '0', 'no visit fails');
	ask($ddl, 'COMMIT');
	$ddl->quit;
	ok( $node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM idempotency.audit'),
		'and afterwards decisions, in more than one batch');
	configure($node, 'idempotency.cleanup_batch_size' => 200, 'idempotency.audit_retention' => '365d');
};

subtest 'a living lease or retention' => sub {
	my $long = begin_claim($node, 'leased', lease => '1 hour', ttl => '1 second')->{token};
	my $lost = begin_claim($node, 'lost', lease => '1 ms', ttl => '1 second')->{token};
	my $kept = begin_claim($node, 'kept', ttl => '1 hour')->{token};
	call($node, 'idem_complete', key => 'kept', token => $kept);

	# From now on all but the last have outlived their retention.
	$node->safe_psql('postgres', q{
		UPDATE idempotency.record SET expires_at = now(), retained_until = now() - interval '1 min'
		WHERE key IN ('leased', 'lost')});
	add_expired($node, 10);
	is_swept($node, 'postgres', 'others go');
	is(record_state($node, 'leased'), 'in_progress', 'a living lease stays');
	is(record_state($node, 'lost'), 'in_progress', 'a lost one too: it may get its result yet');
	is(record_state($node, 'kept'), 'completed', 'and a living retention');
	is(call($node, 'idem_complete', key => 'leased', token => $long, ttl => '1 hour'),
		't', 'the holder completes late');
	is(begin_claim($node, 'lost')->{attempt}, '2', 'the lost one is taken over');
	$node->safe_psql('postgres', 'DELETE FROM idempotency.record');
};

# A sweeper stays at a gate for four seconds. If that was too short, all is undone.
sub too_late ($session, $size)
{
	return 0 unless log_since($node, $size, qr/canceling statement due to statement timeout/);
	ask($session, 'ROLLBACK');
	# Only the first error of a streak is logged.
	untrigger($node, 'postgres');
	$node->safe_psql('postgres', 'DELETE FROM idempotency.record');
	wait_for_visits($node, 'postgres', 2);
	return 1;
}

# With triggers on the table, as here, records are written with SQL and at the beginning.
subtest 'a record that is used again while the sweeper comes to it' => sub {
	my $session = session($node);
	my $pid = pid_of($session);
	my $begin = 'SELECT outcome FROM ' . invocation('idem_begin', key => 'again-1', wait => '10 minutes');
	my ($size, @told);

	do
	{
		$size = log_size($node);
		hold_back($node);
		my $gate = close_gate($node, 'postgres');
		add_expired($node, 1, ended => '2 hours');
		add_expired($node, 1, ended => '1 hour', key => 'again-');
		let_go($node);
		# It has its snapshot, in which both records are expired, and waits at the older one.
		wait_for_sweeper($node, 'postgres', q{wait_event = 'advisory'});
		@told = outcome_in($session, 'again-1');
		ask($session, 'BEGIN');
		ask_later($session, $begin);
		wait_until { $node->safe_psql('postgres', qq{
			SELECT pid FROM pg_stat_activity WHERE pid = $pid AND query LIKE '%10 minutes%'
			AND (cardinality(pg_blocking_pids($pid)) > 0 OR state = 'idle in transaction')}) }
		'the wait';
		open_gate($gate);
		push @told, ask($session);
	} while (too_late($session, $size));
	is($told[0], 'in_progress', 'a caller that does not wait gets in_progress');
	is($told[1], 'execute', 'a waiting caller executes when the sweeper has finished');
	is(ask($session, completion('again-1')), 't', 'and completes it');
	is(ask($session, 'COMMIT'), '', 'committed');
	is_swept($node, 'postgres', 'the older one goes');
	wait_for_visits($node, 'postgres', 1);
	is(outcome_in($session, 'again-1'), 'replay', 'the newer one stays');
	$session->quit;
	untrigger($node, 'postgres');
};

subtest 'a record that could be swept while it is used again' => sub {
	# Without triggers the heap store is used, which writes the record at completion.
	my $early = ($ENV{IDEM_STORE} // '') eq 'sql';

	foreach my $database ('postgres', 'plain')
	{
		my $session = session($node, $database);
		hold_back($node);
		add_expired($node, 1, database => $database);
		ask($session, 'BEGIN');
		is(outcome_in($session, 'old-1'), 'execute', 'it is begun again');
		let_go($node);
		if ($early || $database eq 'postgres')
		{
			wait_for_visits($node, $database, 2);
			pass("$database: the sweeper skips written records");
		}
		else
		{
			is_swept($node, $database, "$database: the old record is swept");
		}
		is(ask($session, completion('old-1')), 't', 'the new one is completed');
		is(ask($session, 'COMMIT'), '', 'committed');
		is(outcome_in($session, 'old-1'), 'replay', 'and kept');
		$session->quit;
		$node->safe_psql($database, 'DELETE FROM idempotency.record');
	}
};

subtest 'a record that is taken over while it could be swept' => sub {
	my $session = session($node);

	hold_back($node);
	begin_claim($node, 'lost', lease => '1 ms', ttl => '1 ms');
	ask($session, 'BEGIN');
	is(join(', ', (claim_in($session, 'lost', ttl => '1 hour'))[0, 1]),
		'execute, 2', 'it is taken over');
	let_go($node);
	wait_for_visits($node, 'postgres', 2);
	is(ask($session, completion('lost')), 't', 'and completed');
	is(ask($session, 'COMMIT'), '', 'committed');
	wait_for_visits($node, 'postgres', 2);
	is(outcome_in($session, 'lost'), 'replay', 'and kept');
	$session->quit;
	$node->safe_psql('postgres', 'DELETE FROM idempotency.record');
};

subtest 'a locked row' => sub {
	my $session = session($node);

	hold_back($node);
	add_expired($node, 1, key => 'locked-');
	add_expired($node, 10);
	ask($session, 'BEGIN');
	ask($session, q{SELECT FROM idempotency.record WHERE key = 'locked-1' FOR UPDATE});
	let_go($node);
	is_swept($node, 'postgres', 'others do not wait for it');
	is(record_state($node, 'locked-1'), 'completed', 'it is passed over');
	ask($session, 'COMMIT');
	ok( $node->poll_query_until('postgres',
			q{SELECT NOT EXISTS (SELECT FROM idempotency.record WHERE key = 'locked-1')}),
		'until it is let go');
	$session->quit;
};

subtest '100,000 expired rows' => sub {
	my $deleted = q{SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'record'};

	$node->safe_psql('postgres', 'TRUNCATE batch');
	my $before = $node->safe_psql('postgres', $deleted);
	my $size = log_size($node);
	add_expired($node, 100_000);
	# Only progress counts, not the time that it takes.
	foreach my $left (map { $_ * 10_000 } reverse 1 .. 9)
	{
		$node->poll_query_until('postgres', "SELECT count(*) <= $left FROM idempotency.record")
		  or die "more than $left are left";
	}
	is_swept($node, 'postgres', 'all go');
	is($node->safe_psql('postgres', q{SELECT sum(amount), max(amount), percentile_disc(0.5) WITHIN GROUP (ORDER BY lasted) < '1 s' FROM batch}),
		'100000|200|t', 'two hundred in a transaction, as a rule none longer than a second');
	# After a failure, as when the machine stands still for four seconds, batches are smaller.
	my $batches = $node->safe_psql('postgres', 'SELECT count(*) FROM batch');
	is($batches, '500', 'in five hundred transactions') unless log_since($node, $size, qr/statement timeout/);
	ok( $node->poll_query_until('postgres', "SELECT ($deleted) >= $before + 100000"),
		'pg_stat_user_tables sees the deletes');
};

subtest 'xmin held by another session' => sub {
	my $session = session($node);

	ask($session, $_) foreach 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1';
	add_expired($node, 5000);
	is_swept($node, 'postgres', 'all go, although none can be vacuumed');
	my $size = log_size($node);
	wait_for_visits($node, 'postgres', 4);
	my @at = visits($node, 'postgres', $size);
	is(scalar(grep { $at[$_] - $at[ $_ - 1 ] < 1 } 1 .. $#at), 0, 'and the sweep does not spin on them');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency.sweeper WHERE backlog = 0'),
		'1', 'for there is no backlog');
	ask($session, 'COMMIT');
	$session->quit;
};

subtest 'locked table' => sub {
	my $session = session($node);

	hold_back($node);
	add_expired($node, 10);
	# As CREATE INDEX does.
	ask($session, $_) foreach 'BEGIN', 'LOCK TABLE idempotency.record IN SHARE MODE';
	let_go($node);
	wait_for_visits($node, 'postgres', 3);
	is(records($node), '10', 'visits end without having waited for it');
	ask($session, 'COMMIT');
	is_swept($node, 'postgres', 'swept when the lock is gone');
	$session->quit;
};

subtest 'streak of errors' => sub {
	my $rename = 'ALTER TABLE idempotency.record RENAME COLUMN';

	foreach (
		[
			'broken',
			sub { trigger_on_delete($node, 'postgres', q{RAISE 'broken'}) },
			sub { untrigger($node, 'postgres') }
		],
		[
			'column "scope" does not exist',
			sub { $node->safe_psql('postgres', "$rename scope TO renamed") },
			sub { $node->safe_psql('postgres', "$rename renamed TO scope") }
		])
	{
		my ($message, $break, $repair) = @$_;
		my $size = log_size($node);
		hold_back($node);
		add_expired($node, 10);
		$break->();
		let_go($node);
		$node->poll_query_until('postgres', 'SELECT failures >= 3 FROM idempotency.sweeper')
		  or die 'no failures are counted';
		is(in_view('last_error'), $message, "$message: seen in the view");
		is(scalar(log_since($node, $size, qr/ERROR:/)), 1, "$message: logged once");
		$repair->();
		is_swept($node, 'postgres', "$message: repaired, and the work is done");
		$node->poll_query_until('postgres', 'SELECT failures = 0 FROM idempotency.sweeper')
		  or die 'failures are not reset';
		is(in_view('last_error'), $message, "$message: the last error stays visible");
	}
};

# Without smaller batches, one that takes too long would fail forever.
subtest 'a batch that is too large' => sub {
	hold_back($node);
	$node->safe_psql('postgres', q{
		TRUNCATE batch;
		CREATE FUNCTION refuse_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM gone) > 60 THEN RAISE 'too many'; END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER refuse_many AFTER DELETE ON idempotency.record
			REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()});
	add_expired($node, 150);
	let_go($node);
	is_swept($node, 'postgres', 'goes in smaller ones');
	is( $node->safe_psql('postgres', 'SELECT (array_agg(amount ORDER BY xid))[1] FROM batch'),
		'50', 'of a quarter of the size after the second failure');
	$node->safe_psql('postgres', 'DROP FUNCTION refuse_many() CASCADE');
};

# Sweepers are few: a session that held one up for long would also delay other databases.
subtest 'a lock in one database' => sub {
	add_database($node, 'other', 'public');
	my $session = session($node, 'other');

	ask($session, $_) foreach 'BEGIN', 'SELECT * FROM idempotency.journal FOR UPDATE';
	add_expired($node, 5, database => 'other');
	my $pid = wait_for_sweeper($node, 'other', q{wait_event_type = 'Lock'});
	add_expired($node, 10);
	is_swept($node, 'postgres', 'the others are swept meanwhile');
	wait_until_gone($node, $pid);
	pass('the sweeper gives up');
	$session->quit;
};

# The database's settings are meant for its users, not for the sweeper.
subtest 'settings of the database' => sub {
	hold_back($node);
	add_expired($node, 10);
	$node->safe_psql('template1', "ALTER DATABASE postgres SET $_")
	  foreach 'default_transaction_read_only = on', 'default_transaction_isolation = serializable',
	  'default_transaction_deferrable = on';
	let_go($node);
	is_swept($node, 'postgres', 'do not keep the sweeper from its work');
	$node->safe_psql('template1', 'ALTER DATABASE postgres RESET ALL');
};

# Deferred triggers run at commit, when the sweeper is a superuser again.
subtest 'a table of another owner' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE mallory;
		CREATE TABLE caught (who text);
		GRANT INSERT ON caught TO PUBLIC;
		CREATE FUNCTION catch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.caught VALUES (current_user);
			RETURN NULL;
		END $$;
		GRANT ALL ON SCHEMA idempotency TO mallory;
		GRANT ALL ON idempotency.journal, idempotency.policy, public.batch TO mallory;
		ALTER TABLE idempotency.record OWNER TO mallory;
		CREATE CONSTRAINT TRIGGER catch AFTER DELETE ON idempotency.record
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION catch()});
	add_expired($node, 10);
	$node->poll_query_until('postgres', 'SELECT failures > 0 FROM idempotency.sweeper')
	  or die 'the deferred trigger is not refused';
	like(in_view('last_error'), qr/security-restricted operation/, 'is refused its deferred trigger');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM caught'), '0', 'nothing of it has run');
	$node->safe_psql('postgres', q{
		DROP TRIGGER catch ON idempotency.record;
		ALTER TABLE idempotency.record OWNER TO CURRENT_USER});
	is_swept($node, 'postgres', 'swept without it');
};

$node->stop;

# The server compiles a plan of high estimated cost, which takes far longer than the work of a
# visit.
subtest 'nothing is compiled' => sub {
	# All plans cost enough to be compiled here; the test's own session must not be counted.
	local $ENV{PGOPTIONS} = '-c jit=off';
	my $watched = sweeping_node('watched',
		jit_above_cost => 0,
		shared_preload_libraries => 'idempotency, auto_explain',
		'auto_explain.log_min_duration' => 0,
		'auto_explain.log_analyze' => 'on');

	my $size = log_size($watched);
	add_expired($watched, 10);
	is_swept($watched, 'postgres', 'records are swept');
	wait_for_visits($watched, 'postgres', 1);
	ok(scalar(log_since($watched, $size, qr/UPDATE idempotency\.journal/)), 'plans are logged');
	is(scalar(log_since($watched, $size, qr/JIT:/)), 0, 'none was compiled');
	$watched->stop;
};

done_testing();
