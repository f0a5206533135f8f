# docs/scaling/move_database for a large database: the new server follows the old one by logical
# replication, and the fence is closed for the last changes alone.
use IPC::Run ();
use Idem;
use Moving;

my ($old, $new) = two_servers(wal_level => 'logical', max_wal_senders => 5, wal_retrieve_retry_interval => '100ms');
my %token;

sub succeeds (@steps)
{
	my ($status, $output) = move($old, $new, @steps);
	is($status, 0, "@steps") or diag($output);
	return;
}

sub begin_on ($node, $key)
{
	return begin_claim($node, $key, -database => 'acme', principal => 'acme', lease => '1 hour');
}

sub complete_on ($node, $key)
{
	return call($node, 'idem_complete', -database => 'acme', key => $key, principal => 'acme', token => $token{$key});
}

sub content ($node, $database)
{
	return $node->safe_psql($database, q{
		SELECT r::text FROM idempotency.record r UNION ALL SELECT p::text FROM idempotency.policy p
		UNION ALL SELECT a::text FROM idempotency.audit a UNION ALL SELECT s::text FROM idempotency.seed s
		UNION ALL SELECT p::text FROM payment p ORDER BY 1});
}

sub pay ($node, $key)
{
	return $node->safe_psql('acme', qq{
		BEGIN;
		SELECT outcome FROM idem_begin('$key', principal => 'acme');
		SELECT idem_complete('$key', principal => 'acme') WHERE NOT EXISTS (SELECT FROM payment WHERE key = '$key');
		INSERT INTO payment (key) SELECT '$key' WHERE NOT EXISTS (SELECT FROM payment WHERE key = '$key');
		COMMIT}) =~ s/\n.*//sr;
}

$old->safe_psql('acme', q{
	ALTER TABLE payment ADD number integer GENERATED ALWAYS AS IDENTITY;
	CREATE SEQUENCE unused;
	CREATE SEQUENCE restarted;
	ALTER SEQUENCE restarted RESTART 1000;
	SELECT idem_policy_set('kept', retention => '7 days')});
is(pay($old, 'before'), 'execute', 'before');
$token{$_} = begin_on($old, $_)->{token} foreach qw(before-and-after open);

succeeds('follow');
is(pay($old, 'meanwhile'), 'execute', 'the tenant is served meanwhile');
is(complete_on($old, 'before-and-after'), 't', 'results change records');

subtest 'back again' => sub {
	succeeds('back');
	is(pay($old, 'after back'), 'execute', 'served');
	is(names_on($new), 'none', 'the copy has gone');
	is($old->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', 'and the slot');
};

my ($status, $output) = move($old, $new, 'catch_up');
is($status, 1, 'catch_up before close is refused');
succeeds('follow');

subtest 'a name that differs in case alone has the same slot' => sub {
	$old->safe_psql('postgres', 'CREATE DATABASE "ACME"');
	$old->safe_psql('ACME', 'CREATE EXTENSION idempotency');
	my $printed = '';
	foreach my $time ('first', 'second')
	{
		ok(!IPC::Run::run([ mover_of('ACME', $old, $new, 'follow') ], '>&', \$printed), "refused the $time time");
		is($old->safe_psql('postgres', 'SELECT database FROM pg_replication_slots'), 'acme', 'it is still the slot of the other');
	}
	like($printed, qr/replication slot "moving_acme" already exists/, 'says why') or diag($printed);
	$old->safe_psql('postgres', 'DROP DATABASE "ACME"');
};

# The new server can't follow for a while.
my $gate = session($new, 'acme_arriving');
ask($gate, 'BEGIN');
is(ask($gate, 'LOCK TABLE payment'), '', 'a table is locked at the new place');
is(pay($old, 'last'), 'execute', 'the last one at the old place');
succeeds('close');
($status, $output) = move($old, $new, 'open');
like($output, qr/NEW has no database acme_arrived/, 'open before catch_up is refused');

subtest 'catch_up waits for the last change' => sub {
	my $printed = '';
	my $mover = IPC::Run::start([ mover($old, $new, 'catch_up') ], '>&', \$printed);
	wait_until {
		my $asked = () = slurp_file($old->logfile) =~ /statement: SELECT confirmed_flush_lsn >= /g;
		$asked > 1 || !eval { $mover->pump_nb; $mover->pumpable };
	}
	'catch_up to ask again';
	is(names_on($new), 'acme_arriving', 'the copy has not arrived');
	ask($gate, 'COMMIT');
	$gate->quit;
	ok($mover->finish, 'then it arrives') or diag($printed);
	is(names_on($new), 'acme_arrived', 'complete');
};
succeeds('open');
is(content($new, 'acme'), content($old, 'acme_leaving'), 'everything arrived');
is(pay($new, $_), 'replay', "$_: the first answer") foreach 'before', 'meanwhile', 'after back', 'last';
is(begin_on($new, 'before-and-after')->{outcome}, 'replay', 'a result');
is(complete_on($new, 'open'), 't', 'a lease ends by its token');
is(pay($new, 'new'), 'execute', 'a new request');
is($new->safe_psql('acme', 'SELECT max(number), count(*) FROM payment'), '5|5', 'numbers go on');
is($new->safe_psql('acme', q{SELECT nextval('unused'), nextval('restarted')}), '1|1000', 'also where none was drawn');
is($old->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', 'no slot is left');
is($new->safe_psql('acme', 'SELECT count(*) FROM pg_publication'), '0', 'and no publication');
succeeds('drop');

# As after a crash of catch_up. Updates of a table without a replica identity fail where it is published.
subtest 'a copy instead of catch_up' => sub {
	($old, $new) = ($new, $old);
	succeeds('follow');
	succeeds('close');
	succeeds('copy');
	succeeds('open');
	is(pay($new, 'last'), 'replay', 'the first answer');
	is($new->safe_psql('acme', 'SELECT count(*) FROM pg_publication'), '0', 'no publication is left');
	is($old->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', 'and no slot');
};

$_->stop foreach $old, $new;
done_testing();
