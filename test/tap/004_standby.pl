# A streaming standby answers questions and never decides. After its promotion it continues where
# the primary stopped.
use Idem;

my @writing_calls = (
	"idem_begin('new')",
	"idem_begin('done')",
	"idem_complete('running', 200, 'x'::text, token => 1)",
	"idem_complete('running', 200, 'x'::bytea, token => 1)",
	"idem_complete('running', 200, '{}'::jsonb, token => 1)",
	"idem_fail('running', 'x', token => 1)",
	"idem_fail('running', 'x', false, 500, 'x'::bytea, token => 1)",
	"idem_fail('running', 'x', false, 500, '{}'::jsonb, token => 1)",
	"idem_extend('running', 1)",
	"idem_checkpoint('running', 'half', token => 1)",
	"idem_release('running', token => 1)",
	"idem_once('new')",
	"idem_execute('new', 'operation(jsonb)', '{}')",
	"idem_resolve('running', 'release')",
	"idem_forget('done')",
	"idem_resolve_idle('running', 'release')",
	"idem_erase('done')",
	"idem_await_claims('p')",
	"idem_erase_decisions('p')",
	"idem_cleanup()",
	"idem_policy_set('s', ttl => '1 day')",
	"idem_policy_alter('s', ttl => '1 day')",
	"idem_policy_drop('s')",
	"idem_grant('app')",
	"idem_revoke('app')");

# The answer of idem_get for a key.
my $look = q{SELECT status, status_code, encode(body, 'hex') FROM idem_get('%s')};

sub refuses_to_write ($session, $where)
{
	is(ask($session, "SELECT $_"), '25006', "$where: $_ is refused") foreach @writing_calls;
	is(ask($session, "CALL $_"), '25006', "$where: $_ is refused")
	  foreach q{idem_resolve_all('release', scope => '*')}, q{idem_forget_principal('p')};
	return;
}

# A reader that knows where the primary's WAL ended after COMMIT waits until the record is here.
sub waits_for_a_record ($primary, $standby, $reader)
{
	my $wait = q{WAIT FOR LSN '%s' WITH (TIMEOUT '%s', NO_THROW)};
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'});
	call($primary, 'idem_complete', key => 'awaited', status_code => 201,
		token => begin_claim($primary, 'awaited', lease => '1 hour')->{token});
	my $lsn = $primary->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	is(ask($reader, sprintf $wait, $lsn, '10ms'), 'timeout', 'a record is awaited on the standby');
	is(ask($reader, sprintf $look, 'awaited'), '||', 'until then there is none');
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
	is(ask($reader, sprintf $wait, $lsn, '180s'), 'success', 'it arrives');
	is(ask($reader, sprintf $look, 'awaited'), 'completed|201|', 'and is found');
	return;
}

my $primary = new_node('primary',
	-init => [ allows_streaming => 1 ],
	max_prepared_transactions => 10);
$primary->safe_psql('postgres', q{
	CREATE ROLE app;
	CREATE ROLE staff;
	CREATE FUNCTION operation(jsonb) RETURNS jsonb LANGUAGE sql RETURN $1;
});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my %token = map { $_ => begin_claim($primary, $_, lease => '1 hour')->{token} } qw(done running);
my $late = begin_claim($primary, 'late', lease => '1 ms');
call($primary, 'idem_complete', key => 'done', status_code => 201, body => \"'\\x00ff'::bytea",
	token => $token{done});
my $holder = session($primary);
is(outcome_in($holder, 'held', hold => \'true', lease => '1 hour'), 'execute', 'a held claim');
my $prepared = session($primary);
ask($prepared, 'BEGIN');
my (undef, undef, $prepared_token) = claim_in($prepared, 'prepared');
ask($prepared, "PREPARE TRANSACTION 'claim'");
$prepared->quit;
$primary->wait_for_catchup($standby);

my $reader = session($standby);
is(ask($reader, sprintf $look, 'done'), 'completed|201|00ff', 'an answer can be looked up');
is(ask($reader, sprintf $look, 'running'), 'in_progress||', 'so can a claim');
is(ask($reader, "SELECT idem_get('absent') IS NULL"), 't', 'an absent record is NULL');
is(ask($reader, "SELECT idem_get('prepared') IS NULL"), 't', 'an uncommitted claim is not seen either');
is(ask($reader, "SELECT status FROM idempotency.records WHERE key = 'done'"),
	'completed', 'the view can be read');
$primary->safe_psql('postgres', q{SELECT idem_grant('staff', reason => 'ticket 5')});
$primary->wait_for_catchup($standby);
is(ask($reader, 'SELECT action, role, reason FROM idempotency.decisions'),
	'grant|staff|ticket 5', 'and the decisions');
refuses_to_write($reader, 'standby');

my $read_only = session($primary);
ask($read_only, 'SET default_transaction_read_only = on');
is(ask($read_only, sprintf $look, 'done'), 'completed|201|00ff', 'idem_get only reads');
refuses_to_write($read_only, 'read only');
$read_only->quit;

# The reader has the policies cached.
ask($reader, 'SET ROLE app');
is(ask($reader, sprintf $look, 'done'), '42501', 'idem_get needs a grant on the standby, too');
call($primary, 'idem_grant', role => 'app');
$primary->wait_for_catchup($standby);
is(ask($reader, sprintf $look, 'done'), 'completed|201|00ff', 'the grant arrives');
call($primary, 'idem_policy_set', scope_pattern => '*', allowed_role => 'staff');
$primary->wait_for_catchup($standby);
is(ask($reader, sprintf $look, 'done'), '42501', 'so does a policy, at the next statement');
is($standby->safe_psql('postgres', q{SELECT value, source FROM idem_policy('s') WHERE option = 'allowed_role'}),
	'staff|policy', 'idem_policy shows the options in force there');
call($primary, 'idem_policy_drop', scope_pattern => '*', reason => 'a test');
$primary->wait_for_catchup($standby);
is(ask($reader, sprintf $look, 'done'), 'completed|201|00ff', 'and its end');
ask($reader, 'RESET ROLE');
waits_for_a_record($primary, $standby, $reader) if $primary->pg_version >= 19;

$primary->stop('immediate');
$holder->quit;
$standby->promote;

is(begin_claim($standby, 'done')->{body}, '\\x00ff', 'promoted: the answer is replayed');
is(outcome_in($reader, 'done'), 'replay', 'also in a session from before');
is(outcome_in($reader, 'running'), 'in_progress', 'the lease runs on');
is(ask($reader, completion('running', $token{running})), 't', 'and its holder completes');
my ($outcome, $attempt, $token) = claim_in($reader, 'late');
is("$outcome, $attempt", 'execute, 2', 'a claim with an expired lease is taken over');
cmp_ok($token, '>', $late->{token}, 'with a larger token');
is(ask($reader, completion('late', $late->{token})), 'ID409', 'the old one is of no use');
is(outcome_in($reader, 'prepared'), 'in_progress', 'a prepared claim is still prepared');
is(ask($reader, "COMMIT PREPARED 'claim'"), '', 'and can be committed');
is(ask($reader, completion('prepared', $prepared_token)), 't', 'and completed');
is(join(', ', (claim_in($reader, 'held'))[0, 1]), 'execute, 2',
	'a claim with a holder on the primary is taken over immediately');
is(outcome_in($reader, 'new'), 'execute', 'new requests are executed');

$reader->quit;
$standby->stop;
done_testing();
