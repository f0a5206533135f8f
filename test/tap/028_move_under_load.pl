# docs/scaling/move_database while clients pay, by a copy and back by following: servers and the mover are
# killed at each step, the move is given up once, and every client goes on with an old routing table until it gets an error. Some requests
# are sent to the wrong server on purpose. Each key takes effect exactly once, on one server.
use IPC::Run ();
use POSIX ();
use Idem;
use Moving;

# The database moves as a whole, whatever store wrote it: one is enough for a test of two minutes.
plan skip_all => 'runs with the heap store' if ($ENV{IDEM_STORE} // '') eq 'sql';

my ($old, $new) = two_servers(wal_level => 'logical', max_wal_senders => 5, wal_retrieve_retry_interval => '100ms');
my @servers = ($old, $new);
my $folder = PostgreSQL::Test::Utils::tempdir('load');
my $stop = "$folder/stop";
my $stay = "$folder/stay";
my $deadline = time + 4 * $PostgreSQL::Test::Utils::timeout_default;
my @clients;

$old->safe_psql('acme', 'CREATE TABLE ballast AS SELECT n, md5(n::text) FROM generate_series(1, 300000) n; CREATE INDEX ON ballast (md5)');
# No copy comes to its end while that file is there.
$old->safe_psql('acme', qq{
	CREATE FUNCTION passes() RETURNS boolean LANGUAGE plpgsql AS \$\$ BEGIN
		WHILE (pg_stat_file('$stay', true)).size IS NOT NULL LOOP PERFORM pg_sleep(0.05); END LOOP;
		RETURN true;
	END \$\$;
	CREATE TABLE gate (passed boolean CHECK (passes()));
	INSERT INTO gate VALUES (true)});
set_route(0);
append_to_file("$folder/pay.sql", <<'SQL');
BEGIN;
SELECT outcome, outcome = 'execute' AS fresh FROM idem_begin(:'key', principal => 'acme') \gset
\if :fresh
INSERT INTO payment (key) VALUES (:'key');
SELECT idem_complete(:'key', 201, principal => 'acme') \g /dev/null
\endif
COMMIT;
\echo :outcome
SQL

# A reader finds one of them, whole.
sub set_route ($place)
{
	append_to_file("$folder/route.next", $place);
	rename "$folder/route.next", "$folder/route" or die "rename: $!";
	return;
}

# ---- clients ----

# The outcome, if the server has committed.
sub pay ($server, $key)
{
	open my $psql, '-|', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-v', "key=$key", '-d', $server->connstr('acme'),
	  '-f', "$folder/pay.sql" or die "psql: $!";
	chomp(my $outcome = <$psql> // '');
	return close($psql) ? $outcome : 'error';
}

# Repeats until there is an answer. A client reads the routing table after an error only.
sub answer_to ($key, $place)
{
	while (time < $deadline)
	{
		my $at = rand() < 0.2 ? 1 - $$place : $$place;
		my $outcome = pay($servers[$at], $key);
		return $outcome if $outcome eq 'execute' || $outcome eq 'replay';
		sleep 0.02;
		$$place = slurp_file("$folder/route");
	}
	return 'nothing';
}

sub client ($number)
{
	my ($place, @paid) = (0);

	srand $number;
	until (-e $stop && @paid)
	{
		my $key = $number . '-' . @paid;
		push @paid, $key;
		append_to_file("$folder/paid.$number", "$key " . answer_to($key, \$place) . "\n");
		my $again = $paid[ rand @paid ];
		append_to_file("$folder/repeated.$number", "$again " . answer_to($again, \$place) . "\n");
	}
	return;
}

# Without the END blocks of the test.
sub start_client ($number)
{
	my $pid = fork // die "fork: $!";
	return $pid if $pid;
	open STDERR, '>', "$folder/errors.$number";
	eval { client($number) };
	POSIX::_exit($@ ? 1 : 0);
}

sub lines ($kind)
{
	return map { split /\n/, slurp_file($_) } glob "$folder/$kind.*";
}

# More requests are answered.
sub load_goes_on ($what)
{
	my $before = lines('paid');
	wait_until { lines('paid') >= $before + 40 } "answers: $what";
	pass($what);
	return;
}

# ---- the move ----

sub succeeds (@steps)
{
	my ($status, $output) = move($old, $new, @steps);
	is($status, 0, "@steps") or diag($output);
	return;
}

# After a start that was refused, the node takes the pid in the file for that of a server.
sub crash ($node)
{
	$node->kill9;
	wait_until { undef $node->{_pid}; $node->start(fail_ok => 1) } 'the end of all its processes';
	return;
}

sub is_copying
{
	return names_on($new) =~ /acme_arriving/;
}

# The mover at a step, and the moment of the crash.
sub begin_step ($step, $moment)
{
	my $output = '';
	my $mover = IPC::Run::start([ mover($old, $new, $step) ], '>&', \$output);
	wait_until { $moment->() } "the middle of $step";
	return $mover;
}

sub payments ($node, $database)
{
	return split /\n/, $node->safe_psql($database, 'SELECT key, id FROM payment');
}

# Effects that the new place lacks.
sub left_behind
{
	my @left = payments($old, 'acme_leaving');
	my %there = map { $_ => 1 } payments($new, 'acme');
	return grep { !$there{$_} } @left;
}

@clients = map { start_client($_) } 1 .. 4;
load_goes_on('at the old place');

my $closing = begin_step('close', sub {
	$old->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'acme' AND datallowconn}) eq '0' });
crash($old);
$closing->finish;
succeeds('close');

append_to_file($stay, '');
my $copying = begin_step('copy', \&is_copying);
crash($new);
ok(!$copying->finish, 'a copy fails with its server');
succeeds('back');
load_goes_on('at the old place after a move that was given up');

succeeds('close');
$copying = begin_step('copy', \&is_copying);
$copying->signal('KILL');
unlink $stay or die "unlink: $!";
ok(!$copying->finish, 'the mover is killed');
succeeds('copy');
crash($old);
succeeds('open');
crash($new);
set_route(1);
load_goes_on('at the new place');
crash($old);
load_goes_on('beside an old server that was started again');
is(join(' ', left_behind()), '', 'no effect at the old place after the copy');

# And back, by following.
succeeds('drop');
($old, $new) = ($new, $old);
my $following = begin_step('follow', \&is_copying);
crash($old);
$following->finish;
succeeds('follow');
load_goes_on('beside a server that follows');
succeeds('close');
my $catching_up = begin_step('catch_up', sub { 1 });
crash($new);
$catching_up->finish;
my ($missed) = move($old, $new, 'catch_up');
succeeds('copy') if $missed;
crash($old);
succeeds('open');
crash($new);
set_route(0);
load_goes_on('at home');

append_to_file($stop, '');
foreach my $pid (@clients)
{
	waitpid $pid, 0;
	is($?, 0, 'a client ends');
}
@clients = ();

# ---- what took effect ----

my %times;
$times{ (split /\|/)[0] }++ foreach payments($new, 'acme'), left_behind();
my %paid = map { split / / } lines('paid');
my @answers = lines('repeated');

note(scalar(keys %paid) . ' keys, ' . @answers . ' repeats');
is(join(' ', left_behind()), '', 'no effect at the other place after the last changes');
is(join(' ', grep { $times{$_} != 1 } keys %times), '', 'no key took effect twice');
is(join(' ', grep { !$times{$_} } keys %paid), '', 'every key took effect');
is(join(', ', grep { !/ replay$/ } @answers), '', 'every repeat got the first answer');

$_->stop foreach @servers;
done_testing();

# Also after a failure.
END
{
	my $exit_code = $?;
	kill 'TERM', @clients if @clients;
	$? = $exit_code;
}
