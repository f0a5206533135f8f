# Behind a pooler in transaction mode each transaction may run on another server connection. Claims
# work there, because all their state is in the record and the token.
use IO::Socket::UNIX;
use IPC::Run;
use Idem;

# Debian installs it in a folder that only root's PATH has.
my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'pgbouncer is not installed' unless $pgbouncer;

# The pooler's Unix socket and files; it listens nowhere else.
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $user = getpwuid($<);
my $node = new_node('main');
my ($pooler, $pooler_log) = (undef, '');

sub start_pooler
{
	append_to_file("$folder/users", qq("$user" ""\n));
	append_to_file("$folder/pgbouncer.ini", join "\n",
		'[databases]',
		'postgres = host=' . $node->host . ' port=' . $node->port . ' dbname=postgres',
		'[pgbouncer]',
		'listen_addr =',
		"listen_port = $port",
		"unix_socket_dir = $folder",
		'auth_type = trust',
		"auth_file = $folder/users",
		'pool_mode = transaction',
		'default_pool_size = 4',
		'');
	$pooler = IPC::Run::start [ $pgbouncer, "$folder/pgbouncer.ini" ], '>&', \$pooler_log;
	wait_until { IO::Socket::UNIX->new("$folder/.s.PGSQL.$port") } 'the pooler to listen';
	return;
}

# The last -d counts.
sub pooled_session
{
	return session($node, 'postgres', '-d', "host=$folder port=$port dbname=postgres user=$user");
}

# The server connection that runs the transaction.
sub server_of ($session)
{
	return ask($session, 'SELECT pg_backend_pid()');
}

# Runs code while another client occupies the most recently used server connection, which the pooler
# prefers.
sub on_another_server ($code)
{
	my $client = pooled_session();
	ask($client, 'BEGIN');
	my $busy = server_of($client);
	$code->($busy);
	ask($client, 'COMMIT');
	$client->quit;
	return;
}

start_pooler();
my $client = pooled_session();

ask($client, 'BEGIN');
my $first = server_of($client);
my ($outcome, undef, $token) = claim_in($client, 'moves', holder => 'client');
is($outcome, 'execute', 'begun on one server connection');
ask($client, 'COMMIT');

on_another_server(sub {
	my ($busy) = @_;

	is($busy, $first, 'which another client uses now');
	ask($client, 'BEGIN');
	isnt(server_of($client), $first, 'so the claim goes on on another one');
	is(outcome_in($client, 'moves'), 'in_progress', 'where it is known');
	like(ask($client, 'SELECT ' . invocation('idem_extend', key => 'moves', token => $token)),
		qr/^\d{4}-/, 'and extended');
	is(ask($client, completion('moves', $token)), 't', 'and completed by its token');
	is(ask($client, 'COMMIT'), '', 'and committed');
});

on_another_server(sub {
	is(ask($client, completion('moves', $token)), 'f', 'a repeated completion is harmless');
	is(ask($client, q{SELECT outcome, convert_from(body, 'UTF8') FROM idem_begin('moves')}),
		'replay|done', 'the answer is replayed on any connection');
});

# Two clients take turns on one server connection, which keeps no state of either.
ask($client, 'BEGIN');
my $shared = server_of($client);
is(outcome_in($client, 'one-go'), 'execute', 'begun');
is(ask($client, completion('one-go')), 't', 'and completed in one transaction, without a token');
ask($client, 'COMMIT');
my $next = pooled_session();
ask($next, 'BEGIN');
is(server_of($next), $shared, 'the next client has the same server connection');
is(ask($next, completion('one-go')), '22004', 'and needs the token');
ask($next, 'ROLLBACK');
is(outcome_in($next, 'one-go'), 'replay', 'it gets the answer');

# A client disconnects inside its transaction. The pooler closes that server connection.
ask($client, 'BEGIN');
my $lost = server_of($client);
is(outcome_in($client, 'lost'), 'execute', 'begun by a client that goes away');
is(outcome_in($next, 'lost'), 'in_progress', 'in progress until then');
$client->quit;
wait_until {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $lost") eq '0';
} 'the server connection to be closed';
is(join(', ', (claim_in($next, 'lost'))[0, 1]), 'execute, 1', 'the key is free immediately');
$next->quit;

$node->stop;
done_testing();

# Also after a failure.
END
{
	my $exit_code = $?;

	if ($pooler)
	{
		$pooler->signal('TERM');
		eval { $pooler->finish };
		print "### the pooler's log\n$pooler_log";
	}
	$? = $exit_code;
}
