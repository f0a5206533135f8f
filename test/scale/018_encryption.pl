# Encrypted records on a distributed table: each node encrypts and decrypts with its own key file,
# and any node can change the keys of all.
use MIME::Base64 qw(encode_base64);
use Idem;
use Citus;

# One file for all nodes, as if it had been copied.
my $file = PostgreSQL::Test::Utils::tempdir('keys') . '/keys';

sub write_keys
{
	my (@keys) = @_;
	my @lines = map { "$_ " . encode_base64($_ x 32, '') } @keys;

	$lines[0] .= ' current';
	append_to_file("$file.new", join('', map { "$_\n" } @lines));
	chmod 0600, "$file.new" or die "chmod: $!";
	rename "$file.new", $file or die "rename: $!";
	return;
}

write_keys('a');
my @nodes = my ($coordinator, $worker1, $worker2) = new_cluster('idempotency.encryption_key_file' => $file);
distribute();
my @principals = map { principal_on($_) } $worker1, $worker2;
my $body = q{SELECT convert_from(body, 'UTF8') FROM idem_get('k', 'pay', '%s')};

my $attempts = q{SELECT concat_ws(' ', attempt, holder, how, error) FROM idem_attempts('k', 'pay', '%s')};

# New sessions on every node have read the file again.
sub take_keys
{
	write_keys(@_);
	foreach my $node (@nodes)
	{
		my $before = $node->safe_psql('postgres', 'SELECT pg_conf_load_time()');
		$node->reload;
		$node->poll_query_until('postgres', "SELECT pg_conf_load_time() > '$before'") or die 'no reload';
	}
	return;
}

# "id records" of each node that has any.
sub sealed
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{SELECT string_agg(concat_ws(' ', key_id, records), ', ' ORDER BY key_id, node)
		FROM idempotency.encryption_keys WHERE records > 0});
}

subtest 'from any node' => sub {
	$worker2->safe_psql('postgres', q{SELECT idem_policy_set('pay', encrypt => true, store_request => true, keep_history => true)});
	foreach my $principal (@principals)
	{
		$coordinator->safe_psql('postgres', qq{
			BEGIN;
			SELECT outcome FROM idem_begin('k', '{"card": "secret"}', 'pay', '$principal', holder => 'h');
			SELECT idem_complete('k', 201, 'secret answer'::text, '{"X": "y"}', 'pay', '$principal');
			COMMIT});
		is($_->safe_psql('postgres', sprintf $body, $principal), 'secret answer', "opened by a call on " . $_->name)
		  foreach @nodes;
		is($_->safe_psql('postgres', sprintf $attempts, $principal), '1 h completed', "its attempt by a call on " . $_->name)
		  foreach @nodes;
	}
	is($coordinator->safe_psql('postgres', q{SELECT count(*), count(sealed_body), count(body), count(request), count(holder), count(fingerprint)
		FROM idempotency.record}), '2|2|0|0|0|0', 'nothing lies in the clear');
	is(sealed($_), 'a 2, a 2', 'the view of all nodes, on ' . $_->name) foreach @nodes;
};

subtest 'keys are changed for all nodes from one' => sub {
	take_keys('b', 'a');
	is($worker1->safe_psql('postgres', sprintf $body, $_), 'secret answer', "$_ with both keys") foreach @principals;
	# A user's procedure that matches a number better.
	$_->safe_psql('postgres', q{
		SET citus.enable_ddl_propagation = off;
		CREATE PROCEDURE idem_reseal(batch integer, INOUT remaining bigint DEFAULT NULL) LANGUAGE sql AS 'SELECT 1000::bigint'}) foreach @nodes;
	is($worker1->safe_psql('postgres', 'CALL idem_reseal()'), '0', 'nothing is left on any node');
	is($worker1->safe_psql('postgres', q{SELECT count(DISTINCT node), count(*), sum((after ->> 'sealed')::integer) FROM idempotency.decisions WHERE action = 'reseal'}),
		'3|6|4', 'each node has written down its beginning and its end');
	is(sealed($coordinator), 'b 2, b 2', 'all are of the new key');
	take_keys('b');
	is($coordinator->safe_psql('postgres', sprintf $body, $_), 'secret answer', "$_ without the old key") foreach @principals;
	is($worker1->safe_psql('postgres', sprintf $attempts, $_), '1 h completed', "$_ without the old key: its attempt") foreach @principals;
};

subtest 'a shard that moves is opened where it is' => sub {
	$coordinator->safe_psql('postgres', move_shard($principals[0], $worker2, 'block_writes'));
	is($coordinator->safe_psql('postgres', sprintf $body, $principals[0]), 'secret answer', 'moved');
	is(sealed($coordinator), 'b 4', 'and counted there');
};

subtest 'a node without keys answers nothing of its own' => sub {
	$worker2->safe_psql('postgres', q{ALTER SYSTEM SET idempotency.encryption_key_file = '/nowhere/keys'});
	$worker2->reload;
	$worker2->poll_query_until('postgres', q{SELECT current_setting('idempotency.encryption_key_file') = '/nowhere/keys'}) or die;
	my ($status, undef, $error) = $coordinator->psql('postgres', '\set VERBOSITY sqlstate' . "\n" . sprintf($body, $principals[1]));
	like($error, qr/ID503/, 'closed');
};

$_->stop foreach @nodes;
done_testing();
