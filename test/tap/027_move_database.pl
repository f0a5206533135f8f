# docs/scaling/servers.md: a database moves to another server by docs/scaling/move_database. Whatever is
# under way there, nothing takes effect on both, and no step is possible before the one before it.
use FindBin;
use MIME::Base64 qw(encode_base64);
use Idem;
use Moving;

my $keys = PostgreSQL::Test::Utils::tempdir('keys') . '/keys';
append_to_file($keys, 'a ' . encode_base64('a' x 32, '') . " current\n");
chmod 0600, $keys;
my $dumps = PostgreSQL::Test::Utils::tempdir('dumps');
my ($old, $new) = two_servers();
my %token;

sub begin_on ($node, $key, %named)
{
	return begin_claim($node, $key, -database => 'acme', principal => 'acme', %named);
}

# The outcome at the new home.
sub outcome_on_new ($key, %named)
{
	return begin_on($new, $key, %named)->{outcome};
}

sub fails ($old, $new, $steps, $pattern, $what)
{
	my ($status, $output) = move($old, $new, @$steps);
	is($status, 1, "$what: refused");
	like($output, $pattern, "$what: says why");
	return;
}

sub succeeds ($old, $new, @steps)
{
	my ($status, $output) = move($old, $new, @steps);
	is($status, 0, "@steps") or diag($output);
	return;
}

# The SQL that docs/scaling/servers.md has below a mark.
sub shown ($mark)
{
	my ($sql) = slurp_file("$FindBin::RealBin/../../docs/scaling/servers.md") =~ /^<!-- $mark -->\n```sql\n(.*?)^```$/ms;
	return $sql;
}

sub refused_on ($node, $what)
{
	my ($status, undef, $error) = try_to_ask($node->connstr('acme'), 'SELECT 1');
	is($status, 2, "$what: refused");
	like($error, qr/database "acme" does not exist/, "$what: there is no such database");
	return;
}

subtest 'words that are no step' => sub {
	my ($status, $output) = move($old, $new);
	is($status, 2, 'no step');
	like($output, qr/^Usage:/, 'shows how to use it');
	fails($old, $new, ['clsoe'], qr/no step 'clsoe'/, 'a typo');
	is(names_on($old), 'acme', 'nothing happened');
};

subtest 'no step before the one before it' => sub {
	fails($old, $new, ['copy'], qr/OLD has no database acme_leaving: close comes first/, 'a dump in a hurry');
	fails($old, $new, ['open'], qr/OLD has a database acme: close comes first/, 'open');
	fails($old, $new, ['drop'], qr/NEW has no database acme: open comes first/, 'drop');
	fails($new, $old, ['close'], qr/NEW has a database acme/, 'the servers the wrong way round');
	fails($new, $old, ['back'], qr/OLD has no database acme or acme_leaving/, 'back the wrong way round');
	is(names_on($old) . ', ' . names_on($new), 'acme, none', 'nothing happened');
};

# Everything that may be under way.
$old->append_conf('postgresql.conf', "idempotency.encryption_key_file = '$keys'");
$old->reload;
$old->safe_psql('postgres', q{ALTER DATABASE acme SET idempotency.default_ttl = '2d'});
$old->safe_psql('acme', q{
	SELECT idem_policy_set('sealed', encrypt => true);
	SELECT idem_policy_set('derived', on_missing_key => 'derive', derive_window => '1 day');
	SELECT idem_policy_set('short', abandon_after => '1 ms', on_abandon => 'fail')});
$token{leased} = begin_on($old, 'leased', lease => '1 hour')->{token};
$token{late} = begin_on($old, 'late', lease => '1 ms')->{token};
$token{unknown} = begin_on($old, 'unknown', lease => '1 hour')->{token};
call($old, 'idem_unknown', -database => 'acme', key => 'unknown', principal => 'acme', token => $token{unknown});
foreach my $scope (qw(sealed derived))
{
	my $key = $scope eq 'sealed' ? 'sealed' : undef;
	my $claim = begin_on($old, $key, scope => $scope, request => \q('{"cup": 1}'::jsonb));
	call($old, 'idem_complete', -database => 'acme', key => $claim->{key}, scope => $scope, principal => 'acme',
		token => $claim->{token}, status_code => 201, body => \q('done'::text));
}
my $holder = session($old, 'acme');
is(outcome_in($holder, 'held', principal => 'acme', lease => '1 hour', hold => 't'), 'execute', 'a claim with hold');

subtest 'a prepared transaction' => sub {
	$old->safe_psql('acme', q{
		BEGIN;
		SELECT outcome FROM idem_begin('prepared', principal => 'acme');
		INSERT INTO payment (key) VALUES ('prepared');
		SELECT idem_complete('prepared', principal => 'acme');
		PREPARE TRANSACTION 'p'});
	fails($old, $new, ['close'], qr/is being accessed by other users.*prepared transaction.*acme is in use/s, 'close');
	is($old->safe_psql('acme', 'SELECT 1'), '1', 'the database is open again');
	$old->safe_psql('acme', q{COMMIT PREPARED 'p'});
};

my $open = session($old, 'acme');
ask($open, 'BEGIN');
is(outcome_in($open, 'open', principal => 'acme'), 'execute', 'a claim in an open transaction');
is(ask($open, q{INSERT INTO payment (key) VALUES ('open')}), '', 'with its effect');

succeeds($old, $new, 'close');
refused_on($old, 'a client with an old routing table');
is(names_on($old), 'acme_leaving', 'the database has another name');
abandon($_) foreach $open, $holder;
succeeds($old, $new, 'close');

subtest 'back again' => sub {
	fails($old, $new, ['open'], qr/NEW has no database acme_arrived: copy comes first/, 'open');
	succeeds($old, $new, 'back');
	is(begin_on($old, 'leased')->{outcome}, 'in_progress', 'the old server has it');
	succeeds($old, $new, 'close');
};

subtest 'the new server is lost' => sub {
	$new->stop;
	fails($old, $new, ['back'], qr/no answer from/, 'back');
	$old->safe_psql('postgres', $_) foreach split /\n/, shown('lost');
	is(begin_on($old, 'leased')->{outcome}, 'in_progress', 'the old server has it');
	$new->start;
	succeeds($old, $new, 'close');
};

subtest 'keys of encryption' => sub {
	fails($old, $new, ['copy'], qr/NEW cannot decrypt 1 records: give it the keys of OLD/, 'a server without them');
	fails($old, $new, ['open'], qr/NEW has no database acme_arrived/, 'open');
	$new->append_conf('postgresql.conf', "idempotency.encryption_key_file = '$keys'");
	$new->reload;
};

succeeds($old, $new, 'copy');
is(names_on($new), 'acme_arrived', 'the copy is complete');
refused_on($_, 'between the servers') foreach $old, $new;
$old->safe_psql('postgres', 'ALTER DATABASE acme_leaving RENAME TO acme');
succeeds($old, $new, 'close');
is(names_on($new), 'none', 'a copy of an earlier move is never opened');
succeeds($old, $new, 'copy', 'back');
is(names_on($new), 'none', 'back drops the copy');
succeeds($old, $new, 'close', 'copy', 'open');
fails($old, $new, ['back'], qr/NEW has a database acme: it has moved/, 'back after the move');
fails($old, $new, ['copy'], qr/NEW has a database acme/, 'copy after the move');
refused_on($old, 'a worker that completes at its old place');
succeeds($old, $new, 'open');

# With the wrong server, two could have the database.
subtest 'another new server than that of close' => sub {
	my $other = new_node('other', -extension => 0);
	my $for_another = qr/NEW is not the server that OLD has closed acme_leaving for/;
	fails($old, $other, [$_], $for_another, $_) foreach qw(close copy catch_up open back);
	add_database($other, 'acme', 'public');
	fails($old, $other, [$_], $for_another, "$_ beside another database of the name") foreach qw(open drop);
	is(names_on($old) . ', ' . names_on($new), 'acme_leaving, acme', 'nothing happened');
	is($new->safe_psql('acme', 'SELECT count(*) FROM pg_db_role_setting WHERE setconfig::text LIKE \'%moving%\''), '0',
		'the note stays at the old place');
	$other->stop;
};

subtest 'at the new place' => sub {
	is(outcome_on_new('leased'), 'in_progress', 'a lease lives on');
	is(call($new, 'idem_complete', -database => 'acme', key => 'leased', principal => 'acme',
			token => $token{leased}), 't', 'and ends by its token');
	is(call($new, 'idem_complete', -database => 'acme', key => 'late', principal => 'acme',
			token => $token{late}), 't', 'a late result is recorded');
	is(outcome_on_new('unknown'), 'unknown', 'an unknown outcome stays unknown');
	is(outcome_on_new('sealed', scope => 'sealed', request => \q('{"cup": 1}'::jsonb)), 'replay', 'encrypted');
	is(outcome_on_new(undef, scope => 'derived', request => \q('{"cup": 1}'::jsonb)), 'replay', 'a derived key');
	is(outcome_on_new('prepared'), 'replay', 'what was prepared');
	is(begin_on($new, 'held')->{attempt}, 2, 'a claim with hold lapsed with its session');
	is(outcome_on_new('open'), 'execute', 'an open transaction was rolled back');
	is($new->safe_psql('acme', q{SELECT string_agg(key, ' ') FROM payment}), 'prepared', 'with its effect');
	is($new->safe_psql('acme', 'SHOW idempotency.default_ttl'), '2d', 'settings of the database came along');
	is($new->safe_psql('acme', 'SELECT count(*) FROM idempotency.policies'), '3', 'and policies');
};

# The reason for the fence.
subtest 'without the fence' => sub {
	$old->safe_psql('postgres', 'CREATE DATABASE zeta TEMPLATE acme_leaving');
	my $pay = q{
		BEGIN;
		INSERT INTO payment (key) SELECT 'one' FROM idem_begin('one', principal => 'zeta') WHERE outcome = 'execute';
		SELECT idem_complete('one', principal => 'zeta');
		COMMIT};
	my $dump = "$dumps/zeta";
	$old->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', 'zeta' ], 'a dump of an open database');
	$old->safe_psql('zeta', $pay);
	$new->safe_psql('postgres', 'CREATE DATABASE zeta');
	$new->command_ok([ 'pg_restore', '-d', 'zeta', $dump ], 'restored');
	$new->safe_psql('zeta', $pay);
	is(join(' ', map { $_->safe_psql('zeta', q{SELECT count(*) FROM payment WHERE key = 'one'}) } $old, $new),
		'1 1', 'the request took effect on both servers');
};

subtest 'there and back' => sub {
	fails($new, $old, ['close'], qr/NEW has a database acme_leaving of an earlier move: drop it/, 'what was left');
	is($new->safe_psql('acme', 'SELECT 1'), '1', 'the tenant is served');
	succeeds($old, $new, 'drop');
	succeeds($new, $old, 'close', 'copy', 'open', 'drop');
	is(names_on($old) . ', ' . names_on($new), 'acme, none', 'home');
	is(begin_on($old, 'leased')->{outcome}, 'replay', 'with all records');
};

subtest 'the edition without C' => sub {
	my $pay = q{
		BEGIN;
		SELECT outcome FROM idem_begin('k', principal => 'm');
		SELECT idem_complete('k', principal => 'm') WHERE NOT EXISTS (SELECT FROM payment);
		INSERT INTO payment SELECT 1 WHERE NOT EXISTS (SELECT FROM payment);
		COMMIT};
	$old->safe_psql('postgres', 'CREATE DATABASE managed');
	$old->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', 'managed', '-f',
			"$FindBin::RealBin/../../managed/idempotency.sql" ], 'installed');
	$old->safe_psql('managed', 'CREATE TABLE payment (amount integer)');
	like($old->safe_psql('managed', $pay), qr/^execute$/m, 'a payment');
	$old->command_ok([ mover_of('managed', $old, $new, 'close', 'copy', 'open') ], 'moved');
	like($new->safe_psql('managed', $pay), qr/^replay$/m, 'the first answer at the new place');
};

# As the page shows it, on the server without "acme".
subtest 'a database is split' => sub {
	my $pay = sub ($tenant, $database) {
		return $new->safe_psql($database, qq{
			BEGIN;
			SELECT outcome FROM idem_begin('k', principal => '$tenant');
			SELECT idem_complete('k', principal => '$tenant') WHERE NOT EXISTS (SELECT FROM payment WHERE tenant = '$tenant');
			INSERT INTO payment SELECT '$tenant' WHERE NOT EXISTS (SELECT FROM payment WHERE tenant = '$tenant');
			COMMIT}) =~ s/\n.*//sr;
	};

	add_database($new, 'shard1', 'public');
	$new->safe_psql('shard1', 'CREATE TABLE payment (tenant text)');
	is($pay->($_, 'shard1'), 'execute', "a payment of $_") foreach qw(acme zeta);
	$new->command_ok([ mover_of('shard1', $new, $old, 'close') ], 'closed');
	append_to_file("$dumps/split.sql", shown('split'));
	$new->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', 'postgres', '-f', "$dumps/split.sql" ], 'split');
	is($pay->('acme', 'acme'), 'replay', 'the tenant at its new place');
	is($pay->('zeta', 'shard1b'), 'replay', 'the rest at theirs');
	is($new->safe_psql($_, q{SELECT string_agg(tenant, ' ') || ', ' || (SELECT string_agg(principal, ' ') FROM idempotency.record) FROM payment}),
		$_ eq 'acme' ? 'acme, acme' : 'zeta, zeta', "$_ has its own alone")
	  foreach qw(acme shard1b);
	is((try_to_ask($new->connstr('shard1'), 'SELECT 1'))[0], 2, 'and the old name leads nowhere');
};

$_->stop foreach $old, $new;
done_testing();
