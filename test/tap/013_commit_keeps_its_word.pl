# An error that can be detected when a key is granted is not raised at commit: by then other servers
# may have committed their part of the transaction. postgres_fdw stands for them.
use Idem;

my $node = new_node('main');
my ($host, $port) = ($node->host, $node->port);

$node->safe_psql('postgres', 'CREATE DATABASE remote');
$node->safe_psql('remote', 'CREATE TABLE effect (key text)');
$node->safe_psql('postgres', qq{
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw
		OPTIONS (host '$host', port '$port', dbname 'remote');
	CREATE USER MAPPING FOR CURRENT_USER SERVER elsewhere;
	CREATE FOREIGN TABLE effect (key text) SERVER elsewhere;
	CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'});

sub effects_of ($key)
{
	return $node->safe_psql('remote', "SELECT count(*) FROM effect WHERE key = '$key'");
}

# A session whose transaction was granted a key and has had its effect on the other server.
sub half_done ($key, @before)
{
	my $session = session($node);

	ask($session, $_) foreach @before, 'BEGIN';
	is(outcome_in($session, $key), 'execute', "$key: granted");
	is(ask($session, "INSERT INTO effect VALUES ('$key')"), '', 'with its effect elsewhere');
	return $session;
}

sub is_whole ($key, $session)
{
	is(ask($session, 'COMMIT'), '', 'the commit succeeds');
	is(record_state($node, $key) . ', ' . effects_of($key), 'in_progress, 1', 'both halves are there');
	$session->quit;
	return;
}

subtest 'read only since the claim' => sub {
	my $session = half_done('read-only');

	is(ask($session, 'SET TRANSACTION READ ONLY'), '', 'read only from here on');
	is_whole('read-only', $session);
};

# The transaction already has every lock that the write needs, so the commit does not wait.
subtest 'a lock that is in the way' => sub {
	my $session = half_done('locked', q{SET lock_timeout = '100 ms'});
	my $other = session($node);

	ask($other, 'BEGIN');
	foreach my $mode ('SHARE', 'SHARE ROW EXCLUSIVE', 'ACCESS EXCLUSIVE')
	{
		is(ask($other, "LOCK TABLE idempotency.record IN $mode MODE NOWAIT"), '55P03', "$mode comes too late");
		ask($other, $_) foreach 'ROLLBACK', 'BEGIN';
	}
	is(ask($other, 'LOCK TABLE idempotency.record IN ROW EXCLUSIVE MODE NOWAIT'), '', 'claims go on meanwhile');
	is_whole('locked', $session);
	$other->quit;
};

subtest 'REINDEX' => sub {
	my $session = half_done('reindex');
	my $other = session($node);
	my $pid = pid_of($other);

	ask_later($other, 'REINDEX TABLE idempotency.record');
	wait_until_blocked($node, $pid);
	is_whole('reindex', $session);
	is(ask($other), '', 'it waited, and there was no deadlock');
	$other->quit;
};

# A failure at commit also rolls back the other server's half, if the session had loaded the wrapper
# before.
subtest 'the table was changed by the transaction itself' => sub {
	my $session = half_done('changed', 'SELECT count(*) FROM effect');
	my $early = $node->safe_psql('postgres', 'SHOW idempotency.store') eq 'sql';

	ask($session, 'CREATE TRIGGER tried BEFORE INSERT ON idempotency.record FOR EACH ROW EXECUTE FUNCTION keeps()');
	is(ask($session, 'COMMIT'), $early ? '' : '55000', 'refused');
	is(record_state($node, 'changed') . ', ' . effects_of('changed'), $early ? 'in_progress, 1' : 'absent, 0',
		'both halves or none');
	$session->quit;
};

$node->stop;
done_testing();
