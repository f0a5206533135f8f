# Workers of idem_claim_due that are killed: each of 10,000 due records has its effect once, and none is left.
use Idem;
use Sweeping;

use IPC::Run qw(start);

my $node = new_node('main', restart_after_crash => 'on', 'idempotency.cleanup_interval' => 0);
my $folder = PostgreSQL::Test::Utils::tempdir;
my $all = 10_000;

# Retryable records, and claims of a worker that is gone. An effect and the end of its claim are one
# transaction, and so may be claim and effect.
$node->safe_psql('postgres', qq{
	CREATE TABLE effect (key text);
	CREATE FUNCTION take(most integer, lease interval = '2 s') RETURNS text LANGUAGE sql AS \$\$
		SELECT set_config('jobs.held', coalesce(json_agg(due)::text, '[]'), false)
		  FROM (SELECT key, token FROM idem_claim_due('jobs', most, lease)) AS due
	\$\$;
	CREATE FUNCTION finish() RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		claim json;
	BEGIN
		FOR claim IN SELECT json_array_elements(current_setting('jobs.held')::json) LOOP
			BEGIN
				INSERT INTO effect VALUES (claim->>'key');
				PERFORM idem_complete(claim->>'key', 200, scope => 'jobs', token => (claim->>'token')::bigint);
			EXCEPTION WHEN SQLSTATE 'ID409' THEN
				NULL;  -- another worker has it: this one's effect is undone
			END;
		END LOOP;
	END \$\$;
	INSERT INTO idempotency.record (scope, principal, key, status, attempt, token, lease_us,
		created_at, claimed_at, expires_at, retained_until, next_attempt_at, finished_at, lease_until)
	SELECT 'jobs', '', 'k' || n, 'r', 1, n, 1, t, t, t + interval '2 days', t + interval '2 days', t, t, NULL
	FROM generate_series(1, $all / 2) AS n, CAST(now() - interval '1 hour' + n * interval '1 ms' AS timestamptz) AS t
	UNION ALL
	SELECT 'jobs', '', 'k' || n, 'i', 1, n, 1, t, t, t + interval '2 days', t + interval '2 days', NULL, NULL, t
	FROM generate_series($all / 2 + 1, $all) AS n, CAST(now() - interval '1 hour' + n * interval '1 ms' AS timestamptz) AS t});

append_to_file("$folder/leased.sql", "SELECT take(20);\nSELECT finish();\n");
# Its lease ends before its work, so others may have claimed the records, and even finished them.
append_to_file("$folder/slow.sql", "SELECT take(20, '1 ms');\nSELECT pg_sleep(0.05);\nSELECT finish();\n");
append_to_file("$folder/transactional.sql", "BEGIN;\nSELECT take(20);\nSELECT finish();\nCOMMIT;\n");

sub some_workers
{
	my $log = '';
	return start [ 'pgbench', '-n', '-c', 6, '-T', 3600,
		(map { ('-f', "$folder/$_.sql") } qw(leased transactional slow)),
		'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$log, '2>', \$log;
}

sub effects
{
	return $node->safe_psql('postgres', 'SELECT count(*) FROM effect');
}

sub wait_for_effects ($count)
{
	wait_until { effects() >= $count } "$count effects";
	return;
}

is($node->safe_psql('postgres', q{SELECT records FROM idempotency.due WHERE scope = 'jobs'}), $all, 'due records');

foreach my $part (1 .. 3)
{
	my $workers = some_workers();

	wait_for_effects($part * $all / 5);
	$workers->kill_kill(grace => 0);
}

# A backend of theirs is killed: the server starts again.
my $workers = some_workers();
my $size = log_size($node);
wait_for_effects(4 * $all / 5);
my $backend = $node->safe_psql('postgres',
	q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()});
kill 'KILL', $backend;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $size);
$node->poll_query_until('postgres', 'SELECT true') or die 'the server does not come back';
$workers->kill_kill(grace => 0);

$workers = some_workers();
wait_for_effects($all);
$workers->kill_kill(grace => 0);
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT key) FROM effect'), "$all|$all",
	'each has its effect once');
is($node->safe_psql('postgres', 'SELECT status, count(*) FROM idempotency.records GROUP BY status'), "completed|$all",
	'and its result');
is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency.due'), '0', 'none is due');

# Where a principal has as many claims as it may have, workers that claim at the same moment get none, but no error.
$node->safe_psql('postgres', q{
	SELECT idem_policy_set('few', max_open_claims => 2, retry_base => '0');
	INSERT INTO idempotency.record (scope, principal, key, status, attempt, token, lease_us,
		created_at, claimed_at, expires_at, retained_until, next_attempt_at, finished_at)
	SELECT 'few', '', 'k' || n, 'r', 1, n, 1, t, t, t + interval '2 days', t + interval '2 days', t, t
	FROM generate_series(1, 1000) AS n, CAST(now() - interval '1 hour' AS timestamptz) AS t});
append_to_file("$folder/few.sql", <<~'SQL');
	SELECT set_config('jobs.held', coalesce(json_agg(due)::text, '[]'), false) FROM (SELECT key, token FROM idem_claim_due('few', 1, '1 hour')) AS due;
	SELECT idem_fail(one->>'key', retryable => true, scope => 'few', token => (one->>'token')::bigint, retry_after => '0') FROM json_array_elements(current_setting('jobs.held')::json) AS one;
	SQL
$node->command_ok([ 'pgbench', '-n', '-c', 8, '-t', 200, '-f', "$folder/few.sql", 'postgres' ], 'a limit of claims is no error of a worker');

done_testing();
