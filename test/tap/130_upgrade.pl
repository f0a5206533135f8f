# The time between installing a new library and updating the SQL objects, or the reverse, while the
# two have different versions. So far one version exists, so the other one is made up.
use Idem;
use Sweeping;

my $root = "$FindBin::RealBin/../..";
my ($current) = slurp_file("$root/idempotency.control") =~ /^default_version\s*=\s*'([^']+)'/m;
my $older = '0.0.1';

my $half_updated = qr/ERROR:  55000: library and objects of extension "idempotency" have different versions\n.*/s;
my $node = sweeping_node('main', max_prepared_transactions => 10);

# Makes the objects claim a different version, as a script to that version would.
sub pretend ($database, $version)
{
	$node->safe_psql($database, qq{
		UPDATE pg_extension SET extversion = '$version' WHERE extname = 'idempotency';
		ALTER TABLE idempotency.record RESET (parallel_workers)});
	return;
}

# The server's full answer to a statement.
sub complaint ($database, $sql)
{
	my (undef, undef, $stderr) = $node->psql($database, "\\set VERBOSITY verbose\n$sql");

	return $stderr;
}

# A database whose objects claim to be of an older version, and their update.
sub old_database ($name)
{
	add_database($node, $name, 'public');
	pretend($name, $older);
	return;
}

sub update ($database)
{
	pretend($database, $current);
	return;
}

subtest 'objects older than the library' => sub {
	old_database('late');
	my $size = log_size($node);
	my $session = session($node, 'late');

	like(complaint('late', q{SELECT idem_begin('key')}),
		qr/$half_updated
			DETAIL:\ \ .*library\ has\ version\ \Q$current\E.*objects.*have\ version\ \Q$older\E\.\n
			HINT:\ \ Run\ ALTER\ EXTENSION\ idempotency\ UPDATE\./x,
		'a call says which is older, and what to do');
	is(ask($session, $_), '55000', "refused: $_")
	  foreach q{SELECT idem_once('key')}, q{SELECT idem_get('key')}, q{SELECT idem_cleanup()};
	is(ask($session, q{SELECT idem_key('order', '7')}), 'order:7', 'a pure helper is not');
	wait_for_visits($node, 'late', 2);
	is(scalar(() = log_since($node, $size, qr/LOG|ERROR:  library and objects of extension "idempotency"/)) > 0,
		1, 'the sweeper says so, too');
	update('late');
	is(outcome_in($session, 'key'), 'execute', 'after the update the same session is served');
	$session->quit;
};

subtest 'library older than the objects' => sub {
	add_database($node, 'early', 'public');
	my $session = session($node, 'early');
	my $holder = session($node, 'early');

	is(outcome_in($session, 'before'), 'execute', 'a session is at work');
	ask($holder, 'BEGIN');
	is(outcome_in($holder, 'open'), 'execute', 'another has an open claim');
	pretend('early', '99.0.0');
	like(complaint('early', q{SELECT idem_begin('key')}),
		qr/$half_updated version\ 99\.0\.0\.\n HINT:\ \ Install\ the\ library.*restart\ the\ server/x,
		'a call says what to do');
	is(ask($session, q{SELECT idem_begin('key')}), '55000', 'also in the session at work');
	is(ask($holder, 'COMMIT'), '', 'the open claim is kept: it has the locks that keep the table as it knows it');
	is(record_state($node, 'open', 'early'), 'in_progress', 'as a leased one');
	pretend('early', $current);
	is(outcome_in($session, 'key'), 'execute', 'equal again, all goes on');
	$_->quit foreach $session, $holder;
};

# ---- under load ----

# Each round is a transaction with two effects; the other workers also try one of them.
my $load = q{
	CREATE TABLE stop ();
	CREATE TABLE effect (worker int, round int, key text);
	CREATE TABLE refused (worker int, round int);
	CREATE PROCEDURE load(worker int) LANGUAGE plpgsql AS $$
	DECLARE
		round int := 0;
	BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP
			round := round + 1;
			BEGIN
				INSERT INTO effect SELECT worker, round, key
				FROM unnest(ARRAY[format('own-%s-%s', worker, round), format('common-%s', round)]) AS key
				WHERE idem_once(key);
			EXCEPTION WHEN object_not_in_prerequisite_state THEN
				INSERT INTO refused VALUES (worker, round);
			END;
			COMMIT;
		END LOOP;
	END $$};

my $all_were = 'SELECT count(DISTINCT worker) = 2 FROM ';
my $change = q{
	SELECT bool_and(r.last < e.first)
	FROM (SELECT worker, max(round) AS last FROM refused GROUP BY worker) AS r
	JOIN (SELECT worker, min(round) AS first FROM effect GROUP BY worker) AS e USING (worker)};
my $twice_and_unrecorded = q{
	SELECT count(*) - count(DISTINCT e.key), count(*) FILTER (WHERE r.key IS NULL)
	FROM effect AS e LEFT JOIN idempotency.records AS r ON r.key = e.key AND r.status = 'completed'};

subtest 'under load' => sub {
	old_database('busy');
	$node->safe_psql('busy', $load);
	my @sessions = map { session($node, 'busy') } 1 .. 2;

	ask_later($sessions[ $_ - 1 ], "CALL load($_)") foreach 1 .. 2;
	$node->poll_query_until('busy', "$all_were refused") or die 'not all are refused';
	update('busy');
	ok($node->poll_query_until('busy', "$all_were effect"), 'sessions at work are served');
	$node->safe_psql('busy', 'INSERT INTO stop DEFAULT VALUES');
	is(ask($_), '', 'nothing else went wrong') foreach @sessions;
	is($node->safe_psql('busy', $change), 't', 'refused until the update, and not once after it');
	is($node->safe_psql('busy', $twice_and_unrecorded), '0|0', 'each effect came once, with its record');
	$_->quit foreach @sessions;
};

$node->stop;
done_testing();
