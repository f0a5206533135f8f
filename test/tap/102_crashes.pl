# Crashes of the workers: nothing is lost, and sweeping resumes without intervention.
use Idem;
use Sweeping;

my $node = sweeping_node('main', restart_after_crash => 'on');
my $endless = 'PERFORM pg_catalog.pg_sleep(3600)';

# Gives the sweeper a row at which it waits.
sub get_stuck ($node)
{
	trigger_on_delete($node, 'postgres', $endless);
	add_expired($node, 10);
	return stuck_one($node);
}

sub stuck_one ($node)
{
	return wait_for_sweeper($node, 'postgres', q{wait_event = 'PgSleep'});
}

# Kills the process that the code finds with signal 9. The server assumes damaged shared memory,
# ends all its processes and starts again. If a sweeper has ended before that, another is looked
# for.
sub kill_hard ($node, $who)
{
	my $size = log_size($node);

	wait_until { kill 'KILL', $who->() } 'a process to kill';
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $size);
	$node->poll_query_until('postgres', 'SELECT true') or die 'the server does not come back';
	return;
}

# Kills the postmaster and starts it again. The start is refused while a process uses the memory
# that the old one left behind.
sub start_again_without_postmaster ($node, @workers)
{
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

	$node->kill9;
	wait_until { !kill 0, $postmaster, @workers } 'the end of all workers';
	wait_until { $node->start(fail_ok => 1) } 'the end of all other processes';
	return;
}

subtest 'crash of a sweeper' => sub {
	my $first = get_stuck($node);
	my $launcher = launcher($node);

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($first)");
	wait_for_sweeper($node, 'postgres', "pid <> $first");
	is(records($node), '10', 'terminated: its batch is rolled back');
	is(launcher($node), $launcher, 'and the launcher sends the next one');
	untrigger($node, 'postgres');
	is_swept($node, 'postgres', 'which does the work');

	get_stuck($node);
	kill_hard($node, sub { stuck_one($node) });
	is(records($node), '10', 'killed: its batch is rolled back');
	launcher($node);
	untrigger($node, 'postgres');
	is_swept($node, 'postgres', 'the work is done after the restart');

	trigger_on_delete($node, 'postgres', q{RAISE 'broken'});
	my $size = log_size($node);
	add_expired($node, 10);
	$node->poll_query_until('postgres', 'SELECT failures >= 3 FROM idempotency.sweeper')
	  or die 'no failures are counted';
	# At least the last three have failed. A pause may be too long, never too short.
	my @at = (visits($node, 'postgres', $size))[ -3 .. -1 ];
	cmp_ok($at[1] - $at[0], '>=', 1, 'failed: the launcher comes again after a pause');
	cmp_ok($at[2] - $at[1], '>=', 2, 'which grows');
	untrigger($node, 'postgres');
	is_swept($node, 'postgres', 'until the work is done');
};

subtest 'crash of the launcher' => sub {
	my $first = launcher($node);
	my $size = log_size($node);

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($first)");
	wait_until_gone($node, $first);
	my $second = launcher($node);
	isnt($second, $first, 'terminated: it is started again');
	my ($ended) = logged_at($node, $size, qr/"idempotency launcher" \(PID $first\) exited/);
	my ($started) = logged_at($node, $size, qr/starting background worker process "idempotency launcher"/);
	# The server counts from a moment before it writes the message.
	cmp_ok($started - $ended, '>', 4.9, 'after five seconds');
	add_expired($node, 10);
	is_swept($node, 'postgres', 'and goes on');

	kill_hard($node, sub { $second });
	add_expired($node, 10);
	is_swept($node, 'postgres', 'killed: it goes on after the restart');
};

subtest 'crash of the postmaster' => sub {
	my $plain = new_node('plain', 'idempotency.cleanup_interval' => '1s');

	begin_claim($plain, 'first');
	foreach ($plain, $node)
	{
		start_again_without_postmaster($_, launcher($_), get_stuck($_));
		is(records($_), $_ == $plain ? '11' : '10', $_->name . ': all workers end immediately');
		untrigger($_, 'postgres');
	}
	is_swept($node, 'postgres', 'preloaded: the next start brings them back');
	is_deeply([ workers($plain) ], [], 'not preloaded: it does not');
	begin_claim($plain, 'second');
	is_swept($plain, 'postgres', 'but the next claim');
	$plain->stop;
};

$node->stop;
done_testing();
