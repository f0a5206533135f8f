# docs/scaling/servers.md: with PAUSE and RESUME of PgBouncer around docs/scaling/move_database, a client
# waits and sees no error. A pooler that was left out reaches no database, until it has the new address.
use IO::Socket::UNIX;
use IPC::Run;
use Idem;
use Moving;

# Debian installs it in a folder that only root's PATH has.
my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'pgbouncer is not installed' unless $pgbouncer;

my ($old, $new) = two_servers();
my $user = getpwuid($<);
my %poolers;

sub write_config ($pooler, $home)
{
	my $folder = $pooler->{folder};
	unlink "$folder/pgbouncer.ini";
	append_to_file("$folder/pgbouncer.ini", join "\n",
		'[databases]',
		'acme = host=' . $home->host . ' port=' . $home->port . ' dbname=acme',
		'[pgbouncer]',
		'listen_addr =',
		"listen_port = $pooler->{port}",
		"unix_socket_dir = $folder",
		'auth_type = trust',
		"auth_file = $folder/users",
		"admin_users = $user",
		'pool_mode = transaction',
		'server_login_retry = 1',
		'');
	return;
}

sub start_pooler ($name)
{
	my $pooler = { folder => PostgreSQL::Test::Utils::tempdir_short(), port => PostgreSQL::Test::Cluster::get_free_port() };
	append_to_file("$pooler->{folder}/users", qq("$user" ""\n));
	write_config($pooler, $old);
	$pooler->{run} = IPC::Run::start [ $pgbouncer, "$pooler->{folder}/pgbouncer.ini" ], '>&', \$pooler->{log};
	wait_until { IO::Socket::UNIX->new("$pooler->{folder}/.s.PGSQL.$pooler->{port}") } 'the pooler to listen';
	$poolers{$name} = $pooler;
	return $pooler;
}

sub address ($pooler, $database)
{
	return "host=$pooler->{folder} port=$pooler->{port} user=$user dbname=$database";
}

sub console ($pooler, $command)
{
	my $output = '';
	IPC::Run::run([ 'psql', '-Xq', '-d', address($pooler, 'pgbouncer'), '-c', $command ], '>&', \$output);
	is($?, 0, $command) or diag($output);
	return;
}

# By a connection of its own: newer poolers end those that have waited in vain.
sub asked_through ($pooler, $query)
{
	my (undef, $answer, $errors) = try_to_ask(address($pooler, 'acme'), $query);
	return $errors . $answer;
}

my $served = start_pooler('served');
my $left_out = start_pooler('left out');
my $client = session($old, 'postgres', '-d', address($served, 'acme'));
my $other = session($old, 'postgres', '-d', address($left_out, 'acme'));

is(outcome_in($client, 'first', principal => 'acme'), 'execute', 'a lease, taken at the old place');
is(outcome_in($other, 'first', principal => 'acme'), 'in_progress', 'known through the other pooler');
ask($client, 'BEGIN');
is(outcome_in($client, 'second', principal => 'acme'), 'execute', 'an open transaction');

subtest 'the move' => sub {
	my $output = '';
	my $pause = IPC::Run::start([ 'psql', '-Xq', '-d', address($served, 'pgbouncer'), '-c', 'PAUSE acme' ], '>&', \$output);
	is(ask($client, q{SELECT idem_complete('second', principal => 'acme')}), 't', 'PAUSE lets the transaction end');
	is(ask($client, 'COMMIT'), '', 'committed');
	ok($pause->finish, 'then the pooler is paused') or diag($output);
	ask_later($client, q{SELECT outcome FROM idem_begin('second', principal => 'acme')});
	my ($status, $printed) = move($old, $new, 'close', 'copy', 'open');
	is($status, 0, 'the move') or diag($printed);
	write_config($served, $new);
	console($served, 'RELOAD');
	console($served, 'RESUME acme');
	is(ask($client), 'replay', 'a request that waited is answered at the new place');
	is(outcome_in($client, 'first', principal => 'acme'), 'in_progress', 'the lease lives there');
};

subtest 'the pooler that was left out' => sub {
	ask_later($other, q{SELECT outcome FROM idem_begin('third', principal => 'acme')});
	$old->wait_for_log(qr/FATAL: .*database "acme" does not exist/);
	is(begin_claim($new, 'third', -database => 'acme', principal => 'acme')->{outcome}, 'execute',
		'the old server refuses its connections, and executes nothing');
	write_config($left_out, $new);
	console($left_out, 'RELOAD');
	my $again = q{SELECT outcome FROM idem_begin('third', principal => 'acme')};
	wait_until { asked_through($left_out, $again) eq 'in_progress' } 'the pooler has the new address';
	is(asked_through($left_out, $again), 'in_progress', 'with the new address, a client gets to the new place');
};

abandon($_) foreach $client, $other;
$_->stop foreach $old, $new;
done_testing();

# Also after a failure. From 1.23 on, TERM lets clients end first; a job in the background of a shell ignores QUIT.
END
{
	my $exit_code = $?;

	foreach my $pooler (values %poolers)
	{
		$pooler->{run}->signal('KILL');
		eval { $pooler->{run}->finish };
		print "### a pooler's log\n", $pooler->{log} // '';
	}
	$? = $exit_code;
}
