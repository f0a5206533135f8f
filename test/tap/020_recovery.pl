# Crash recovery that is itself interrupted, by a crash or a shutdown: the result is the same as
# after one crash. And recovery to a point before some acknowledged work: that work is gone, and its
# tokens are rejected.
use File::Path qw(rmtree);
use Idem;

my %durable = (fsync => 'on', synchronous_commit => 'on', full_page_writes => 'on');

# Every row as text, and the effects.
sub content ($node)
{
	return $node->safe_psql('postgres', q{
		SELECT r::text FROM idempotency.record AS r
		UNION ALL SELECT 'effect ' || key FROM effect ORDER BY 1});
}

sub effects_fit ($node, $why)
{
	is( $node->safe_psql('postgres', q{
			SELECT coalesce(string_agg(key, ' '), '')
			FROM effect FULL JOIN (SELECT key FROM idempotency.records WHERE status = 'completed') AS r
				USING (key)
			WHERE effect.key IS NULL OR r.key IS NULL}),
		'', $why);
	return;
}

# pay($session, 'k', token): the effect and its record, in one transaction.
sub pay ($session, $key, $token = undef)
{
	ask($session, 'BEGIN');
	is(outcome_in($session, $key), 'execute', "$key is begun") unless $token;
	ask($session, "INSERT INTO effect VALUES ('$key')");
	is(ask($session, completion($key, $token)), 't', "$key is completed");
	return;
}

subtest 'crash and shutdown during crash recovery' => sub {
	my $node = new_node('main', %durable,
		max_prepared_transactions => 10,
		# Makes recovery long and slow.
		checkpoint_timeout => '1h',
		max_wal_size => '10GB',
		shared_buffers => '1MB',
		bgwriter_lru_maxpages => 0);
	$node->safe_psql('postgres', q{
		CREATE TABLE effect (key text);
		CREATE TABLE filler (id int, random text);
		CREATE INDEX ON filler (random);
		CHECKPOINT});

	my ($short, $open) = (session($node), session($node));
	my (undef, undef, $leased) = claim_in($short, 'leased', lease => '1 hour');
	my (undef, undef, $ended) = claim_in($short, 'ended', lease => '1 hour');
	pay($short, 'done');
	ask($short, 'COMMIT');
	pay($short, 'prepared');
	is(ask($short, q{PREPARE TRANSACTION 'prepared'}), '', 'prepared');
	pay($open, 'open');
	$node->safe_psql('postgres', q{
		INSERT INTO filler SELECT n, md5(n::text) FROM generate_series(1, 200000) AS n});
	pay($short, 'ended', $ended);
	ask($short, 'COMMIT');
	my $before = content($node);
	$node->stop('immediate');
	$_->quit foreach $short, $open;

	$node->backup_fs_cold('crashed');
	my $once = PostgreSQL::Test::Cluster->new('once');
	$once->init_from_backup($node, 'crashed');

	break_off_recovery($node, $_) foreach 'KILL', 'QUIT', 'INT', 'KILL';
	$_->start foreach $node, $once;
	is(content($node), $before, 'acknowledged work is there');
	is(content($node), content($once), 'as after one crash');
	effects_fit($node, 'and so are its effects');

	my $session = session($node);
	is(begin_claim($node, 'done')->{body}, '\\x646f6e65', 'done: replayed');
	is(outcome_in($session, 'ended'), 'replay', 'ended: replayed');
	is(outcome_in($session, 'leased'), 'in_progress', 'leased: still claimed');
	is(ask($session, completion('leased', $leased)), 't', 'and its holder completes it');
	is(outcome_in($session, 'prepared'), 'in_progress', 'prepared: still prepared');
	is(ask($session, q{COMMIT PREPARED 'prepared'}), '', 'and can be committed');
	is(outcome_in($session, 'prepared'), 'replay', 'and is replayed then');
	is(join(', ', (claim_in($session, 'open'))[0, 1]), 'execute, 1', 'open: free');
	$session->quit;
	$_->stop foreach $node, $once;
};

# Starts the server and sends that signal to the postmaster during recovery. The recovering process
# is stopped meanwhile, so that it can't finish. KILL goes to all processes, as when a machine dies:
# one that waits for an LWLock of a killed process would never end.
sub break_off_recovery ($node, $signal)
{
	my $size = -s $node->logfile;
	my $log = sub { slurp_file($node->logfile, $size) };

	# Until no process uses the memory that the previous server left behind.
	wait_until
	{
		system_log('pg_ctl', '--no-wait', '--pgdata', $node->data_dir, '--log', $node->logfile, 'start');
		wait_until { $log->() =~ /redo starts at|pre-existing shared memory|lock file/ } 'a start';
		$log->() =~ /redo starts at/;
	}
	'recovery';
	my ($startup) = $log->() =~ /\[(\d+)\] LOG:  redo starts at/;
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	kill 'STOP', $startup;
	if ($log->() =~ /redo done at/)
	{
		kill 'CONT', $startup;
		crash_again($node);
		return break_off_recovery($node, $signal);
	}
	pass("$signal: recovery is under way");
	my ($children) = run_command([ 'ps', '-o', 'pid=', '--ppid', $postmaster ]);
	my @others = split ' ', $children;
	kill $signal, $postmaster;
	if ($signal eq 'KILL')
	{
		kill 'KILL', @others;
	}
	else
	{
		# The startup process must have its own signal before it continues: signals do not overtake
		# each other.
		$node->wait_for_log(qr/received (?:fast|immediate) shutdown request/, $size);
		kill 'CONT', $startup;
	}
	wait_until { !kill 0, @others, $postmaster } 'the end of the server';
	my ($state) = run_command([ 'pg_controldata', $node->data_dir ]);
	like($state, qr/cluster state: +(?:in crash recovery|shut down in recovery)\n/, "$signal: and has not come to its end");
	return;
}

# If the recovery has come to its end before the signal.
sub crash_again ($node)
{
	system_or_bail('pg_ctl', '--mode', 'immediate', '--pgdata', $node->data_dir, 'stop');
	rmtree($node->data_dir);
	PostgreSQL::Test::RecursiveCopy::copypath($node->backup_dir . '/crashed', $node->data_dir);
	chmod 0700, $node->data_dir or die "chmod: $!";
	return;
}

subtest 'recovery to a moment before' => sub {
	my $node = new_node('origin', %durable, -init => [ has_archiving => 1, allows_streaming => 1 ]);
	my $session = session($node);

	$node->safe_psql('postgres', 'CREATE TABLE effect (key text)');
	my $late = begin_claim($node, 'late', lease => '1 ms');
	my (undef, undef, $leased) = claim_in($session, 'leased', lease => '1 hour');
	pay($session, 'done');
	ask($session, 'COMMIT');
	$node->backup('base');

	$node->safe_psql('postgres', q{SELECT pg_create_restore_point('before')});
	my $before = content($node);
	# The recovery ends before all of this.
	pay($session, 'leased', $leased);
	ask($session, 'COMMIT');
	pay($session, 'new');
	ask($session, 'COMMIT');
	my (undef, $attempt, $taken) = claim_in($session, 'late', lease => '1 hour');
	is($attempt, '2', 'taken over');
	my (undef, undef, $fresh) = claim_in($session, 'fresh', lease => '1 hour');
	$session->quit;
	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$node->stop;

	my $restored = PostgreSQL::Test::Cluster->new('restored');
	$restored->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	$restored->append_conf('postgresql.conf', q{
		recovery_target_name = 'before'
		recovery_target_action = 'promote'});
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'not promoted';
	is(content($restored), $before, 'all is as it was');
	effects_fit($restored, 'effects fit their records');

	$session = session($restored);
	is(outcome_in($session, 'done'), 'replay', 'done before: replayed');
	is(record_state($restored, 'leased'), 'in_progress', 'completed later: in progress again');
	is(outcome_in($session, 'leased'), 'in_progress', 'and respected');
	is(record_state($restored, $_), 'absent', "$_, of later: absent") foreach 'new', 'fresh';
	is(ask($session, completion('late', $taken)), 'ID409', 'a token of later does not fit the record');
	is(ask($session, completion('fresh', $fresh)), 'ID404', 'an absent record is not found either');
	my %old = (late => $taken, fresh => $fresh);
	foreach my $key (sort keys %old)
	{
		my (undef, undef, $token) = claim_in($session, $key, lease => '1 hour');
		isnt($token, $old{$key}, "$key: granted anew under another token");
		is(ask($session, completion($key, $old{$key})), 'ID409', "$key: the old one is of no use");
		is(ask($session, completion($key, $token)), 't', "$key: the new one is");
	}
	pay($session, 'new');
	ask($session, 'COMMIT');
	pay($session, 'leased', $leased);
	ask($session, 'COMMIT');
	is($restored->safe_psql('postgres', 'SELECT count(*), count(DISTINCT key) FROM effect'),
		'3|3', 'whatever came back has its effect once');
	$session->quit;
	$restored->stop;
};

done_testing();
