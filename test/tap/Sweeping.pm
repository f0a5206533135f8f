# Helper of the TAP tests of the launcher and its sweepers, on top of Idem.
package Sweeping;

use Exporter qw(import);
use Idem;

our @EXPORT = qw(
  sweeping_node configure hold_back let_go add_expired records is_swept workers launcher logged_at
  visits knock stay_due wait_for_visits trigger_on_delete untrigger close_gate open_gate wait_for_sweeper
  no_sweeper log_size log_since trouble);

# sweeping_node('main', setting => value, ...): a preloaded server that sweeps every second, with
# the extension in "postgres". -prepare is called before the launcher looks at the databases for the
# first time: objects that it makes are found at once, not after ten intervals.
sub sweeping_node ($name, %conf)
{
	my $prepare = delete $conf{-prepare};
	my $interval = delete $conf{'idempotency.cleanup_interval'} // '1s';

	my $node = new_node($name,
		shared_preload_libraries => 'idempotency',
		'idempotency.cleanup_interval' => 0,
		# At this level the server logs when a worker is started.
		log_min_messages => 'debug1',
		%conf);
	$prepare->($node) if $prepare;
	configure($node, 'idempotency.cleanup_interval' => $interval);
	return $node;
}

# configure($node, setting => value, ...): by reload, the values as SHOW prints them. Afterwards no
# sweeper with the old values is at work, and none comes: a sleeping launcher has had the signal,
# and reads the values before it looks for due databases.
sub configure ($node, %conf)
{
	$node->append_conf('postgresql.conf', "$_ = '$conf{$_}'") foreach sort keys %conf;
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('$_') = '$conf{$_}'")
	  or die "$_ is not reloaded"
	  foreach sort keys %conf;
	$node->poll_query_until('postgres', q{
		SELECT bool_and(backend_type = 'idempotency launcher' AND wait_event_type = 'Extension')
		FROM pg_stat_activity WHERE backend_type LIKE 'idempotency %'})
	  or die 'the launcher does not sleep';
	return;
}

# hold_back($node), let_go($node): between the two the sweeper spares the records that the tests
# add.
sub hold_back ($node)
{
	configure($node, 'idempotency.cleanup_grace' => '1d');
	return;
}

# Does not wait: the next sweeper may be meant to get stuck.
sub let_go ($node)
{
	$node->append_conf('postgresql.conf', 'idempotency.cleanup_grace = 0');
	$node->reload;
	return;
}

# add_expired($node, 1000, database => 'd', scope => 's', key => 'prefix-', ended => '1 hour'):
# completed records whose retention ended that long ago.
sub add_expired ($node, $count, %named)
{
	my $scope = $named{scope} // '';
	my $key = $named{key} // 'old-';
	my $ended = $named{ended} // '1 minute';

	$node->safe_psql($named{database} // 'postgres', qq{
		INSERT INTO idempotency.record (scope, principal, key, status, attempt, token, lease_us,
			created_at, claimed_at, expires_at, retained_until, finished_at)
		SELECT '$scope', '', '$key' || n, 'c', 1, n, 1, t, t, t, t, t
		FROM generate_series(1, $count) AS n, CAST(now() - interval '$ended' AS timestamptz) AS t});
	return;
}

sub records ($node, $database = undef)
{
	return $node->safe_psql($database // 'postgres', 'SELECT count(*) FROM idempotency.record');
}

# is_swept($node, 'database', 'why'): waits until no old record is left.
sub is_swept ($node, $database, $why)
{
	ok( $node->poll_query_until($database,
			q{SELECT NOT EXISTS (SELECT FROM idempotency.record WHERE key LIKE 'old-%')}),
		$why);
	return;
}

# workers($node): the kinds of our workers that run, e.g. ('launcher', 'sweeper').
sub workers ($node)
{
	return split /\n/, $node->safe_psql('postgres', q{
		SELECT substr(backend_type, 13) FROM pg_stat_activity
		WHERE backend_type IN ('idempotency launcher', 'idempotency sweeper') ORDER BY 1});
}

# launcher($node): waits until exactly one runs, and returns its process id.
sub launcher ($node)
{
	my $pid;

	wait_until
	{
		$pid = $node->safe_psql('postgres', q{
			SELECT string_agg(pid::text, ' ') FROM pg_stat_activity
			WHERE backend_type = 'idempotency launcher'
			HAVING count(*) = 1 AND count(*) = (SELECT count(*) FROM pg_locks
				WHERE objsubid = 18758 AND database = 0 AND granted AND mode = 'ExclusiveLock')});
	}
	'one launcher';
	return $pid;
}

# visits($node, $database, $size): when each visit of the database began, in seconds; without $size,
# since the server was created.
sub visits ($node, $database, $size = undef)
{
	my $oid = $node->safe_psql('postgres',
		"SELECT oid FROM pg_database WHERE datname = '$database'");

	return logged_at($node, $size // 0,
		qr/starting background worker process "idempotency sweeper for database $oid"/);
}

# logged_at($node, $size, qr/.../): when each of the lines was written, in seconds of some day.
sub logged_at ($node, $size, $pattern)
{
	my ($last, $days) = (0, 0);

	return map {
		my ($hours, $minutes, $seconds) = / (\d+):(\d+):([\d.]+) / or die "when? $_";
		my $at = $hours * 3600 + $minutes * 60 + $seconds;
		# The test may run through midnight. Some tests set the clock, by hours.
		$days++ if $at < $last - 20 * 3600;
		$last = $at;
		$at + $days * 86400
	} log_since($node, $size, $pattern);
}

# knock($node, $database): a database in which nothing is due is visited when a session has written
# there. This writes, and leaves nothing behind.
sub knock ($node, $database)
{
	$node->safe_psql($database, 'CREATE TEMPORARY TABLE knock ()');
	return;
}

# stay_due($node, $database): from now on each interval has a visit, because an expired record is
# always there, also when others are held back, and can't be removed.
sub stay_due ($node, $database)
{
	$node->safe_psql($database, q{
		CREATE FUNCTION public.spare() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER a_spare BEFORE DELETE ON idempotency.record
			FOR EACH ROW WHEN (OLD.key = 'due-1') EXECUTE FUNCTION public.spare()});
	add_expired($node, 1, database => $database, key => 'due-', ended => '2 days');
	return;
}

# wait_for_visits($node, $database, 2): until that many more visits have begun and ended; knocks if
# need be.
sub wait_for_visits ($node, $database, $more)
{
	my $seen = visits($node, $database);

	wait_until { knock($node, $database); visits($node, $database) >= $seen + $more }
	"visits of $database";
	no_sweeper($node);
	return;
}

# no_sweeper($node): until a visit that has begun is finished.
sub no_sweeper ($node)
{
	wait_until { !grep { $_ eq 'sweeper' } workers($node) } 'the end of a visit';
	return;
}

# trigger_on_delete($node, $database, $statement): PL/pgSQL that runs for each row before its
# removal. A second call replaces the first, also for a sweeper that is at work. A lock in it may
# take longer than a sweeper usually waits for one.
sub trigger_on_delete ($node, $database, $statement)
{
	$node->safe_psql($database, qq{
		CREATE OR REPLACE FUNCTION public.on_delete() RETURNS trigger LANGUAGE plpgsql
		SET lock_timeout = 0
		AS \$\$ BEGIN $statement; RETURN OLD; END \$\$;
		SET client_min_messages = error;
		SELECT NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'on_delete') AS missing \\gset
		\\if :missing
		CREATE TRIGGER on_delete BEFORE DELETE ON idempotency.record
			FOR EACH ROW EXECUTE FUNCTION public.on_delete();
		\\endif});
	return;
}

# untrigger($node, $database): deletes are normal again, also for a sweeper that is in the trigger
# now.
sub untrigger ($node, $database)
{
	trigger_on_delete($node, $database, 'NULL');
	$node->safe_psql('postgres', qq{
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'idempotency sweeper' AND datname = '$database'});
	return;
}

# close_gate($node, $database): a sweeper stops at its first row. Returns the argument for
# open_gate.
sub close_gate ($node, $database)
{
	my $gate = session($node, $database);

	ask($gate, 'SELECT pg_advisory_lock(1)');
	trigger_on_delete($node, $database, 'PERFORM pg_catalog.pg_advisory_xact_lock(1)');
	return $gate;
}

sub open_gate ($gate)
{
	$gate->quit;
	return;
}

# wait_for_sweeper($node, $database, $condition): until a sweeper in that database has a row in
# pg_stat_activity that meets the condition. Returns its process id.
sub wait_for_sweeper ($node, $database, $condition = undef)
{
	my $pid;
	$condition //= 'true';

	wait_until
	{
		$pid = $node->safe_psql('postgres', qq{
			SELECT pid FROM pg_stat_activity WHERE backend_type = 'idempotency sweeper'
			AND datname = '$database' AND $condition});
	}
	"a sweeper in $database";
	return $pid;
}

sub log_size ($node)
{
	return -s $node->logfile;
}

# log_since($node, $size, qr/.../): the matching lines logged since the log had that size.
sub log_since ($node, $size, $pattern)
{
	return grep { /$pattern/ } split /\n/, slurp_file($node->logfile, $size);
}

# trouble($node, $size): lines that an operator would have to look at, since the log had that size.
# Sessions that a restart terminates do not count: a connection may outlive its client for a moment. Nor does the end of
# a visit after four seconds, which may have passed because the machine stood still.
sub trouble ($node, $size)
{
	return grep { !/terminating (?:background worker|connection)|canceling statement due to statement timeout/ }
	  log_since($node, $size, qr/(?:WARNING|ERROR|FATAL|PANIC):/);
}

1;
