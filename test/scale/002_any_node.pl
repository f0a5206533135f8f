# The protocol on a distributed table, called on every node: one node executes and all others
# get in_progress immediately; effect and answer commit together; the form of the call does not matter.
use Idem;
use Citus;

my @nodes = new_cluster();
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;

# A tenant's payment and the answer of its key as each node now sees them, without duplicates.
sub state_of
{
	my ($key, $tenant) = @_;

	return seen($key, $tenant, $tenant);
}

sub pay { return "INSERT INTO payment VALUES ('$_[1]', '$_[0]', 1)" }

subtest 'one executes, all others get in_progress immediately' => sub {
	foreach my $tenant ($here, $there)
	{
		foreach my $first (@nodes)
		{
			my $key = 'first ' . $first->name;
			my $session = session($first);
			ask($session, 'BEGIN');
			is(outcome_in($session, $key, principal => $tenant), 'execute', $first->name . " executes for $tenant");
			is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', $_->name . ' is told')
			  foreach @nodes;
			ask($session, pay($key, $tenant));
			is(ask($session, completion($key) =~ s/\)$/, principal => '$tenant')/r), 't', 'it completes');
			is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', $_->name . ' is told still')
			  foreach @nodes;
			ask($session, 'COMMIT');
			is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
			is(state_of($key, $tenant), '1 completed', 'with one effect');
			$session->quit;
		}
	}
};

subtest 'a rollback, or the end of a session, frees the key' => sub {
	foreach my $tenant ($here, $there)
	{
		foreach my $node (@nodes)
		{
			my $key = 'freed ' . $node->name;
			my $session = session($node);
			foreach my $end ('rollback', 'end of the session')
			{
				ask($session, 'BEGIN');
				is(outcome_in($session, $key, principal => $tenant), 'execute', $node->name . ' executes');
				ask($session, pay($key, $tenant));
				if ($end eq 'rollback') { ask($session, 'ROLLBACK'); }
				else { end_backend($node, pid_of($session)); abandon($session); }
				# A Citus backend on another node notices a moment later that its session has ended.
				my $probe = qq{BEGIN; SELECT outcome FROM idem_begin('$key', principal => '$tenant'); ROLLBACK};
				wait_until { try_sql($worker1, $probe) eq 'execute' } 'the key';
				is(state_of($key, $tenant), '0 absent', "nothing is left after the $end");
			}
		}
	}
};

subtest 'leases' => sub {
	foreach my $tenant ($here, $there)
	{
		foreach my $node (@nodes)
		{
			my $key = 'leased ' . $node->name;
			my $claim = begin_claim($node, $key, principal => $tenant);
			is($claim->{outcome}, 'execute', $node->name . ' executes');
			is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', $_->name . ' is told') foreach @nodes;
			isnt(call($worker2, 'idem_extend', key => $key, principal => $tenant, token => $claim->{token}), '', 'it is extended');
			isnt(call($worker1, 'idem_checkpoint', key => $key, principal => $tenant, token => $claim->{token},
				recovery_point => 'half'), '', 'and noted');
			is(call($coordinator, 'idem_complete', key => $key, principal => $tenant, token => $claim->{token}), 't', 'and completed');
			is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'replay', $_->name . ' replays') foreach @nodes;
		}
	}
};

# The forms in which users write a call; Citus delegates some of them. KEY and TENANT are replaced.
my %forms = (
	'a plain SELECT' => q{SELECT idem_begin('KEY', principal => 'TENANT')},
	'SELECT FROM' => q{SELECT outcome FROM idem_begin('KEY', principal => 'TENANT')},
	'a field' => q{SELECT (idem_begin('KEY', principal => 'TENANT')).outcome},
	'a CTE' => q{WITH c AS (SELECT * FROM idem_begin('KEY', principal => 'TENANT')) SELECT outcome FROM c},
	'a subquery' => q{SELECT outcome FROM (SELECT * FROM idem_begin('KEY', principal => 'TENANT') OFFSET 0) c},
	'a principal from a table' =>
	  q{SELECT c.outcome FROM names t, LATERAL idem_begin('KEY', principal => t.name) c WHERE t.name = 'TENANT'},
	'a prepared statement' => q{PREPARE b AS SELECT outcome FROM idem_begin($1, principal => $2);
		EXECUTE b('KEY', 'TENANT')},
	'a generic plan' => q{SET plan_cache_mode = force_generic_plan;
		PREPARE b AS SELECT outcome FROM idem_begin($1, principal => $2); EXECUTE b('KEY', 'TENANT')},
	'PL/pgSQL, from the function' => q{DO $$ DECLARE c record; BEGIN
		SELECT * INTO c FROM idem_begin('KEY', principal => 'TENANT'); RAISE INFO '%', c.outcome; END $$},
	'PL/pgSQL, an expression' => q{DO $$ DECLARE o text; BEGIN
		o := (idem_begin('KEY', principal => 'TENANT')).outcome; RAISE INFO '%', o; END $$});

subtest 'forms of a call' => sub {
	$_->safe_psql('postgres', "CREATE TABLE names AS VALUES ('$here'), ('$there'); ALTER TABLE names RENAME column1 TO name")
	  foreach @nodes;
	foreach my $form (sort keys %forms)
	{
		foreach my $tenant ($here, $there)
		{
			foreach my $node (@nodes)
			{
				my $key = "$form " . $node->name;
				my $statement = $forms{$form} =~ s/KEY/$key/gr =~ s/TENANT/$tenant/gr;
				my $session = session($node);
				ask($session, 'BEGIN');
				ask($session, $statement);
				is(begin_claim($_, $key, principal => $tenant)->{outcome}, 'in_progress', $node->name . " has it by $form, says " . $_->name)
				  foreach @nodes;
				ask($session, pay($key, $tenant));
				is(ask($session, "SELECT idem_complete('$key', 200, principal => '$tenant')"), 't', 'and completes it');
				ask($session, 'COMMIT');
				is(state_of($key, $tenant), '1 completed', 'all of it is there');
				$session->quit;
			}
		}
	}
};

subtest 'shortcuts' => sub {
	# Citus plans no statement of an SQL function whose tenant is a parameter.
	$coordinator->safe_psql('postgres', q{
		CREATE FUNCTION settle(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS
		$$ BEGIN
			INSERT INTO payment VALUES (request ->> 'tenant', request ->> 'id', 1);
			RETURN '{"paid": 1}';
		END $$});
	foreach my $tenant ($here, $there)
	{
		foreach my $node (@nodes)
		{
			my $key = 'short ' . $node->name;
			is(call($node, 'idem_once', key => "once $key", principal => $tenant), 't', 'idem_once on ' . $node->name);
			is(join(' ', on_each("SELECT idem_once('once $key', principal => '$tenant')")), 'f f f', 'and never again');
			my $execute = qq{SELECT outcome FROM idem_execute('$key', 'settle(jsonb)',
				jsonb_build_object('tenant', '$tenant', 'id', '$key'), principal => '$tenant')};
			is(try_sql($node, $execute), 'execute', 'idem_execute');
			is(join(' ', on_each($execute)), 'replay replay replay', 'once');
			is(state_of($key, $tenant), '1 completed', 'with one effect');
		}
	}
};

subtest 'isolation levels and savepoints' => sub {
	foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
	{
		foreach my $tenant ($here, $there)
		{
			foreach my $node (@nodes)
			{
				my $key = "$level " . $node->name;
				my $session = session($node);
				ask($session, "BEGIN ISOLATION LEVEL $level");
				# The snapshot of the node that has the shard is taken here.
				ask($session, "SELECT count(*) FROM payment WHERE tenant = '$tenant'");
				$coordinator->safe_psql('postgres', qq{BEGIN; SELECT idem_begin('$key', principal => '$tenant');
					} . pay("$key other", $tenant) . qq{;
					SELECT idem_fail('$key', 'later', retryable => true, principal => '$tenant', retry_after => '0s'); COMMIT});
				is(outcome_in($session, $key, principal => $tenant), '40001', $node->name . " may not execute on an older snapshot, $level");
				ask($session, 'ROLLBACK');
				ask($session, "BEGIN ISOLATION LEVEL $level");
				is(outcome_in($session, $key, principal => $tenant), 'execute', 'and may on a new one');
				ask($session, 'SAVEPOINT s');
				ask($session, pay($key, $tenant));
				is(ask($session, "SELECT idem_complete('$key', 200, principal => '$tenant')"), 't', 'it completes');
				ask($session, 'ROLLBACK TO s');
				is(begin_claim($worker2, $key, principal => $tenant)->{outcome}, 'in_progress', 'a rollback to a savepoint takes it back');
				ask($session, pay($key, $tenant));
				is(ask($session, "SELECT idem_complete('$key', 200, principal => '$tenant')"), 't', 'and again');
				ask($session, 'COMMIT');
				is(state_of($key, $tenant), '1 completed', 'once');
				$session->quit;
			}
		}
	}
};

# Citus sends such a statement as a whole to the node of the payments.
subtest 'within a query on a table' => sub {
	my $statement = q{WITH claim AS MATERIALIZED
		(SELECT * FROM idem_begin('KEY', principal => 'TENANT', same_statement => true)),
		effect AS (INSERT INTO payment SELECT 'PAYEE', key, 1 FROM claim WHERE outcome = 'execute' RETURNING id)
		SELECT outcome FROM claim};
	foreach my $tenant ($here, $there)
	{
		foreach my $node (@nodes)
		{
			my $key = 'within ' . $node->name;
			my $call = $statement =~ s/KEY/$key/gr =~ s/TENANT/$tenant/gr =~ s/PAYEE/$tenant/gr;
			is(try_sql($node, $call), 'execute', 'it is executed on ' . $node->name);
			is(state_of($key, $tenant), '1 in_progress', 'once');
			is(join(' ', map { try_sql($_, $call) } @nodes), 'in_progress in_progress in_progress', 'and nowhere else');
			is(state_of($key, $tenant), '1 in_progress', 'once');
		}
	}
	is(try_sql($coordinator, "SELECT (SELECT count(*) FROM payment WHERE tenant = '$here')"
			  . " + (SELECT count(*) FROM idem_get('other', principal => '$there'))"),
		'0A000', 'of another tenant it is refused, and not as if a repeat would help');
};

subtest 'hold has no effect: the backend is one of Citus' => sub {
	my $session = session($coordinator);
	is(outcome_in($session, 'held', principal => $there, hold => 'true'), 'execute', 'claimed');
	end_backend($coordinator, pid_of($session));
	abandon($session);
	is(begin_claim($_, 'held', principal => $there)->{outcome}, 'in_progress', 'the lease counts, says ' . $_->name)
	  foreach @nodes;
};

done_testing();
