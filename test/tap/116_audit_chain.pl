# The chain of the audit: sweepers link what is committed, however many sessions decide, and log the
# newest link. A superuser who makes the chain anew differs from the log. A dump keeps the chain.
use Idem;
use Sweeping;

my $node = sweeping_node('main', max_prepared_transactions => 1, wal_level => 'logical', max_replication_slots => 2);
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('decisions', 'test_decoding')});
my $chain = q{SELECT number || ':' || encode(link, 'hex') FROM idempotency.audit_chain};
my $faults = q{SELECT number, rows, problem FROM idem_audit_verify()};

sub decide ($key)
{
	$node->safe_psql('postgres', "SELECT idem_begin('$key', lease => '1 hour')");
	return $node->safe_psql('postgres', "SELECT idem_resolve('$key', 'fail', reason => '$key')");
}

sub is_linked ($count, $why)
{
	ok($node->poll_query_until('postgres',
			"SELECT count(*) FILTER (WHERE number IS NOT NULL) = $count FROM idempotency.audit"), $why);
	return;
}

# The link of the last line, as soon as it is that of the newest row.
sub logged_link
{
	my $link;

	wait_until
	{
		($link) = map { /audit=(\S+)/ } reverse log_since($node, 0, qr/ LOG:  idempotency: audit=/);
		defined $link && $link eq $node->safe_psql('postgres', $chain)
	}
	'the newest link in the log';
	return $link;
}

# ---- decisions are linked and logged ----

decide($_) foreach qw(a b);
is_linked(2, 'a sweeper links decisions');
my $link = logged_link();
like($link, qr/^2:[0-9a-f]{64}$/, 'and logs the newest link');
is($node->safe_psql('postgres', $faults), '', 'the chain is whole');

# Sweepers commit without waiting for the disk, but not links: the log must not be ahead.
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT count(*) FROM idem_audit_verify('$link')"),
	0, 'a logged link survives a crash');

# ---- an open transaction holds no other up ----

my $slow = session($node);
ask($slow, 'BEGIN');
ask($slow, q{SELECT idem_policy_set('slow', max_attempts => 3)});
$node->safe_psql('postgres',
	q{BEGIN; SELECT idem_grant('pg_monitor', reason => 'prepared'); PREPARE TRANSACTION 'p'});
decide('c');
is_linked(3, 'a decision is linked before one that began earlier');
ask($slow, 'COMMIT');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
is_linked(5, 'which follows when it is committed');
logged_link();
is($node->safe_psql('postgres', $faults), '', 'the chain is whole');
is($node->safe_psql('postgres', "SELECT count(*) FROM idem_audit_verify('$link')"),
	0, 'an older line of the log fits');

# ---- many sessions decide, link, erase and age at the same time ----

my $script = $node->basedir . '/decide.sql';
append_to_file($script, q{
\set n random(1, 1000000000)
\set p random(1, 20)
SELECT idem_begin('k:n', scope => 'many', principal => 'p:p', lease => '1 hour');
BEGIN;
SELECT idem_resolve('k:n', 'fail', 'many', 'p:p', reason => 'many');
\if :p > 15
ROLLBACK;
\else
COMMIT;
\endif
\if :p < 3
SELECT idem_erase_decisions('p:p');
\elif :p < 6
SELECT idem_cleanup(100);
\endif
});
$node->append_conf('postgresql.conf', "idempotency.audit_retention = '1s'");
$node->reload;
$node->command_ok([ 'pgbench', '-n', '-f', $script, '-c', '8', '-t', '60', 'postgres' ],
	'many sessions decide');
# By then the first decisions are older than a second.
ok($node->poll_query_until('postgres', 'SELECT anchor_number >= 5 FROM idempotency.audit_chain'),
	'the oldest ones go');
configure($node, 'idempotency.audit_retention' => '365d');
decide('last');
ok($node->poll_query_until('postgres',
		'SELECT NOT EXISTS (SELECT FROM idempotency.audit WHERE number IS NULL)'), 'all are linked');
is($node->safe_psql('postgres', $faults), '', 'the chain is whole');
cmp_ok($node->safe_psql('postgres', 'SELECT anchor_number FROM idempotency.audit_chain'),
	'>=', 5, 'and begins with an anchor');
$link = logged_link();

# ---- a dump keeps it ----

my $dump = $node->basedir . '/dump.sql';
configure($node, 'idempotency.cleanup_interval' => 0);
decide('unlinked');
$node->command_ok([ 'pg_dump', '--file', $dump, 'postgres' ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', 'copy', '-f', $dump ], 'restore');
is($node->safe_psql('copy', $faults), '', 'the chain is whole in the restored database');
is($node->safe_psql('copy', "SELECT count(*) FROM idem_audit_verify('$link')"), 0, 'with the same links');
$node->safe_psql('copy', 'SELECT idem_cleanup()');
is($node->safe_psql('copy', $faults), '', 'and goes on');
is( $node->safe_psql('copy',
		"SELECT number - split_part('$link', ':', 1)::bigint FROM idempotency.audit_chain ORDER BY number DESC LIMIT 1"),
	1, 'with the next number');
# Between the tables of a restore nothing is linked.
$node->safe_psql('copy', q{DELETE FROM idempotency.audit_chain; INSERT INTO idempotency.audit_chain DEFAULT VALUES;
	INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as) VALUES (now(), 'forget', 'me', 'me');
	SELECT idem_cleanup()});
is($node->safe_psql('copy', 'SELECT count(*) FROM idempotency.audit WHERE number IS NULL'),
	1, 'nothing is linked while the state of the chain is missing');

# ---- a superuser makes the chain anew ----

$node->safe_psql('postgres', 'SELECT idem_cleanup()');
$node->safe_psql('postgres', q{
	DELETE FROM idempotency.audit WHERE reason = 'last';
	UPDATE idempotency.audit SET number = NULL;
	UPDATE idempotency.audit_chain SET number = anchor_number, link = anchor_link;
	SELECT idem_cleanup(); SELECT idem_cleanup()});
is($node->safe_psql('postgres', $faults), '', 'the chain is valid in itself');
like($node->safe_psql('postgres', "SELECT problem FROM idem_audit_verify('$link')"),
	qr/^changed$/, 'but differs from the log');

# Logical decoding has it, too: the row that was removed, with its reason.
like($node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_peek_changes('decisions', NULL, NULL)}),
	qr/^table idempotency\.audit: DELETE: .* reason\[text\]:'last'/m, 'logical decoding shows the removed row');

# ---- the setting ----

my $size = log_size($node);
$node->append_conf('postgresql.conf', 'idempotency.log_audit = off');
configure($node, 'idempotency.log_audit' => 'off', 'idempotency.cleanup_interval' => '1s');
decide('quiet');
ok($node->poll_query_until('postgres',
		'SELECT NOT EXISTS (SELECT FROM idempotency.audit WHERE number IS NULL)'), 'linked');
is(scalar log_since($node, $size, qr/idempotency: audit=/), 0, 'nothing is logged with log_audit off');

done_testing();
