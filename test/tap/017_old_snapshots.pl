# A snapshot may be older than the transaction or statement that uses it: an imported one, or one of
# a cursor. It may also ask about row versions that vacuum is removing.
use Idem;

# Only the test ends transactions.
my $node = new_node('main', autovacuum => 'off', 'idempotency.cleanup_interval' => 0);
my ($holder, $taker, $exporter) = map { session($node) } 1 .. 3;

$node->safe_psql('postgres', q{
	CREATE TABLE effect (key text, by text);
	CREATE FUNCTION work(key text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (key, 'taker');
		RETURN 'done';
	END $$});

# The holder has an effect in a separate transaction, and then the lease expires.
sub works_and_falls_silent ($key)
{
	ask($holder, "INSERT INTO effect VALUES ('$key', 'holder')");
	$node->poll_query_until('postgres',
		"SELECT lease_until < clock_timestamp() FROM idempotency.record WHERE key = '$key'")
	  or die 'the lease does not end';
	return;
}

sub lease_runs ($key)
{
	return ask($holder,
		"SELECT lease_until > clock_timestamp() FROM idempotency.record WHERE key = '$key'") eq 't';
}

sub effects_of { return $node->safe_psql('postgres', "SELECT string_agg(by, ',') FROM effect WHERE key = '$_[0]'"); }

foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	my $key = "imported, $level";

	is(outcome_in($holder, $key, lease => '2 s'), 'execute', "$key: claimed");
	ask($exporter, "BEGIN ISOLATION LEVEL $level");
	my $snapshot = ask($exporter, 'SELECT pg_export_snapshot()');
	works_and_falls_silent($key);
	ask($taker, $_) foreach "BEGIN ISOLATION LEVEL $level", "SET TRANSACTION SNAPSHOT '$snapshot'";
	is(outcome_in($taker, $key), '40001', 'a snapshot from within the lease takes nothing over');
	ask($taker, 'ROLLBACK');
	ask($exporter, 'ROLLBACK');
	ask($taker, "BEGIN ISOLATION LEVEL $level");
	is(outcome_in($taker, $key), 'execute', 'the retry does');
	is(ask($taker, "SELECT count(*) FROM effect WHERE key = '$key'"), '1', 'and sees what came before');
	ask($taker, 'ROLLBACK');
}

# The lease expires before the snapshot and nothing ends later: an imported snapshot is as good as
# any other.
is(outcome_in($holder, 'quiet', lease => '1 ms'), 'execute', 'quiet: claimed');
$node->poll_query_until('postgres', q{SELECT lease_until < clock_timestamp() FROM idempotency.record WHERE key = 'quiet'});
ask($exporter, 'BEGIN ISOLATION LEVEL SERIALIZABLE');
my $snapshot = ask($exporter, 'SELECT pg_export_snapshot()');
ask($taker, $_) foreach 'BEGIN ISOLATION LEVEL SERIALIZABLE', "SET TRANSACTION SNAPSHOT '$snapshot'";
is(outcome_in($taker, 'quiet'), 'execute', 'granted under a snapshot that misses nothing');
ask($taker, 'ROLLBACK');
ask($exporter, 'ROLLBACK');

foreach my $hold ('', ' WITH HOLD')
{
	my $key;

	for (my $lease = 2;; $lease *= 2)
	{
		$key = "cursor$hold, a lease of $lease s";
		is(outcome_in($holder, $key, lease => "$lease s"), 'execute', "$key: claimed");
		ask($taker, 'BEGIN');
		ask($taker, qq{DECLARE c CURSOR$hold FOR
			SELECT CASE WHEN outcome = 'execute' AND NOT EXISTS (SELECT FROM effect WHERE key = '$key')
				THEN work('$key') ELSE outcome END
			FROM idem_begin('$key', same_statement => true)});
		last if lease_runs($key);
		# The lease may have expired before the cursor was opened.
		ask($taker, 'ROLLBACK');
	}
	works_and_falls_silent($key);
	is(ask($taker, $hold ? 'COMMIT' : 'FETCH c'), '40001', 'the cursor sees with its old snapshot');
	ask($taker, 'ROLLBACK');
	is(effects_of($key), 'holder', 'one effect');
}

# Row versions that are dead to all snapshots may have lost their toasted values, and are not
# needed.
subtest 'toast that vacuum has taken' => sub {
	my ($scope, $principal, $key) = map { join '', map { chr(0x10000 + int rand 0x10000) } 1 .. $_ } 200, 110, 200;
	my $where = "idem_begin(convert_from('\\x%s', 'UTF8'), scope => convert_from('\\x%s', 'UTF8'), principal => convert_from('\\x%s', 'UTF8'))";
	my $begin = sprintf $where, map { utf8::encode(my $bytes = $_); unpack 'H*', $bytes } $key, $scope, $principal;

	is(ask($holder, "SELECT outcome FROM $begin"), 'execute', 'claimed');
	is(ask($holder, q{SELECT idem_fail(key, 'x', retryable => true, scope => scope, principal => principal,
		token => token, retry_after => '0') FROM idempotency.record ORDER BY length(scope) DESC LIMIT 1}),
		't', 'and failed');
	ask($holder, 'VACUUM ' . ask($holder, q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'idempotency.record'::regclass}));
	foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
	{
		ask($taker, "BEGIN ISOLATION LEVEL $level");
		is(ask($taker, "SELECT outcome FROM $begin"), 'execute', "$level: granted");
		ask($taker, 'ROLLBACK');
	}
};

# Another session may add a child table or leave an invalid index while a claim is open. The commit
# succeeds with both.
subtest 'other sessions during an open claim' => sub {
	my $operator = session($node);
	my $operator_pid = pid_of($operator);

	ask($holder, 'BEGIN');
	is(outcome_in($holder, 'with child'), 'execute', 'a claim is open');
	is(ask($operator, 'CREATE TABLE child () INHERITS (idempotency.record)'), '', 'the table gets a child');
	ask($holder, 'CREATE TEMP TABLE hears_of_it ()');
	is(ask($holder, 'COMMIT'), '', 'committed');
	is(ask($operator, 'DROP TABLE child'), '', 'the child goes');
	is(record_state($node, 'with child'), 'in_progress', 'the claim is there');
	ask($operator, 'VACUUM ANALYZE idempotency.record');

	ask($holder, 'BEGIN');
	is(outcome_in($holder, 'with index'), 'execute', 'a claim is open');
	ask_later($operator, 'CREATE INDEX CONCURRENTLY lowered ON idempotency.record (lower(key))');
	wait_until_blocked($node, $operator_pid);
	ask($holder, 'CREATE TEMP TABLE hears_of_that ()');
	is(ask($holder, 'COMMIT'), '', 'committed');
	is(ask($operator), '', 'the index is built');
	is(record_state($node, 'with index'), 'in_progress', 'the claim is there');
	is(ask($operator, q{SET enable_seqscan = off; SELECT count(*) FROM idempotency.record WHERE lower(key) = 'with index'}),
		'1', 'and in the index');
	$operator->quit;
};

$_->quit foreach $holder, $taker, $exporter;
$node->stop;
done_testing();
