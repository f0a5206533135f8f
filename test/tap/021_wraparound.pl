# Transaction ids wrap around. Records survive that. When no ids are left, requests are refused
# while answers are still replayed.
use Idem;

# The transaction status files: a segment, and how many transactions it holds.
use constant { SEGMENT => 256 * 1024, IDS_OF_SEGMENT => 1024 * 1024 };
# The server refuses writes this many ids before the current ids meet those of the oldest rows.
use constant { HALF => 2**31 - 1, RESERVE => 3_000_000 };

my $node = new_node('main', wal_level => 'logical', autovacuum_naptime => '1s');

# The next transaction gets that id, as if the ids in between had been used.
sub go_on_with ($id)
{
	my $segment = sprintf '%s/pg_xact/%04X', $node->data_dir, int($id / IDS_OF_SEGMENT);

	$node->stop;
	append_to_file($segment, "\0" x SEGMENT) unless -e $segment;
	system_or_bail('pg_resetwal', '--next-transaction-id', $id, '--pgdata', $node->data_dir);
	$node->start;
	return;
}

# Freezes every row of every database, so that the id in it no longer matters.
sub freeze
{
	$node->safe_psql('postgres', 'ALTER DATABASE template0 ALLOW_CONNECTIONS true');
	$node->run_log([ 'vacuumdb', '--all', '--freeze', '--quiet', '--port', $node->port,
			'--host', $node->host ])
	  or die 'vacuumdb fails';
	$node->safe_psql('postgres', 'ALTER DATABASE template0 ALLOW_CONNECTIONS false');
	return;
}

sub next_id
{
	return $node->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())::text');
}

sub complete ($key, %named)
{
	is(call($node, 'idem_complete', key => $key, body => \"'done'::text", %named),
		't', "$key is completed");
	return;
}

my $done = begin_claim($node, 'done', request => '{"amount": 1}');
complete('done', token => $done->{token});
my $across = begin_claim($node, 'across', lease => '1 day');
my $lost = begin_claim($node, 'lost', lease => '1 ms');

subtest 'over the wrap' => sub {
	# No row may be older than half of all ids, so it goes in steps.
	foreach my $id (1_500_000_000, 3_000_000_000, 2**32 - 50)
	{
		freeze();
		go_on_with($id);
		is(begin_claim($node, 'done')->{outcome}, 'replay', "replayed at $id");
	}
	cmp_ok(next_id(), '<', 2**32, 'before the wrap');
	my ($holder, $other) = (session($node), session($node));
	ask($holder, $_) foreach 'BEGIN', 'CREATE TEMP TABLE takes_an_id ()';
	is(outcome_in($holder, 'open'), 'execute', 'open before the wrap');
	is(ask($holder, completion('open')), 't', 'and completed');
	begin_claim($node, "key-$_", lease => '1 day') foreach 1 .. 60;
	cmp_ok(next_id(), '>', 2**32, 'behind the wrap');

	is(begin_claim($node, 'done')->{outcome}, 'replay', 'a completed request is replayed');
	is(outcome_in($other, 'open'), 'in_progress', 'an open claim is still open');
	is(ask($holder, 'COMMIT'), '', 'and is committed');
	is(outcome_in($other, 'open'), 'replay', 'and replayed');
	complete('across', token => $across->{token});
	is(begin_claim($node, 'across')->{outcome}, 'replay', 'an older claim is replayed, too');
	is(begin_claim($node, "key-$_")->{outcome}, 'in_progress', "claim $_ is respected")
	  foreach 1, 30, 60;
	my $next = begin_claim($node, 'lost', lease => '1 day');
	is("$next->{outcome}, $next->{attempt}", 'execute, 2', 'a lost claim is taken over');
	is(call($node, 'idem_forget', key => 'open'), 't', 'a record can be removed');
	$_->quit foreach $holder, $other;
};

subtest 'no ids left' => sub {
	my $running = begin_claim($node, 'running', lease => '1 day');
	# While the slot exists, newer rows of the catalogs can't be frozen. Each database freezes all
	# it can, and autovacuum can't help.
	$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('old', 'pgoutput')});
	freeze();
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT datfrozenxid::text) FROM pg_database'),
		'1', 'no database is further back than the others');
	my $oldest = $node->safe_psql('postgres', 'SELECT min(datfrozenxid::text::bigint) FROM pg_database');
	go_on_with(($oldest + HALF - RESERVE - 20) % 2**32);
	my $session = session($node);

	# Autovacuum may use some of them.
	my $last;
	for my $i (1 .. 100)
	{
		$last = outcome_in($session, "last-$i", lease => '1 day');
		last if $last ne 'execute';
	}
	is($last, '54000', 'a claim is refused');
	is(outcome_in($session, 'refused'), '54000', 'and so is another');
	is(ask($session, $_), '54000', "refused: $_")
	  foreach q{SELECT idem_once('once')}, completion('running', $running->{token}),
	  'SELECT ' . invocation('idem_extend', key => 'running', token => $running->{token}),
	  q{SELECT idem_forget('done')};
	ask($session, 'BEGIN');
	# With the SQL store at the first step, with the heap store at the second.
	my ($refusal) = grep { $_ ne 'execute' } outcome_in($session, 'open-at-the-end'),
	  ask($session, completion('open-at-the-end'));
	is($refusal, '54000', 'refused in a transaction');
	ask($session, 'ROLLBACK');
	is(record_state($node, $_), 'absent', "nothing is left of $_")
	  foreach 'refused', 'once', 'open-at-the-end';
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
			AND objsubid = 18756}),
		'0', 'no lock either');

	is(begin_claim($node, 'done')->{outcome}, 'replay', 'a completed request is replayed');
	is(begin_claim($node, 'done')->{body}, '\\x646f6e65', 'with its body');
	is(begin_claim($node, 'done', request => '{"amount": 2}')->{outcome},
		'mismatch', 'another request does not fit');
	is(outcome_in($session, 'running'), 'in_progress', 'a running execution is respected');
	is(ask($session, q{SELECT status FROM idem_get('done')}), 'completed', 'and can be looked up');

	$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('old')});
	$node->poll_query_until('postgres',
		'SELECT max(age(datfrozenxid)) < 1000000000 FROM pg_database')
	  or die 'autovacuum does not help';
	is(ask($session, completion('running', $running->{token})),
		't', 'when ids are free again, the holder completes');
	is(outcome_in($session, 'refused'), 'execute', 'and requests are executed');
	$session->quit;
};

$node->stop;
done_testing();
