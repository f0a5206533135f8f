# Every call that meets DROP EXTENSION waits for it. Then it says that the extension is not
# installed (42P01), or continues with a newly created one. It makes no difference whether the
# session has called before.
use Idem;

my $node = new_node('main', shared_preload_libraries => 'idempotency', 'idempotency.cleanup_interval' => 0);
$node->safe_psql('postgres', 'CREATE FUNCTION op(jsonb) RETURNS jsonb LANGUAGE sql RETURN $1');

my @calls = (
	q{SELECT idem_begin('k')},
	q{SELECT outcome FROM idem_begin('k')},
	q{SELECT idem_complete('k', token => 1)},
	q{SELECT idem_fail('k', token => 1)},
	q{SELECT idem_extend('k', 1)},
	q{SELECT idem_checkpoint('k', 'p', token => 1)},
	q{SELECT idem_release('k', token => 1)},
	q{SELECT idem_once('k')},
	q{SELECT outcome FROM idem_execute('k', 'op(jsonb)', '{}')},
	q{SELECT status FROM idem_get('k')},
	q{SELECT idem_resolve('k', 'release')},
	q{SELECT outcome FROM idem_explain('k')},
	q{SELECT * FROM idem_attempts('k')},
	q{SELECT idem_forget('k')},
	q{SELECT idem_resolve_idle('k', 'release')},
	q{SELECT idem_erase('k')},
	q{SELECT idem_await_claims('p')},
	q{SELECT idem_erase_decisions('p')},
	q{CALL idem_resolve_all('release', 'because', status => 'retryable')},
	q{CALL idem_forget_principal('p')},
	q{SELECT idem_cleanup()},
	q{SELECT idem_policy_set('s', ttl => '1 day')},
	q{SELECT idem_policy_alter('s', ttl => '1 day')},
	q{SELECT idem_policy_drop('s')},
	q{SELECT * FROM idem_policy('s')},
	q{CALL idem_reseal()},
	q{SELECT * FROM idempotency.claims_here()},
	q{SELECT * FROM idempotency.tables_here()},
	q{SELECT * FROM idempotency.keys_here()},
	q{SELECT * FROM idempotency.backlog(now())});

# The answer of a call during a transaction that runs this SQL, and the kind of relation that it
# waits for, if any.
sub answer_beside ($call, $warm, @ddl)
{
	my ($caller, $dropper) = (session($node), session($node));
	my $pid = pid_of($caller);

	ask($caller, $call) if $warm;
	ask($dropper, $_) foreach 'BEGIN', @ddl;
	# The statement before the call has ended, too.
	my $before = $node->safe_psql('postgres', "SELECT query_start FROM pg_stat_activity WHERE pid = $pid");
	ask_later($caller, $call);
	$node->poll_query_until('postgres', qq{
		SELECT query_start <> '$before' AND (cardinality(pg_blocking_pids($pid)) > 0 OR state NOT IN ('active', 'fastpath function call'))
		  FROM pg_stat_activity WHERE pid = $pid}) or die "$call neither waits nor ends";
	my $kind = $node->safe_psql('postgres', qq{
		SELECT c.relkind FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		 WHERE l.pid = $pid AND NOT l.granted});
	ask($dropper, 'COMMIT');
	my $answer = ask($caller);
	is(ask($caller, 'SELECT 1'), '1', "the session goes on after $call");
	$_->quit foreach $caller, $dropper;
	return ($answer, $kind);
}

# A call in FROM waits before the function is called: the server opens the row type that it returns,
# and itself raises XX000 if the type is gone.
sub is_answered ($name, $expected, $call, $warm, @ddl)
{
	my ($answer, $kind) = answer_beside($call, $warm, @ddl);

	if ($kind eq 'c') { like($answer, qr/^(42P01|42883|XX000)$/, "$name (by the server)"); }
	elsif ($kind eq '') { unlike($answer, qr/^(XX|42)/, "$name (which does not wait)"); }
	else { like($answer, $expected, $name); }
	return;
}

foreach my $warm (0, 1)
{
	my $when = $warm ? 'called before' : 'the first call';
	foreach my $call (@calls)
	{
		is_answered("dropped, $when: $call", qr/^42P01$/, $call, $warm, 'DROP EXTENSION idempotency');
		$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
		# The new extension has new functions and types, not those that the call was parsed with.
		is_answered("created again, $when: $call", qr/^(?!XX)/, $call, $warm,
			'DROP EXTENSION idempotency', 'CREATE EXTENSION idempotency');
	}
}
$node->stop;
done_testing();
