# Maintenance of the table while claims are open: it waits for them or passes them, and sessions
# with cached plans continue.
use Idem;

my $node = new_node('main', wal_level => 'replica');
my $holder = session($node);
my $other = session($node);
my $operator = session($node);
my $operator_pid = pid_of($operator);

sub filenode
{
	return $node->safe_psql('postgres', q{SELECT pg_relation_filenode('idempotency.record'),
		pg_relation_filenode('idempotency.record_pkey')});
}

# A command that waits until the holder's transaction ends. Meanwhile the holder can complete, and
# no second caller is granted the key.
sub waits_for_the_claim ($name, $command)
{
	my ($open, $leased) = ("$name-open", "$name-leased");
	my $token = begin_claim($node, $leased)->{token};
	my $before = filenode();

	ask($holder, 'BEGIN');
	is(outcome_in($holder, $open), 'execute', "$name: a claim is open");
	ask_later($operator, $command);
	wait_until_blocked($node, $operator_pid);
	is(outcome_in($holder, $open), 'in_progress', "$name: its holder can ask");
	is(ask($holder, completion($open)), 't', "$name: and complete");
	is(ask($holder, completion($leased, $token)), 't', "$name: and complete a leased claim");
	is(ask($holder, 'COMMIT'), '', "$name: and commit");
	is(ask($operator), '', "$name: then the command ends");
	isnt(filenode(), $before, "$name: having rewritten something");
	foreach my $key ($open, $leased)
	{
		is(outcome_in($_, $key), 'replay', "$name: $key is replayed") foreach $holder, $other;
	}
	return;
}

# The same command when claims are only leased does not wait.
sub passes_by_a_lease ($name, $command)
{
	my $key = "$name-lease";
	my (undef, undef, $token) = claim_in($holder, $key);

	is(ask($operator, $command), '', "$name: does not wait for a lease");
	is(outcome_in($other, $key), 'in_progress', "$name: the claim is still there");
	is(ask($holder, completion($key, $token)), 't', "$name: and its holder completes it");
	is(outcome_in($other, $key), 'replay', "$name: and it is replayed");
	return;
}

my %rewriting = (
	'VACUUM FULL' => 'VACUUM FULL idempotency.record',
	'CLUSTER' => 'CLUSTER idempotency.record USING record_pkey',
	# A claim already has every lock that its write needs, so no deadlock can occur.
	'REINDEX' => 'REINDEX TABLE idempotency.record',
	'REINDEX CONCURRENTLY' => 'REINDEX TABLE CONCURRENTLY idempotency.record');
# The command copies the table while the claim is open, and has to include the row that the claim
# writes meanwhile.
$rewriting{'REPACK CONCURRENTLY'} = 'REPACK (CONCURRENTLY) idempotency.record' if $node->pg_version >= 19;

foreach my $name (sort keys %rewriting)
{
	waits_for_the_claim($name, $rewriting{$name});
	passes_by_a_lease($name, $rewriting{$name});
}

# A plain VACUUM does not wait for claims.
ask($holder, 'BEGIN');
is(outcome_in($holder, 'vacuumed'), 'execute', 'a claim is open');
is(ask($operator, 'VACUUM (ANALYZE) idempotency.record'), '', 'VACUUM does not wait for it');
is(ask($holder, completion('vacuumed')), 't', 'completed');
is(ask($holder, 'COMMIT'), '', 'and committed');

# Adding or dropping an index changes the plans, not the answers.
is(ask($operator, 'CREATE INDEX CONCURRENTLY extra ON idempotency.record (holder)'),
	'', 'an index of the operator');
is(outcome_in($holder, 'vacuumed'), 'replay', 'does no harm');
is(outcome_in($holder, 'indexed'), 'execute', 'new claims do not mind either');
is(ask($operator, 'DROP INDEX idempotency.extra'), '', 'its end does not wait either');
is(outcome_in($other, 'indexed'), 'in_progress', 'to others');

# TRUNCATE removes all records. It waits for the open claim, whose row goes with the others.
ask($holder, 'BEGIN');
is(outcome_in($holder, 'truncated'), 'execute', 'a claim is open');
ask_later($operator, 'TRUNCATE idempotency.record');
wait_until_blocked($node, $operator_pid);
is(ask($holder, completion('truncated')), 't', 'completed');
is(ask($holder, 'COMMIT'), '', 'and committed');
is(ask($operator), '', 'then the table is emptied');
is(outcome_in($other, $_), 'execute', "$_ is not known any more") foreach qw(truncated vacuumed);

# Between two look-ups of one transaction the table may be rewritten only if the transaction holds
# no lock on it.
ask($holder, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($holder, 'SELECT 1'), '1', 'a snapshot is taken');
is(ask($operator, 'VACUUM FULL idempotency.record'), '', 'and then the table is rewritten');
is(outcome_in($holder, 'truncated'), 'in_progress', 'a claim is seen after it');
is(outcome_in($holder, 'fresh'), 'execute', 'a new one is begun');
is(ask($holder, completion('fresh')), 't', 'and completed');
is(ask($holder, 'COMMIT'), '', 'and committed');

$_->quit foreach $holder, $other, $operator;
$node->stop;
done_testing();
