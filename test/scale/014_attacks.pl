# Users' actions during the distribution of records must not harm these users.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator) = @nodes;
my $tenant = principal_on($nodes[1]);

# As a dump of another cluster leaves it.
$coordinator->safe_psql('postgres', q{
	CREATE ROLE app LOGIN;
	SELECT idem_grant('app');
	INSERT INTO idempotency.granted VALUES ('app', false, false, false), ('gone', true, true, true)});

# The holder's session is on the coordinator, and unknown on the node that will have the record.
my $holder = session($coordinator);
is(outcome_in($holder, 'held', principal => $tenant, hold => \'true'), 'execute', 'a claim is held');

subtest 'a caller that looks first and then claims' => sub {
	my $caller = session($coordinator);
	ask($caller, 'BEGIN');
	is(ask($caller, "SELECT idem_get('looked', principal => '$tenant') IS NULL"), 't', 'looks');
	my $owner = session($coordinator);
	ask_later($owner, q{SELECT 'distributed' FROM idem_distribute('payment')});
	wait_until {
		$coordinator->safe_psql('postgres', q{
			SELECT count(*) > 0 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted}) eq 't'
	} 'the distribution';
	is(outcome_in($caller, 'looked', principal => $tenant), 'execute', 'claims while the distribution waits');
	is(ask($caller, "SELECT idem_complete('looked', 200, principal => '$tenant')"), 't', 'completes');
	is(ask($caller, 'COMMIT'), '', 'commits');
	is(ask($owner), 'distributed', 'and then the records are distributed');
	$_->quit foreach $caller, $owner;
};

is($_, 'app|f|f|f', 'granted is what roles have') foreach on_each('SELECT * FROM idempotency.granted');
is(begin_claim($_, 'looked', principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
is(begin_claim($_, 'held', principal => $tenant)->{outcome}, 'in_progress', 'the claim is still held, says ' . $_->name)
  foreach @nodes;
$holder->quit;

# On the node with the shard, where Citus itself runs such a query.
subtest 'a call within a query on the tenant\'s rows' => sub {
	$coordinator->safe_psql('postgres', "INSERT INTO payment VALUES ('$tenant', 'row', 1)");
	foreach my $node (@nodes)
	{
		my $name = $node->name;
		is(try_sql($node, "SELECT idem_once('$name ' || id, principal => tenant) FROM payment WHERE tenant = '$tenant'"),
			't', "asked on $name");
	}
};

# Citus sends the value to the other node in the session's format, in which the first twelve days of
# a month could be read as another month there.
subtest 'a time is the same on every node' => sub {
	foreach my $node (@nodes)
	{
		my $name = $node->name;
		is(try_sql($node, qq{
				SET DateStyle = 'SQL, DMY';
				WITH claim AS MATERIALIZED (
					SELECT * FROM idem_begin('sent $name', principal => '$tenant',
						first_sent => date_trunc('year', now()) - interval '7 weeks'))
				SELECT outcome FROM claim}),
			'expired', "asked on $name, long ago");
		is(try_sql($node, qq{
				SET DateStyle = 'SQL, DMY';
				WITH claim AS MATERIALIZED (
					SELECT * FROM idem_begin('sent now $name', principal => '$tenant', first_sent => now()))
				SELECT outcome FROM claim}),
			'execute', "asked on $name, now");
	}
};

# The row of a dropped role stays in idempotency.granted.
subtest 'a role that has the name of an operator' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE ROLE bob LOGIN;
		SELECT idem_grant('bob', operator => true);
		DROP OWNED BY bob;
		DROP ROLE bob;
		CREATE ROLE bob LOGIN;
		SELECT idem_grant('bob')});
	my $may = q{SELECT idem_erase('none')};
	is(try_sql($_, "SET ROLE bob; $may"), '42501', 'is none on ' . $_->name) foreach @nodes;
	$coordinator->safe_psql('postgres', q{SELECT idem_grant('bob', operator => true); SELECT idem_grant('bob')});
	is(try_sql($_, "SET ROLE bob; $may"), 'passed', 'stays one when it is, on ' . $_->name) foreach @nodes;
	is(try_sql($_, 'SET ROLE bob; SELECT idem_cleanup(1)'), '42501', 'and no administrator, on ' . $_->name) foreach @nodes;
	$coordinator->safe_psql('postgres', q{SELECT idem_grant('bob', administrator => true)});
	is(try_sql($_, 'SET ROLE bob; SELECT idem_cleanup(1)'), '0', 'who is both, on ' . $_->name) foreach @nodes;
	is($_, 't|t', 'and stays an operator') foreach on_each(q{SELECT operator, administrator FROM idempotency.granted WHERE role = 'bob'});
};

done_testing();
