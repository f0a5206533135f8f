# idem_explain on a standby and across its promotion: it reports what it sees, and nothing that
# can't be known there. A session from before the promotion continues with the promoted server.
use JSON::PP ();
use Idem;

my $is_heap = ($ENV{IDEM_STORE} // 'auto') ne 'sql';
my $primary = new_node('primary',
	-init => [ allows_streaming => 1 ],
	shared_preload_libraries => 'idempotency',
	'idempotency.cleanup_interval' => 0,
	max_prepared_transactions => 10);
# Created now: later it would have to wait for transactions that have read the policies.
$primary->safe_psql('postgres',
	'ALTER TABLE idempotency.policy DROP CONSTRAINT policy_fingerprint_fields_given');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
my $reader = session($standby);

# told($session, $key, ...): outcome, reason, kind of the holder, whether it is a standby.
sub told ($session, $key, %named)
{
	return ask($session, q{SELECT concat_ws(' ', outcome, reason, coalesce(holder ->> 'kind', '-'), is_standby) FROM }
		  . invocation('idem_explain', key => $key, %named));
}

sub caught_up
{
	# Flushes the log, which a transaction that is still running has not done.
	begin_claim($primary, 'flush', lease => '1 us');
	$primary->wait_for_catchup($standby);
	return;
}

# How a row looks that the primary is writing.
sub of_primary { return $is_heap ? 'in_progress held primary t' : $_[0] . ' - t' }

# Begins a key and writes its row, at any depth of subtransactions.
my @writers;

sub writes ($key, @before)
{
	my $session = session($primary);

	ask($session, $_) foreach 'BEGIN', @before;
	my @claim = claim_in($session, $key);
	is($claim[0], 'execute', "$key: begun");
	is(ask($session, completion($key)), 't', 'and written');
	push @writers, $session;
	return $session;
}

subtest 'transactions of the primary' => sub {
	# A separate id for the row's subtransaction, with more of them than a standby learns of at
	# once.
	writes('deep', 'CREATE TEMP TABLE t ()', map { ("SAVEPOINT s$_", "SELECT pg_current_xact_id()") } 1 .. 70);
	begin_claim($primary, 'over', lease => '1 us');
	writes('over');
	my $prepared = writes('prepared');
	ask($prepared, q{PREPARE TRANSACTION 'p'});
	caught_up();
	is(told($reader, 'deep'), of_primary('execute no_record'), 'a subtransaction');
	is(told($reader, 'over'), of_primary('execute lease_over'), 'a takeover');
	is(told($reader, 'prepared'), of_primary('execute no_record'), 'a prepared one');
	is(ask($reader, q{SELECT holder ? 'pid', holder ? 'gid' FROM idem_explain('deep')}), $is_heap ? 'f|f' : '|',
		'a missing process is not reported');

	my $rolled_back = writes('rolled back');
	caught_up();
	is(told($reader, 'rolled back'), of_primary('execute no_record'), 'one that runs');
	ask($rolled_back, 'ROLLBACK');
	caught_up();
	is(told($reader, 'rolled back'), 'execute no_record - t', 'and is rolled back');
};

subtest 'whatever the transaction' => sub {
	foreach my $begin ('BEGIN READ ONLY', 'BEGIN ISOLATION LEVEL REPEATABLE READ')
	{
		ask($reader, $begin);
		is(told($reader, 'deep'), of_primary('execute no_record'), $begin);
		is(ask($reader, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()}), 0,
			'no lock of a key');
		is(ask($reader, 'SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'no transaction id either');
		is(outcome_in($reader, 'deep'), '25006', 'and idem_begin is refused');
		ask($reader, 'ROLLBACK');
	}
	is(told($reader, 'absent', request => '{}', fingerprint => \'NULL', first_sent => '2000-01-01'),
		'expired sent_before_memory - t', 'a request that is too old');
	is(ask($reader, q{SELECT outcome FROM idem_explain('')}), '22023', 'a bad key');
	is(told($reader, 'absent'), 'execute no_record - t', 'and on');
};

subtest 'policies and encryption as they arrive' => sub {
	call($primary, 'idem_policy_set', scope_pattern => 'sealed', encrypt => \'true');
	caught_up();
	like(ask($reader, q{SELECT array_to_string(notes, ' ') FROM idem_explain('k', scope => 'sealed')}),
		qr/^Values cannot be encrypted here.* This is a standby/s, 'there are no keys there');
	$primary->safe_psql('postgres', q{UPDATE idempotency.policy SET fingerprint_fields = '{}'});
	caught_up();
	is(told($reader, 'k', scope => 'sealed'), '55000', 'a policy that is not valid');
	call($primary, 'idem_policy_drop', scope_pattern => 'sealed', reason => 'a test');
	caught_up();
	is(told($reader, 'k', scope => 'sealed'), 'execute no_record - t', 'and its end');
};

# A primary that dies reports nothing about its transactions. When it is back, a standby treats
# transactions younger than the oldest prepared one as still running (ProcArrayApplyRecoveryInfo).
subtest 'the primary crashes and comes back' => sub {
	my $lost = writes('lost');
	caught_up();
	is(told($reader, 'lost'), of_primary('execute no_record'), 'one that runs');
	$primary->stop('immediate');
	is(told($reader, 'lost'), of_primary('execute no_record'), 'the standby does not know that it has ended');
	$primary->start;
	caught_up();
	is(told($reader, 'prepared'), of_primary('execute no_record'), 'a prepared transaction stays');
	$primary->safe_psql('postgres', $_) foreach q{ROLLBACK PREPARED 'p'}, 'CHECKPOINT';
	caught_up();
	is(told($reader, $_->[0]), "execute $_->[1] - t", "and when it has ended, nothing is left: $_->[0]")
	  foreach [ lost => 'no_record' ], [ deep => 'no_record' ], [ over => 'lease_over' ], [ prepared => 'no_record' ];
};

subtest 'promotion' => sub {
	my $holder = session($primary);
	is(outcome_in($holder, 'held', hold => \'true', lease => '1 hour'), 'execute', 'a held claim');
	writes('running');
	my $prepared = writes('prepared');
	ask($prepared, q{PREPARE TRANSACTION 'p'});
	caught_up();
	is(told($reader, 'held'), 'in_progress leased - t', 'its session is not looked for');
	my $old = session($standby);
	ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
	is(told($old, 'running'), of_primary('execute no_record'), 'a transaction from before sees it');
	$primary->stop('immediate');
	$standby->promote;

	is(told($old, 'running'), 'execute no_record - f', 'goes on');
	is(told($old, 'held'), 'execute session_ended - f', 'and sees the current state');
	is(outcome_in($old, 'running'), '25006', 'but can not write before it has ended');
	ask($old, 'ROLLBACK');
	is(outcome_in($old, 'running'), 'execute', 'then it can');
	is(told($reader, 'prepared'), 'in_progress held prepared f', 'a prepared transaction is named');
	is(ask($reader, q{SELECT holder ->> 'gid' FROM idem_explain('prepared')}), 'p', 'with its name');
	is(ask($reader, q{SELECT cardinality(notes) FROM idem_explain('held', fingerprint => '\x01')}), 0, 'no note of a standby');
	ask($reader, q{ROLLBACK PREPARED 'p'});
	is(told($reader, 'prepared'), 'execute no_record - f', 'until it has ended');
	$_->quit foreach $holder, $old;
};

$_->quit foreach @writers, $reader;
$standby->stop;
done_testing();
