# A session that holds up the sweeper of one database, or a sweeper that hangs, does not delay the
# other databases. Each subtest adds expired records to another database while something is stuck,
# and waits for their removal.
use Idem;
use Sweeping;

my $node = sweeping_node('main',
	-prepare => sub {
		my ($node) = @_;
		add_database($node, 'held', 'public');
		# No session can write there while the lock is held.
		stay_due($node, $_) foreach 'held', 'postgres';
	});
my $launcher = launcher($node);

sub visits_by_oid ($oid)
{
	return scalar(
		log_since($node, 0, qr/starting background worker process "idempotency sweeper for database $oid"/));
}

# A session that is still connecting is no backend yet, so pg_stat_activity does not list it.
sub somebody_waits_for_the_database
{
	$node->poll_query_until('postgres', q{
		SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted
			AND locktype = 'object' AND classid = 'pg_database'::regclass)})
	  or die 'no session waits for the database';
	return;
}

sub others_are_swept ($why)
{
	add_expired($node, 10);
	is_swept($node, 'postgres', $why);
	return;
}

# Three visits in a row fail, and the log says so once.
sub is_told_once ($size, $database)
{
	my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
	my $before = visits_by_oid($oid);

	wait_until { visits_by_oid($oid) >= $before + 3 } 'three more visits';
	is(scalar(log_since($node, $size, qr/ERROR:/)), 1, 'the log tells once');
	# From 19 on the server first logs the lock that was waited for.
	is(scalar(log_since($node, $size, qr/(?:CONTEXT:  |^\t)idempotency sweeper of database $oid$/)),
		1, 'and of which database');
	return;
}

subtest 'a rename left open' => sub {
	my $session = session($node);
	my $size = log_size($node);

	no_sweeper($node);
	ask($session, $_) foreach 'BEGIN', 'ALTER DATABASE held RENAME TO renamed';
	somebody_waits_for_the_database();
	others_are_swept('the others are swept meanwhile');
	is_told_once($size, 'held');
	is(ask($session, 'ROLLBACK'), '', 'rolled back');
	add_expired($node, 10, database => 'held');
	is_swept($node, 'held', 'afterwards it is swept, too');
	is(launcher($node), $launcher, 'by the same launcher');
	$session->quit;
};

# A slow copy: it waits for a lock while it holds that of its template.
subtest 'a copy that takes long' => sub {
	my ($blocker, $session) = (session($node), session($node));

	ask($blocker, $_) foreach 'BEGIN', 'LOCK TABLE pg_database IN SHARE MODE';
	no_sweeper($node);
	ask_later($session, 'CREATE DATABASE copy TEMPLATE held');
	somebody_waits_for_the_database();
	others_are_swept('the others are swept meanwhile');
	ask($blocker, 'COMMIT');
	is(ask($session), '', 'the copy is made');
	add_expired($node, 10, database => $_) foreach 'held', 'copy';
	is_swept($node, $_, "$_ is swept") foreach 'held', 'copy';
	$_->quit foreach $blocker, $session;
	$node->safe_psql('postgres', 'DROP DATABASE copy WITH (FORCE)');
};

# No session can connect then, but the launcher does not get stuck.
subtest 'the list of databases is locked' => sub {
	my $session = session($node);
	my $oid = ask($session, q{SELECT oid FROM pg_database WHERE datname = 'postgres'});

	ask($session, $_) foreach 'BEGIN', 'LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE';
	my $before = visits_by_oid($oid);
	wait_until { visits_by_oid($oid) >= $before + 3 } 'three more visits';
	is(ask($session, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $launcher"),
		'0', 'the launcher does not wait');
	ask($session, 'COMMIT');
	others_are_swept('afterwards sweeping goes on');
	is(launcher($node), $launcher, 'by the same launcher');
	$session->quit;
};

# A sweeper gives up after four seconds, and the next one comes; a stopped one stays.
sub stop_at_the_gate
{
	my $at_the_gate = q{wait_event = 'advisory'};
	my $pid;

	wait_until
	{
		$pid = wait_for_sweeper($node, 'held', $at_the_gate);
		kill 'STOP', $pid;
		my $stays = $node->safe_psql('postgres',
			"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND $at_the_gate");
		kill 'CONT', $pid unless $stays;
		$stays
	}
	'a sweeper to stop at the gate';
	return $pid;
}

# A sweeper that reacts to no signal, as in an endless loop of a user's C function.
subtest 'a sweeper that stands still' => sub {
	my $size = log_size($node);
	my $gate = close_gate($node, 'held');

	add_expired($node, 10, database => 'held');
	my $pid = stop_at_the_gate();
	others_are_swept('the others are swept meanwhile');
	# The other databases were swept before the launcher's time limit for this sweeper passed.
	$node->wait_for_log(qr/a sweeper did not finish in time/, $size);
	wait_for_visits_of_others($pid);
	is(scalar(log_since($node, $size, qr/LOG:  idempotency: a sweeper did not finish in time and is terminated/)),
		1, 'the log tells once');
	is($node->safe_psql('postgres', q{
			SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'idempotency sweeper'
			AND datname = 'held'}),
		'1', 'no second one is sent there');
	kill 'CONT', $pid;
	wait_until_gone($node, $pid);
	pass('it ends as soon as it can');
	open_gate($gate);
	is_swept($node, 'held', 'and the next one does the work');
	is(launcher($node), $launcher, 'sent by the same launcher');
	untrigger($node, 'held');
};

sub wait_for_visits_of_others
{
	my $before = visits($node, 'postgres');

	wait_until { visits($node, 'postgres') >= $before + 5 } 'visits of others';
	return;
}

# Sweepers of other databases may meanwhile end normally, with 0.
subtest 'fast shutdown while a sweeper can not come in' => sub {
	my $session = session($node);
	my $size = log_size($node);

	ask($session, $_) foreach 'BEGIN', 'ALTER DATABASE held RENAME TO renamed';
	somebody_waits_for_the_database();
	$node->stop('fast');
	abandon($session);
	is_deeply([ log_since($node, $size, qr/PANIC:|exit code (?![01]$)|terminated by signal/) ],
		[], 'processes end by the signal only, or because they are done');
};

done_testing();
