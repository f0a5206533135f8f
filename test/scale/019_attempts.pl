# The history of attempts is stored with the records, on the same node.
use Idem;
use Citus;

my ($coordinator, $worker1, $worker2) = new_cluster();
my @nodes = ($coordinator, $worker1, $worker2);

# Existing attempts go to the shards as well.
$coordinator->safe_psql('postgres', q{SELECT idem_policy_set('kept', keep_history => true)});
$coordinator->safe_psql('postgres', q{SELECT idem_once('before', scope => 'kept', principal => 'old')});
distribute();
my @principals = map { principal_on($_) } $worker1, $worker2;

sub history
{
	my ($node, $principal) = @_;
	return $node->safe_psql('postgres', 'SELECT string_agg(attempt || how, \' \' ORDER BY attempt, how)'
		  . " FROM idempotency.attempts WHERE scope = 'kept' AND principal = '$principal'");
}

is(history($_, 'old'), '1completed', 'an attempt of before') foreach @nodes;

subtest 'each end of an attempt, from each node' => sub {
	foreach my $node (@nodes)
	{
		foreach my $principal (@principals)
		{
			my $name = $node->name . " for $principal";
			$node->safe_psql('postgres', "SELECT idem_begin('$name', scope => 'kept', principal => '$principal', lease => '1 us')");
			my $token = $node->safe_psql('postgres',
				"SELECT token FROM idem_begin('$name', scope => 'kept', principal => '$principal', lease => '1 h')");
			$node->safe_psql('postgres', "SELECT idem_fail('$name', scope => 'kept', principal => '$principal', token => $token, retryable => true)");
			is( $nodes[0]->safe_psql('postgres',
					"SELECT string_agg(attempt || how, ' ' ORDER BY attempt) FROM idempotency.attempts WHERE key = '$name'"),
				'1taken_over 2retryable', $name);
		}
	}
};

# A takeover and a release in one transaction leave no trace: the next caller again sees a takeover.
subtest 'a takeover that is given back' => sub {
	foreach my $node (@nodes)
	{
		my $name = 'given back from ' . $node->name;
		my $claim = "'$name', scope => 'kept', principal => '$principals[0]'";
		$node->safe_psql('postgres', "SELECT idem_begin($claim, lease => '1 us')");
		$node->safe_psql('postgres', "BEGIN; SELECT idem_begin($claim); SELECT idem_release($claim); COMMIT");
		$node->safe_psql('postgres', "SELECT idem_begin($claim, lease => '1 h')");
		is($node->safe_psql('postgres', "SELECT string_agg(attempt || how, ' ') FROM idempotency.attempts WHERE key = '$name'"),
			'1taken_over', $name);
	}
};

subtest 'it moves with the shard, and is forgotten and swept' => sub {
	my $before = history($coordinator, $principals[0]);
	$coordinator->safe_psql('postgres', move_shard($principals[0], $worker2, 'block_writes'));
	is(history($_, $principals[0]), $before, 'from ' . $_->name) foreach @nodes;

	my $key = $coordinator->name . " for $principals[0]";
	$worker1->safe_psql('postgres', "SELECT idem_forget('$key', 'kept', '$principals[0]')");
	is($worker2->safe_psql('postgres', "SELECT count(*) FROM idempotency.attempts WHERE key = '$key'"), '0', 'forgotten');

	$coordinator->safe_psql('postgres', q{SELECT idem_policy_alter('kept', ttl => '1 us', retention => '1 us')});
	$worker1->safe_psql('postgres', "SELECT idem_once('brief', scope => 'kept', principal => '$_')") foreach @principals;
	is($worker2->safe_psql('postgres', q{SELECT count(*) FROM idempotency.attempts WHERE key = 'brief'}), '2', 'kept');
	$coordinator->safe_psql('postgres', 'SELECT idem_cleanup()');
	is($worker2->safe_psql('postgres', q{SELECT count(*) FROM idempotency.attempts WHERE key = 'brief'}), '0', 'swept');
};

$_->stop foreach @nodes;
done_testing();
