# idem_explain names the session behind a key as far as the caller may see it, counts nothing,
# writes nothing, and says on a standby which facts it can't see there.
use JSON::PP ();
use Idem;

my $is_heap = ($ENV{IDEM_STORE} // 'auto') ne 'sql';
my $node = new_node('main',
	-init => [ allows_streaming => 1 ],
	shared_preload_libraries => 'idempotency',
	'idempotency.cleanup_interval' => 0,
	max_prepared_transactions => 10);
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', q{
	CREATE ROLE clerk LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats;
	SELECT idem_grant('clerk', operator => true), idem_grant('watcher', operator => true);
});

# explained($key, @session_options): the answer as a hash, asked in a new session.
sub explained ($key, %options)
{
	my $json = ($options{node} // $node)->safe_psql('postgres',
		'SELECT row_to_json(e) FROM ' . invocation('idem_explain', key => $key) . ' e',
		extra_params => $options{role} ? [ '-U', $options{role} ] : []);
	return JSON::PP->new->decode($json);
}

sub told ($answer)
{
	return join(' ', map { $_ // '-' } @$answer{qw(outcome reason)}, $answer->{holder}{kind});
}

subtest 'a running transaction' => sub {
	my $holder = session($node);
	ask($holder, "SET application_name = 'shop'; BEGIN");
	is(outcome_in($holder, 'running'), 'execute', 'begun');
	ask($holder, "SELECT 'a secret of the query'");
	my $answer = explained('running');
	is(told($answer), 'in_progress held transaction', 'is named');
	is(join(' ', @{ $answer->{holder} }{qw(pid application_name state)}), pid_of($holder) . ' shop idle in transaction',
		'by its backend');
	cmp_ok($answer->{holder}{age}, '>=', $answer->{holder}{query_age}, 'its transaction is older than its query');
	my $all = JSON::PP->new->encode($answer);
	unlike($all, qr/a secret/, 'the query is not shown');

	my $seen = explained('running', role => 'clerk')->{holder};
	is(join(' ', sort keys %$seen), 'application_name kind pid user', 'an operator sees what everybody may');
	$seen = explained('running', role => 'watcher')->{holder};
	is(join(' ', sort keys %$seen), 'age application_name kind pid query_age query_since since state user',
		'a role that may see statistics sees the rest');
	ask($holder, 'ROLLBACK');
	is(told(explained('running')), 'execute no_record -', 'and gone');
	$holder->quit;
};

subtest 'a prepared transaction' => sub {
	foreach my $completed (0, 1)
	{
		my $holder = session($node);
		ask($holder, 'BEGIN');
		is(outcome_in($holder, 'prepared'), 'execute', 'begun');
		ask($holder, completion('prepared')) if $completed;
		ask($holder, "PREPARE TRANSACTION 'explained'");
		$holder->quit;
		my $answer = explained('prepared', role => 'clerk');
		is(told($answer), 'in_progress held prepared', 'is seen');
		is($answer->{holder}{gid}, 'explained', 'and named');
		ok(!exists $answer->{holder}{pid}, 'it has no backend');
		ok(exists $answer->{holder}{age}, 'it has an age');
		$node->safe_psql('postgres', "ROLLBACK PREPARED 'explained'");
	}
};

subtest 'a session that holds a lease, and its end' => sub {
	my $holder = session($node);
	is(outcome_in($holder, 'held', hold => \'true', lease => '1 hour'), 'execute', 'begun');
	my $answer = explained('held');
	is(told($answer), 'in_progress leased session', 'the session is named');
	is($answer->{holder}{pid}, pid_of($holder), 'by its backend');
	ok($answer->{lease}{session_lives}, 'it lives');
	cmp_ok($answer->{lease}{left}, '>', 0, 'the lease has some time left');

	end_backend($node, pid_of($holder));
	$holder->quit;
	$answer = explained('held');
	is(told($answer), 'execute session_ended -', 'it has ended');
	is($answer->{execution}, 'takeover', 'the next one takes over');
	ok(!$answer->{lease}{session_lives}, 'it does not live');
	cmp_ok($answer->{lease}{left}, '>', 0, 'the lease would have some time left');
	is(begin_claim($node, 'held')->{attempt}, 2, 'and so it is');
};

subtest 'nothing is counted, written or assigned' => sub {
	my $counts = q{SELECT (s.*)::text FROM idempotency.stats s ORDER BY total, scope};
	my $before = $node->safe_psql('postgres', $counts);
	my $session = session($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	ask($session, 'BEGIN');
	is(ask($session, "SELECT outcome FROM idem_explain('$_')") ne '', 1, "explained: $_") foreach qw(held nothing running);
	is(ask($session, 'SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'no transaction id');
	is(ask($session, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"), 0, 'no lock of a key');
	is(ask($session, "SELECT count(*) FROM pg_locks WHERE mode NOT IN ('AccessShareLock', 'ExclusiveLock') AND pid = pg_backend_pid()"),
		0, 'only the locks of a reader');
	ask($session, 'COMMIT');
	$session->quit;
	is($node->safe_psql('postgres', $counts), $before, 'the counters are unchanged');
};

subtest 'on a standby' => sub {
	my $holder = session($node);
	is(outcome_in($holder, 'elsewhere', hold => \'true', lease => '1 hour'), 'execute', 'a held claim');
	begin_claim($node, 'done');
	call($node, 'idem_resolve', key => 'done', action => 'complete');
	my $running = session($node);
	ask($running, 'BEGIN');
	is(outcome_in($running, 'open'), 'execute', 'a claim that is open');
	my $writer = session($node);
	ask($writer, 'BEGIN');
	is(outcome_in($writer, 'written'), 'execute', 'one');
	is(ask($writer, completion('written')), 't', 'the row is written');
	begin_claim($node, 'what flushes the log');
	$node->wait_for_catchup($standby);

	my $answer = explained('done', node => $standby);
	is(told($answer), 'replay answered -', 'an answer');
	ok($answer->{is_standby}, 'it says where it was asked');
	like(join(' ', @{ $answer->{notes} }), qr/^This is a standby: /, 'and the note says so');
	is_deeply($answer->{policy}{ttl}, { value => '1 day', source => 'setting', origin => 'idempotency.default_ttl' },
		'the policy is that of the standby');

	$answer = explained('elsewhere', node => $standby);
	is(told($answer), 'in_progress leased -', 'a lease');
	ok(!exists $answer->{lease}{session_lives}, 'the standby cannot tell whether its session lives');
	is(told(explained('open', node => $standby)), 'execute no_record -', 'a lock of the primary is not seen');
	is(told(explained('written', node => $standby)), $is_heap ? 'in_progress held primary' : 'execute no_record -',
		'a row of the primary is, with the heap store');

	my $session = session($standby);
	is(ask($session, "SELECT outcome FROM idem_explain('elsewhere', role => 1)") , '42883', 'errors are as anywhere');
	is(ask($session, "SELECT outcome FROM idem_explain('elsewhere')"), 'in_progress', 'in a session that goes on');
	$session->quit;
	ok(!explained('done')->{is_standby}, 'the primary is none');
	$_->quit foreach $holder, $running, $writer;
};

$standby->stop;
$node->stop;
done_testing();
