# idempotency.log_events: a line per decision, and no client data in it.
use Idem;
use Sweeping;

# The server itself must not log the strings that the test looks for.
my $node = new_node('main',
	log_statement => 'none',
	log_min_error_statement => 'panic',
	log_error_verbosity => 'default',
	# Its lines come when a sweeper comes.
	'idempotency.log_audit' => 'off');
my $session = session($node);

# events(sub { calls }): the lines that they cause, from "outcome" on.
sub events ($calls)
{
	my $size = log_size($node);

	$calls->();
	return [ map { s/^.*? LOG:  idempotency: //r } log_since($node, $size, qr/idempotency: /) ];
}

# Calls that lead to every outcome, in the given scope.
sub every_outcome ($scope)
{
	my $claim = sub { claim_in($session, shift, scope => $scope, @_) };
	my $end = sub {
		my ($function, $key, @named) = @_;
		ask($session, 'SELECT ' . invocation($function, key => $key, scope => $scope, @named));
	};
	my $policy = sub {
		ask($session, 'SELECT ' . invocation('idem_policy_set', scope_pattern => $scope, replace => \'true', reason => 'a test', @_));
	};
	my $let_time_pass = sub { ask($session, 'SELECT pg_sleep(0.005)') };
	my $token;

	$policy->(max_attempts => 2);
	(undef, undef, $token) = $claim->('replay', request => '{"a": 1}');
	$claim->('replay', request => '{"a": 1}');
	$end->('idem_complete', 'replay', token => $token);
	$claim->('replay', request => '{"a": 1}');
	$claim->('replay', request => '{"a": 2}');

	$policy->(max_attempts => 2, ttl => '1 ms', retention => '1 hour');
	(undef, undef, $token) = $claim->('expired');
	$end->('idem_complete', 'expired', token => $token);
	$let_time_pass->();
	$claim->('expired');
	$policy->(max_attempts => 2);

	(undef, undef, $token) = $claim->('retry');
	$end->('idem_fail', 'retry', token => $token, retryable => \'true', retry_after => '0');
	(undef, undef, $token) = $claim->('retry');
	$end->('idem_fail', 'retry', token => $token, retryable => \'true');
	$claim->('retry');

	(undef, undef, $token) = $claim->('later');
	$end->('idem_fail', 'later', token => $token, retryable => \'true', retry_after => '1 hour');
	$claim->('later');

	$claim->($_, lease => '1 ms') foreach qw(takeover unknown);
	$let_time_pass->();
	$claim->('takeover', lease => '1 hour');
	$policy->(on_lease_expiry => 'unknown');
	$claim->('unknown');
	return;
}

# The lines of those calls, and whether an operator should look at them.
my @lines = (
	[ 0, 'outcome=execute claim=first scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=in_progress scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=replay scope="s" attempt=1 waited_ms=0.000' ],
	[ 1, 'outcome=mismatch scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=execute claim=first scope="s" attempt=1 waited_ms=0.000' ],
	[ 1, 'outcome=expired scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=execute claim=first scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=execute claim=retry scope="s" attempt=2 waited_ms=0.000' ],
	[ 1, 'outcome=exhausted scope="s" attempt=2 waited_ms=0.000' ],
	[ 0, 'outcome=execute claim=first scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=retry_later scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=execute claim=first scope="s" attempt=1 waited_ms=0.000' ],
	[ 0, 'outcome=execute claim=first scope="s" attempt=1 waited_ms=0.000' ],
	[ 1, 'outcome=execute claim=takeover scope="s" attempt=2 waited_ms=0.000' ],
	[ 1, 'outcome=unknown scope="s" attempt=1 waited_ms=0.000' ]);

subtest 'off, problems and all' => sub {
	my %wanted = (
		off => [],
		problems => [ map { $_->[1] } grep { $_->[0] } @lines ],
		all => [ map { $_->[1] } @lines ]);

	ask($session, q{LOAD 'idempotency'});
	is(ask($session, 'SHOW idempotency.log_events'), 'off', 'off by default');
	foreach my $choice (qw(off problems all))
	{
		ask($session, "SET idempotency.log_events = '$choice'");
		my @outcomes = grep { /^outcome=/ } @{ events(sub { every_outcome('s') }) };
		is_deeply(\@outcomes, $wanted{$choice}, $choice);
		$node->safe_psql('postgres', 'TRUNCATE idempotency.record');
	}
};

subtest 'time waited' => sub {
	outcome_in($session, 'running', lease => '1 hour');
	my ($line) = @{ events(sub { outcome_in($session, 'running', wait => '30 ms') }) };
	like($line, qr/^outcome=in_progress scope="" attempt=1 waited_ms=([\d.]+)$/, 'is in the line');
	my ($waited) = $line =~ /waited_ms=([\d.]+)/;
	cmp_ok($waited, '>=', 30, 'in milliseconds');
};

subtest 'principal and key' => sub {
	my $claim = sub { outcome_in($session, 'a "b" \\c', scope => 'd" e=\\', principal => 'f "g"') };
	my $start = 'outcome=%s scope="d\\" e=\\\\" attempt=1 waited_ms=0.000';

	is_deeply(events($claim), [ sprintf $start, 'execute claim=first' ], 'not by default');
	ask($session, 'SET idempotency.log_keys = on');
	is_deeply(events($claim),
		[ sprintf "$start %s", 'in_progress', 'principal="f \\"g\\"" key="a \\"b\\" \\\\c"' ],
		'with log_keys, in quotes');
	foreach (qw(key scope principal))
	{
		my $sql = 'SELECT ' . invocation('idem_begin', key => 'x', $_ => "x\nLOG:  forged");
		my $answer;
		is_deeply(events(sub { $answer = ask($session, $sql) }), [], "a new line in the $_: no event");
		is($answer, '22023', 'but an error');
	}
	is(scalar(log_since($node, 0, qr/^LOG:  forged/)), 0, 'no line can be forged');
};

# Decisions of operators are logged with every value of log_events except off.
subtest 'decisions' => sub {
	my $me = ask($session, 'SELECT session_user');
	my $by = qq(decided_by="$me" acting_as="support");
	my $decide = sub {
		my ($key) = @_;
		$node->safe_psql('postgres', "SELECT idem_begin('$key', scope => 'd', principal => 'p')");
		return events(sub {
			ask($session, 'SELECT ' . invocation('idem_resolve', key => $key, action => 'fail',
				scope => 'd', principal => 'p', error => 'SECRET-8', reason => 'it "hangs"'));
			ask($session, 'SELECT ' . invocation('idem_forget', key => $key, scope => 'd',
				principal => 'p'));
			ask($session, 'SELECT ' . invocation('idem_policy_set', scope_pattern => 'd*',
				on_missing_key => 'error'));
			ask($session, 'SELECT ' . invocation('idem_policy_drop', scope_pattern => 'd*'));
		});
	};
	my $failed = '{"status": "failed", "attempt": 1}';
	my @fail = (qq(decision=fail scope="d" $by before=)
		  . qq({"alive": true, "status": "in_progress", "attempt": 1} after=$failed));
	my @forget = (qq(decision=forget scope="d" $by before=$failed));
	my @policy = (
		qq(decision=policy_set scope="d*" $by after={"on_missing_key": "error"}),
		qq(decision=policy_drop scope="d*" $by before={"on_missing_key": "error"}));

	$node->safe_psql('postgres', q{CREATE ROLE support; SELECT idem_grant('support', true, administrator => true)});
	ask($session, q{SET idempotency.log_events = 'off'; SET idempotency.log_keys = off; SET ROLE support});
	is_deeply($decide->('off'), [], 'off');
	ask($session, q{RESET ROLE; SET idempotency.log_events = 'problems'; SET ROLE support});
	is_deeply($decide->('k'), [ @fail, @forget, @policy ], 'problems: all of them');
	ask($session, q{RESET ROLE; SET idempotency.log_keys = on; SET ROLE support});
	my $named = 'principal="p" key="k"';
	is_deeply($decide->('k'),
		[ qq($fail[0] $named reason="it \\"hangs\\""), "$forget[0] $named", @policy ],
		'with log_keys: principal, key and reason');
	ask($session, 'RESET ROLE');
	is_deeply(events(sub { ask($session, q{SELECT idem_revoke('support')}) }),
		[ qq(decision=revoke role="support" decided_by="$me" acting_as="$me")
			. ' before={"worker": false, "operator": true, "protocol": true, "administrator": true} after={"worker": false, "operator": false, "protocol": false, "administrator": false}' ],
		'rights');
	ask($session, q{SET idempotency.log_events = 'all'});
};

subtest 'nothing of requests, answers and errors' => sub {
	my $events = events(sub {
		my (undef, undef, $token) =
		  claim_in($session, 'secret-free', request => '{"card": "SECRET-1"}', holder => 'SECRET-2');
		ask($session, 'SELECT '
			. invocation('idem_checkpoint', key => 'secret-free', token => $token,
				recovery_point => 'SECRET-3', state => '{"x": "SECRET-4"}'));
		ask($session, 'SELECT '
			. invocation('idem_fail', key => 'secret-free', token => $token, error => 'SECRET-5',
				status_code => 402, body => \"'SECRET-6'::text", headers => '{"x": "SECRET-7"}'));
		claim_in($session, 'secret-free', request => '{"card": "SECRET-1"}');
	});
	is(scalar(@$events), 2, 'two decisions');
	is(scalar(log_since($node, 0, qr/SECRET-\d/)), 0, 'and no secret');
};

subtest 'rights' => sub {
	$node->safe_psql('postgres', 'CREATE ROLE app');
	ask($session, 'SET ROLE app');
	is(ask($session, "SET idempotency.$_"), '42501', "not for everybody: $_")
	  foreach q{log_events = 'off'}, 'log_keys = on';
};

$session->quit;
$node->stop;
done_testing();
