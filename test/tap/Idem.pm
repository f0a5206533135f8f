# Helper of the TAP tests, on top of the server's own PostgreSQL::Test::Cluster. A test needs `use Idem;` alone:
# it turns strict, warnings and signatures on, and imports Test::More and the server's modules.
package Idem;

use strict;
use warnings FATAL => 'all';
use feature 'signatures';
no warnings 'experimental::signatures';

use parent qw(Exporter);
use FindBin;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
  new_node add_database invocation call begin_claim record_state wait_until
  session ask ask_later pid_of claim_in outcome_in completion end_backend
  wait_until_gone abandon wait_until_blocked try_to_ask);

sub import
{
	my $test = caller;

	strict->import;
	warnings->import(FATAL => 'all');
	feature->import('signatures');
	warnings->unimport('experimental::signatures');
	eval "package $test; use PostgreSQL::Test::Utils; use Test::More; 1" or die $@;
	__PACKAGE__->export_to_level(1, @_);
	return;
}

# new_node('main', setting => value, ...): a running server with the extension in its database
# "postgres". Two names are not settings: -init, an array of arguments for init(), and -extension =>
# 0, which omits the extension.
sub new_node ($name, %conf)
{
	my $init = delete $conf{-init} // [];
	my $extension = delete $conf{-extension} // 1;

	# Every test runs with each store.
	$conf{'idempotency.store'} //= $ENV{IDEM_STORE} // 'auto';
	# A claim stays alive for as long as a slow test may last, unless it says how long.
	$conf{'idempotency.default_lease'} //= '1h';

	my $node = PostgreSQL::Test::Cluster->new($name);
	# The same under any locale of the caller.
	$node->init(extra => [ '--encoding=UTF8', '--locale=C' ], @$init);
	$node->append_conf('postgresql.conf', "$_ = " . literal($conf{$_})) foreach sort keys %conf;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION idempotency') if $extension;
	return $node;
}

# add_database($node, $name, $schema): a new database with the extension in that schema.
sub add_database ($node, $name, $schema)
{
	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name,
		"CREATE SCHEMA IF NOT EXISTS $schema; CREATE EXTENSION idempotency SCHEMA $schema");
	return;
}

# try_to_ask($conninfo, $query): psql's exit status (2 where the server refuses the connection), its output
# and its errors. The psql of PostgreSQL::Test::Cluster gives the query on standard input, and dies of a broken pipe
# if the program has ended by then.
sub try_to_ask ($conninfo, $query)
{
	my ($output, $errors) = ('', '');

	IPC::Run::run([ 'psql', '-XqAtw', '-d', $conninfo, '-c', $query ],
		'<', '/dev/null', '>', \$output, '2>', \$errors);
	chomp $output;
	return ($? >> 8, $output, $errors);
}

# literal($value): as SQL. undef is NULL, and \'text' stands for itself.
sub literal ($value)
{
	return 'NULL' unless defined $value;
	return $$value if ref $value;
	$value =~ s/'/''/g;
	# The E form reads a backslash the same way under any standard_conforming_strings.
	return $value =~ s/\\/\\\\/gr eq $value ? "'$value'" : "E'" . $value =~ s/\\/\\\\/gr . "'";
}

# invocation('idem_begin', key => 'k', wait => '1s'): the call as SQL, for sessions that a test
# keeps open.
sub invocation ($function, %named)
{
	return "$function("
	  . join(', ', map { "\"$_\" => " . literal($named{$_}) } sort keys %named) . ')';
}

# call($node, 'idem_complete', key => 'k', ...): the result as psql prints it. -database names
# another one than "postgres". An SQL error ends the test.
sub call ($node, $function, %named)
{
	my $database = delete $named{-database} // 'postgres';

	return $node->safe_psql($database, 'SELECT ' . invocation($function, %named));
}

# begin_claim($node, 'k', scope => 's', ...): the fields of the claim as a hash. The transaction
# ends here, so a claim with the outcome "execute" is leased.
sub begin_claim ($node, $key, %named)
{
	my $database = delete $named{-database} // 'postgres';
	my $begin = delete $named{-function} // 'idem_begin';

	my $json = $node->safe_psql($database,
		'SELECT row_to_json(c) FROM ' . invocation($begin, key => $key, %named) . ' AS c');
	return JSON::PP->new->decode($json);
}

# record_state($node, 'k', $database): the record's status as other sessions see it, or "absent".
sub record_state ($node, $key, $database = undef)
{
	return $node->safe_psql($database // 'postgres',
		'SELECT coalesce((SELECT status FROM idempotency.records WHERE key = '
		  . literal($key)
		  . "), 'absent')");
}

# session($node, $database, @psql_options): a psql that stays open, also after an error. Each answer
# may take as long as any other wait of a test, and the session may be open for longer.
sub session ($node, $database = undef, @options)
{
	my $session = $node->background_psql($database // 'postgres',
		on_error_stop => 0, extra_params => \@options);
	$session->set_query_timer_restart;
	$session->query_safe('\set VERBOSITY sqlstate');
	return $session;
}

# ask($session, 'SELECT ...'): the session's answer; of an error, the SQLSTATE alone. Without SQL:
# the answer to ask_later.
sub ask ($session, $sql = undef)
{
	my $answer = $session->query($sql // '');
	my ($sqlstate) = $session->{stderr} =~ /(?:ERROR|FATAL):  (\w{5})$/m;
	$session->{stderr} = '';
	return $sqlstate // $answer;
}

# ask_later($session, 'SELECT ...'): sends SQL that will have to wait, and returns at once.
sub ask_later ($session, $sql)
{
	$session->query_until(qr/sent\n/, "\\echo sent\n$sql;\n");
	return;
}

sub pid_of ($session)
{
	return ask($session, 'SELECT pg_backend_pid()');
}

# claim_in($session, 'k', ...): outcome, attempt and token, or the SQLSTATE of an error.
sub claim_in ($session, $key, %named)
{
	return split /\|/, ask($session,
		'SELECT outcome, attempt, token FROM ' . invocation('idem_begin', key => $key, %named));
}

sub outcome_in
{
	my ($outcome) = claim_in(@_);
	return $outcome;
}

# completion('k', $token): SQL that ends a claim with status 201 and the body "done". Without a
# token it is for the transaction that began the claim.
sub completion ($key, $token = undef)
{
	return 'SELECT '
	  . invocation('idem_complete', key => $key, token => $token, status_code => 201,
		body => \"'done'::text");
}

# end_backend($node, $pid): as a lost connection would, and waits until the backend is gone.
sub end_backend ($node, $pid)
{
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_until_gone($node, $pid);
	return;
}

sub wait_until_gone ($node, $pid)
{
	$node->poll_query_until('postgres',
		"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)")
	  or die "backend $pid does not end";
	return;
}

# abandon($session): instead of quit, for a psql that may have ended already, because it was waiting
# for an answer when its server went away.
sub abandon ($session)
{
	$session->{run}->finish;
	return;
}

# wait_until_blocked($node, $pid): until that backend waits for another session's lock.
sub wait_until_blocked ($node, $pid)
{
	$node->poll_query_until('postgres', "SELECT cardinality(pg_blocking_pids($pid)) > 0")
	  or die "backend $pid does not wait";
	return;
}

# wait_until { condition } 'the event': ends the test if the condition does not come true in time.
sub wait_until :prototype(&$) ($condition, $what)
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	until ($condition->())
	{
		die "timed out waiting for $what" if time > $end;
		sleep 0.05;
	}
	return;
}

1;
