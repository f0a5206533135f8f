# idempotency.stats: each counter by what causes it, per scope and in total.
use Idem;
use Sweeping;

my @counters = qw(executed replayed in_progress mismatches takeovers retries retry_later exhausted
  expired unknown completed failed waits swept abandoned store_errors);
my $node = sweeping_node('main', -prepare => sub { add_database($_[0], 'other', 'public') });

# The counters under a condition, for instance "executed 1, completed 1".
sub counted ($condition, $database = undef)
{
	my $columns = join ', ', map { "($counters[$_], '$counters[$_]', $_)" } 0 .. $#counters;

	return $node->safe_psql($database // 'postgres', qq{
		SELECT coalesce(string_agg(name || ' ' || value, ', ' ORDER BY place), 'nothing')
		FROM idempotency.stats, LATERAL (VALUES $columns) AS c (value, name, place)
		WHERE value > 0 AND $condition});
}

# A claim in the scope, in a new connection.
sub begin_in ($scope, %named)
{
	return begin_claim($node, 'key', scope => $scope, %named);
}

sub end_in ($scope, $function, $token, %named)
{
	return call($node, $function, key => 'key', scope => $scope, token => $token, %named);
}

# A claim in the scope that ends with an error, in a new connection.
sub refused_in ($scope, $state)
{
	my $session = session($node);

	is(ask($session, "SELECT outcome FROM idem_begin('key', scope => '$scope')"), $state, "$scope: $state");
	$session->quit;
	return;
}

# Scope, actions in it, and the expected counters. Each call uses a new connection, so the counters
# outlive backends.
my @events = (
	[ 'executed', sub { begin_in(@_) }, 'executed 1' ],
	[ 'completed', sub { end_in(@_, 'idem_complete', begin_in(@_)->{token}) },
		'executed 1, completed 1' ],
	[
		'replayed',
		sub {
			end_in(@_, 'idem_complete', begin_in(@_)->{token});
			begin_in(@_) foreach 1 .. 3;
		},
		'executed 1, replayed 3, completed 1'
	],
	[ 'in progress', sub { begin_in(@_) foreach 1 .. 2 }, 'executed 1, in_progress 1' ],
	[ 'mismatch', sub { begin_in(@_, request => $_) foreach '{"a": 1}', '{"a": 2}' },
		'executed 1, mismatches 1' ],
	[ 'takeover', sub { begin_in(@_, lease => '1 ms') foreach 1 .. 2 },
		'executed 2, takeovers 1' ],
	[ 'failed', sub { end_in(@_, 'idem_fail', begin_in(@_)->{token}) }, 'executed 1, failed 1' ],
	[
		'retry',
		sub {
			end_in(@_, 'idem_fail', begin_in(@_)->{token}, retryable => \'true', retry_after => '0');
			begin_in(@_);
		},
		'executed 2, retries 1, failed 1'
	],
	[
		'retry later',
		sub {
			end_in(@_, 'idem_fail', begin_in(@_)->{token},
				retryable => \'true', retry_after => '1 hour');
			begin_in(@_);
		},
		'executed 1, retry_later 1, failed 1'
	],
	[
		'exhausted',
		sub {
			call($node, 'idem_policy_set', scope_pattern => @_, max_attempts => 1);
			end_in(@_, 'idem_fail', begin_in(@_)->{token}, retryable => \'true');
			begin_in(@_);
		},
		'executed 1, exhausted 1, failed 1'
	],
	[
		'expired',
		sub {
			call($node, 'idem_policy_set', scope_pattern => @_, ttl => '1 ms', retention => '1 hour');
			end_in(@_, 'idem_complete', begin_in(@_)->{token});
			begin_in(@_);
		},
		'executed 1, expired 1, completed 1'
	],
	[
		'unknown',
		sub {
			call($node, 'idem_policy_set', scope_pattern => @_, on_lease_expiry => 'unknown');
			begin_in(@_, lease => '1 ms');
			begin_in(@_);
		},
		'executed 1, unknown 1'
	],
	[
		'wait',
		sub {
			begin_in(@_, lease => '1 hour');
			begin_in(@_, wait => '50 ms');
		},
		'executed 1, in_progress 1, waits 1'
	],
	[
		'swept',
		sub {
			add_expired($node, 7, scope => $_[0]);
			is_swept($node, 'postgres', 'a sweeper');
		},
		'swept 7'
	],
	[
		'abandoned',
		sub {
			call($node, 'idem_policy_set', scope_pattern => $_[0], abandon_after => '1 ms', on_abandon => 'release');
			begin_in(@_, lease => '1 ms');
			wait_until {
				$node->safe_psql('postgres', q{SELECT status FROM idempotency.records WHERE scope = 'abandoned'}) eq 'retryable'
			}
			'a sweeper';
		},
		'executed 1, abandoned 1'
	],
	[
		'store error',
		sub {
			$node->safe_psql('postgres', q{ALTER TABLE idempotency.record ADD CONSTRAINT narrow CHECK (scope <> 'store error')});
			refused_in(@_, '23514');
			$node->safe_psql('postgres', 'ALTER TABLE idempotency.record DROP CONSTRAINT narrow');
		},
		'store_errors 1'
	]);

subtest 'every counter' => sub {
	foreach (@events)
	{
		my ($scope, $happens, $expected) = @$_;
		$happens->($scope);
		is(counted("scope = '$scope'"), $expected, $scope);
	}
	cmp_ok(
		$node->safe_psql('postgres',
			q{SELECT wait_seconds FROM idempotency.stats WHERE scope = 'wait'}),
		'>=', 0.05, 'how long was waited, in seconds');
};

subtest 'the total' => sub {
	my %total;

	foreach (map { split /, / } map { $_->[2] } @events)
	{
		my ($name, $value) = split / /;
		$total{$name} += $value;
	}
	is(counted('total'), join(', ', map { "$_ $total{$_}" } @counters), 'is the sum of all scopes');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency.stats WHERE total'),
		'1', 'in a row of its own');
};

subtest 'per database' => sub {
	is(counted('total', 'other'), 'nothing', 'nothing has happened in another one');
	begin_claim($node, 'key', scope => 'executed', -database => 'other');
	is(counted('total', 'other'), 'executed 1', 'now it has');
	is(counted(q{scope = 'executed'}), 'executed 1', 'which does not count here');
};

subtest 'reset' => sub {
	my $since = q{SELECT since FROM idempotency.stats WHERE scope = 'executed'};
	my $before = $node->safe_psql('postgres', $since);

	call($node, 'idem_stats_reset');
	is(counted('true'), 'nothing', 'all are zero');
	is(counted('total', 'other'), 'executed 1', 'those of another database are not');
	is($node->safe_psql('postgres', "SELECT ($since) > '$before'"), 't', 'since now');
	begin_in('executed');
	is(counted(q{scope = 'executed'}), 'in_progress 1', 'and counting goes on');
};

subtest 'retryable errors are no errors of the store' => sub {
	my ($ddl, $session) = map { session($node) } 1 .. 2;
	my $begin = q{SELECT outcome FROM idem_begin('key', scope => 'again')};

	is(ask($session, $begin), 'execute', 'lookups of the session are done');
	ask($ddl, 'BEGIN; LOCK TABLE idempotency.record');
	foreach ([ lock_timeout => '55P03' ], [ statement_timeout => '57014' ])
	{
		my ($limit, $state) = @$_;
		ask($session, "SET $limit = '10 ms'");
		is(ask($session, $begin), $state, $limit);
		ask($session, "RESET $limit");
	}
	$_->quit foreach $ddl, $session;
	is(counted(q{scope = 'again'}), 'executed 1', 'neither call is counted');
};

subtest 'rights' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE watcher IN ROLE pg_monitor;
		CREATE ROLE stranger});
	my $session = session($node);
	my $columns = 'scope, principal, key, status, attempt, status_code, body_omitted,'
	  . ' recovery_point, holder, held, created_at, claimed_at, finished_at, lease_until,'
	  . ' next_attempt_at, expires_at, retained_until, operation, resolved_by';
	my @allowed = ((map { "* FROM idempotency.$_" } qw(stats in_flight abandoned sweeper)),
		"$columns FROM idempotency.records");
	my @secret = map { "$_ FROM idempotency.records" }
	  qw(* body headers error state request fingerprint);

	ask($session, 'SET ROLE watcher');
	unlike(ask($session, "SELECT $_"), qr/^\w{5}$/, "pg_monitor: $_") foreach @allowed;
	is(ask($session, "SELECT $_"), '42501', "pg_monitor is refused: $_")
	  foreach @secret, '* FROM idempotency.record', 'idem_stats_reset()';
	is( ask($session, 'SELECT launcher_pid FROM idempotency.sweeper'),
		launcher($node), 'pg_monitor sees the launcher');
	ask($session, 'SET ROLE stranger');
	is(ask($session, "SELECT $_"), '42501', "a plain role is refused: $_") foreach @allowed, @secret;
	$session->quit;
};

subtest 'more scopes than there is room for' => sub {
	my $session = session($node);
	my $has_row = sub { ask($session, "SELECT count(*) FROM idempotency.stats WHERE scope = '$_[0]'") };

	call($node, 'idem_stats_reset');
	begin_in('idle');
	is($has_row->('idle'), '1', 'a scope has a row');
	foreach my $round (1 .. 5)
	{
		ask($session, "SELECT idem_once('key', 'kept')");
		ask($session, "SELECT count(idem_once('key', 'scope-$round-' || n)) FROM generate_series(1, 400) AS n");
	}
	is(counted(q{scope = 'kept'}), 'executed 1, replayed 4, completed 1', 'a scope in use keeps its row');
	begin_in('new');
	is(counted(q{scope = 'new'}), 'executed 1', 'a new scope gets one');
	is($has_row->('idle'), '0', 'of the one unused for longest');
	is(counted('total'), 'executed 2003, replayed 4, completed 2001', 'whose counts stay in the total');
	my $evicted = ask($session, 'SELECT evicted FROM idempotency.stats WHERE total');
	my $rows = ask($session, 'SELECT count(*) FROM idempotency.stats WHERE scope IS NOT NULL');
	cmp_ok($rows + $evicted, '>=', 2003, 'each scope has a row or was evicted');
	my $before = $rows . ' ' . $evicted;
	$node->safe_psql('postgres', q{UPDATE idempotency.record SET retained_until = '-infinity', expires_at = '-infinity'});
	ask($session, 'SELECT idem_cleanup(NULL)');
	is(join(' ', map { ask($session, $_) } 'SELECT count(*) FROM idempotency.stats WHERE scope IS NOT NULL',
			'SELECT evicted FROM idempotency.stats WHERE total'), $before, 'removed records of former scopes evict none');
	$session->quit;
};

# A server that can't add shared memory after its start tells how to enable the counters.
sub asks_for_preloading ($plain)
{
	foreach ('* FROM idempotency.stats', '* FROM idempotency.scope_stats()', 'idem_stats_reset()')
	{
		my (undef, undef, $stderr) =
		  $plain->psql('postgres', "\\set VERBOSITY verbose\nSELECT $_");
		like($stderr, qr/ERROR:  55000: .*\nDETAIL:  .*\nHINT:  .*shared_preload_libraries/s,
			"$_: a hint");
	}
	return;
}

# Each call uses a new connection, so the counters outlive the one that made them.
sub counts_all_the_same ($plain)
{
	my $counted = q{SELECT executed, in_progress FROM idempotency.stats WHERE total};

	is($plain->safe_psql('postgres', $counted), '1|0', 'the claim is counted');
	begin_claim($plain, 'key');
	is($plain->safe_psql('postgres', $counted), '1|1', 'from another connection, too');
	call($plain, 'idem_stats_reset');
	is($plain->safe_psql('postgres', $counted), '0|0', 'and reset');
	return;
}

subtest 'without preloading' => sub {
	my $plain = new_node('plain');

	is(begin_claim($plain, 'key')->{outcome}, 'execute', 'answers are given');
	$plain->pg_version >= 17 ? counts_all_the_same($plain) : asks_for_preloading($plain);
	$plain->stop;
};

# An unreadable block of the index: the store can fail without any SQL code.
subtest 'a damaged file' => sub {
	my $file = $node->data_dir . '/'
	  . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('idempotency.record_pkey')});
	$node->stop;
	open my $index, '+<:raw', $file or die "$file: $!";
	print $index 'x' x 8192 or die "$file: $!";
	close $index or die "$file: $!";
	$node->start;
	refused_in('damaged', 'XX001') foreach 1 .. 2;
	is(counted(q{scope = 'damaged'}), 'store_errors 2', 'each call is counted');
};

$node->stop;
done_testing();
