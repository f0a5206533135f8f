# Overlapping batches of idem_once_each in many sessions, in each isolation level and beside single keys: each key
# is new exactly once, and no batch waits for another one in a circle.
use Idem;

my $node = new_node('main', 'idempotency.cleanup_interval' => 0);
my $folder = PostgreSQL::Test::Utils::tempdir;

# A batch has keys in any order, and some twice.
$node->safe_psql('postgres', q{
	CREATE TABLE effect (key text);
	CREATE FUNCTION batch(most integer) RETURNS text[] LANGUAGE sql VOLATILE
		AS 'SELECT array_agg((random() * 2000)::integer::text) FROM generate_series(1, most)'});

my $batch = 'INSERT INTO effect SELECT * FROM idem_once_each(batch(120), same_statement => true);';
my %scripts = (
	committed => "BEGIN;\n$batch\nCOMMIT;\n",
	apart => "BEGIN;\nINSERT INTO effect SELECT apart.* FROM idem_once_each(batch(120)) AS apart;\nCOMMIT;\n",
	repeatable => "BEGIN ISOLATION LEVEL REPEATABLE READ;\n$batch\nCOMMIT;\n",
	serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE;\n$batch\nCOMMIT;\n",
	undone => "BEGIN;\n$batch\nROLLBACK;\n",
	single => "INSERT INTO effect SELECT k FROM (SELECT (random() * 2000)::integer::text AS k OFFSET 0) n,"
	  . " LATERAL idem_once(k, same_statement => true) AS first WHERE first;\n");
append_to_file("$folder/$_.sql", $scripts{$_}) foreach keys %scripts;

# Batches of later rounds meet records, running transactions and keys that were given back.
foreach my $round (1 .. 6)
{
	$node->safe_psql('postgres', 'TRUNCATE effect; DELETE FROM idempotency.record') if $round == 4;
	PostgreSQL::Test::Utils::run_log([ 'pgbench', '-n', '-c', 8, '-t', 12, '--max-tries', 1000,
		(map { ('-f', "$folder/$_.sql") } sort keys %scripts),
		'-h', $node->host, '-p', $node->port, 'postgres' ]) or BAIL_OUT('pgbench failed');
	is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT key) FROM effect'), '0', 'no key was new twice');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM effect FULL JOIN idempotency.record r USING (key)
			WHERE r.status IS DISTINCT FROM 'c' OR effect IS NULL}), '0', 'each new key has its record, and each record its effect');
}
my $log = slurp_file($node->logfile);
unlike($log, qr/deadlock detected/, 'no deadlock');
# In READ COMMITTED a batch waits for another one. With same_statement its snapshot may be too old.
unlike($log, qr/ STATEMENT: .* apart/, 'no error in READ COMMITTED');

done_testing();
