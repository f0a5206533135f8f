# The table of records in a publication: every write of the extension, on every path, arrives row by
# row, with a sweeper on either side.
use Idem;
use Sweeping;

my $publisher = sweeping_node('publisher',
	-init => [ allows_streaming => 'logical' ],
	max_prepared_transactions => 10,
	-prepare => sub {
		$_[0]->safe_psql('postgres', 'CREATE PUBLICATION all_records FOR TABLE idempotency.record');
	});

sub subscriber ($name, $publication)
{
	return sweeping_node($name,
		-prepare => sub {
			my ($node) = @_;
			$node->safe_psql('postgres', sprintf q{CREATE SUBSCRIPTION %s CONNECTION '%s' PUBLICATION %s},
				$name, $publisher->connstr . ' dbname=postgres', $publication);
			$node->wait_for_subscription_sync($publisher, $name);
		});
}

sub content ($node, $where = undef)
{
	return $node->safe_psql('postgres',
		'SELECT r::text FROM idempotency.record AS r WHERE ' . ($where // 'true') . ' ORDER BY 1');
}

sub is_equal ($subscriber, $why, $where = undef)
{
	$publisher->wait_for_catchup($subscriber->name);
	is(content($subscriber), content($publisher, $where), $why);
	return;
}

my $subscriber = subscriber('everything', 'all_records');

subtest 'whatever is written' => sub {
	my $session = session($publisher);
	my $state = q{(SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 1000) AS n)};
	my $long = q{(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 10000) AS n)};

	ask($session, 'BEGIN');
	is(outcome_in($session, 'inserted', ttl => '1 day'), 'execute', 'one transaction');
	is(ask($session, completion('inserted')), 't', 'with its result');
	is(ask($session, 'COMMIT'), '', 'committed');
	is_equal($subscriber, 'arrives');

	my %token = map { $_ => begin_claim($publisher, $_, lease => '1 day', ttl => '1 day')->{token} }
	  qw(long released retried);
	is_equal($subscriber, 'claims arrive');
	my $lease_of = sub { ask($session, "SELECT lease_until FROM idempotency.record WHERE key = '$_[0]'") };
	is(ask($session, 'SELECT ' . invocation('idem_checkpoint', key => 'long', recovery_point => 'half',
				state => \$state, token => $token{long})),
		$lease_of->('long'), 'a checkpoint with a large state');
	is_equal($subscriber, 'arrives');
	is(ask($session, 'SELECT ' . invocation('idem_extend', key => 'long', token => $token{long},
				lease => '2 days')),
		$lease_of->('long'), 'a change that leaves it as it is');
	is_equal($subscriber, 'arrives with it');
	is(ask($session, 'SELECT ' . invocation('idem_complete', key => 'long', token => $token{long},
				body => \"$long\::text")),
		't', 'a large body');
	is_equal($subscriber, 'arrives');
	is(call($publisher, 'idem_release', key => 'released', token => $token{released}), 't', 'a release');
	is(call($publisher, 'idem_fail', key => 'retried', token => $token{retried}, error => 'x',
			retryable => \'true', retry_after => '0'),
		't', 'a failure');
	is_equal($subscriber, 'arrive');
	is(outcome_in($session, 'retried', ttl => '1 day'), 'execute', 'another attempt');
	is_equal($subscriber, 'arrives');
	is(call($publisher, 'idem_forget', key => 'inserted'), 't', 'a removal');
	is_equal($subscriber, 'arrives');

	ask($session, 'BEGIN');
	is(outcome_in($session, 'prepared', ttl => '1 day'), 'execute', 'a prepared transaction');
	is(ask($session, completion('prepared')), 't', 'with its result');
	ask($session, q{PREPARE TRANSACTION 'p'});
	is_equal($subscriber, 'does not arrive');
	ask($session, q{COMMIT PREPARED 'p'});
	is_equal($subscriber, 'until it is committed');

	ask($session, 'BEGIN');
	is(outcome_in($session, 'outer', ttl => '1 day'), 'execute', 'one claim');
	is(ask($session, completion('outer')), 't', 'is completed');
	ask($session, 'SAVEPOINT s');
	is(outcome_in($session, 'inner', ttl => '1 day'), 'execute', 'another');
	is(ask($session, completion('inner')), 't', 'is completed');
	ask($session, $_) foreach 'ROLLBACK TO s', 'COMMIT';
	is_equal($subscriber, 'rolled back changes do not arrive');
	is(record_state($subscriber, $_->[0]), $_->[1], "$_->[0]: $_->[1]")
	  foreach [ inner => 'absent' ], [ outer => 'completed' ], [ prepared => 'completed' ],
	  [ long => 'completed' ], [ released => 'absent' ];
	is(begin_claim($subscriber, 'long')->{outcome}, 'replay', 'it is replayed there');
	$session->quit;
};

# The subscriber's sweeper must not remove a record whose key may be used again here: the change
# would find no row, and the record would be missing there.
subtest 'two sweepers' => sub {
	my $session = session($publisher);

	configure($publisher, 'idempotency.cleanup_interval' => 0);
	add_expired($publisher, 10, ended => '1 hour');
	is_equal($subscriber, 'expired records arrive');
	# A visit of the database completes all work of a sweeper there.
	$subscriber->restart;
	wait_for_visits($subscriber, 'postgres', 1);
	is(outcome_in($session, 'old-1', ttl => '1 day'), 'execute', 'an expired record is used again');
	is_equal($subscriber, 'which arrives');
	is(record_state($subscriber, 'old-1'), 'in_progress', 'and is there');

	configure($publisher, 'idempotency.cleanup_interval' => '1s');
	ok( $publisher->poll_query_until('postgres', q{
			SELECT count(*) = 0 FROM idempotency.record WHERE key <> 'old-1' AND key LIKE 'old-%'}),
		'the others are swept here');
	is_equal($subscriber, 'and there');
	is(begin_claim($subscriber, 'old-1')->{outcome}, 'in_progress', 'the new claim stays');

	# For example after a failover.
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
	add_expired($subscriber, 10, key => 'old-later-');
	# The visit would come unprompted after ten intervals.
	$subscriber->restart;
	ok( $subscriber->poll_query_until('postgres',
			q{SELECT NOT EXISTS (SELECT FROM idempotency.record WHERE key LIKE 'old-later-%')}),
		'without the subscription it sweeps by itself');
	$session->quit;
};

subtest 'with a filter of rows' => sub {
	$publisher->safe_psql('postgres',
		q{CREATE PUBLICATION shared FOR TABLE idempotency.record WHERE (scope = 'shared')});
	my $filtered = subscriber('filtered', 'shared');

	foreach my $scope ('shared', 'private')
	{
		my %token = map { $_ => begin_claim($publisher, $_, scope => $scope, lease => '1 day',
				ttl => '1 day')->{token} } qw(updated released);
		is(call($publisher, 'idem_complete', key => 'updated', scope => $scope,
				token => $token{updated}, body => \"'done'::text"),
			't', "$scope: completed");
		is_equal($filtered, 'arrives as far as it should', q{scope = 'shared'});
		is(call($publisher, 'idem_release', key => 'released', scope => $scope,
				token => $token{released}),
			't', "$scope: released");
		is_equal($filtered, 'arrives as far as it should', q{scope = 'shared'});
	}
	is($filtered->safe_psql('postgres', 'SELECT count(*), min(scope) FROM idempotency.record'),
		'1|shared', 'one is there');
	$filtered->safe_psql('postgres', 'DROP SUBSCRIPTION filtered');
	$filtered->stop;
	$publisher->safe_psql('postgres', 'DROP PUBLICATION shared');
};

# The server refuses changes for which it can't tell on which side of the filter the old row was.
subtest 'with a filter that a change can not pass' => sub {
	my $session = session($publisher);
	my $late = begin_claim($publisher, 'late', lease => '1 ms', ttl => '1 day');
	my $running = begin_claim($publisher, 'running', lease => '1 day', ttl => '1 day');
	my $change = q{UPDATE idempotency.record SET attempt = attempt};

	$publisher->safe_psql('postgres', q{
		CREATE PUBLICATION ended FOR TABLE idempotency.record WHERE (status = 'c')});
	is(ask($session, $change), '42P10', 'by itself the server says this');
	is(ask($session, completion('running', $running->{token})), '42P10', 'and so does a completion');
	ask($session, 'BEGIN');
	is(outcome_in($session, $_), '42P10', "the claim is refused, not the commit: $_") and ask($session, 'ROLLBACK')
	  foreach 'late', 'new';
	ask($session, 'ROLLBACK');
	is(record_state($publisher, $_), 'in_progress', "$_ is as it was") foreach 'late', 'running';
	$publisher->safe_psql('postgres', 'DROP PUBLICATION ended');
	is(ask($session, completion('running', $running->{token})), 't', 'without it, all goes on');
	is(join(', ', (claim_in($session, 'late', ttl => '1 day'))[0, 1]), 'execute, 2', 'and on');
	$session->quit;
};

# A role that may write every table and owns a subscription: for each row the server requires only
# the privilege. (From 16 on it switches to the table's owner, unless configured otherwise.)
subtest 'decisions of another role' => sub {
	my $writer = sweeping_node('writer');
	my $run_as_writer = $writer->pg_version < 16 ? '' : ', run_as_owner, password_required = false';

	$publisher->safe_psql('postgres', 'CREATE PUBLICATION decisions FOR TABLE idempotency.audit');
	$writer->safe_psql('postgres', 'CREATE ROLE writer LOGIN SUPERUSER IN ROLE pg_write_all_data');
	$writer->safe_psql('postgres', sprintf q{CREATE SUBSCRIPTION writer CONNECTION '%s' PUBLICATION decisions
		WITH (copy_data = false%s)}, $publisher->connstr . ' dbname=postgres', $run_as_writer);
	$writer->safe_psql('postgres', $_)
	  foreach 'ALTER SUBSCRIPTION writer OWNER TO writer', 'ALTER ROLE writer NOSUPERUSER';
	$publisher->safe_psql('postgres', q{SELECT idem_policy_set('forged', ttl => '1 day')});
	wait_until
	{
		slurp_file($writer->logfile) =~ /ERROR:  permission denied for table audit/
		  || $writer->safe_psql('postgres', 'SELECT count(*) FROM idempotency.audit') > 0;
	}
	'the row to come';
	is($writer->safe_psql('postgres', 'SELECT count(*) FROM idempotency.audit'), 0, 'do not get in');
	$writer->safe_psql('postgres', 'ALTER ROLE writer SUPERUSER');
	ok($writer->poll_query_until('postgres', 'SELECT count(*) = 1 FROM idempotency.audit'),
		'but with the rights of the owner');
	$writer->safe_psql('postgres', 'DROP SUBSCRIPTION writer');
	$writer->stop;
};

done_testing();
