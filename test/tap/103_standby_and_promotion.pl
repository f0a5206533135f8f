# A standby has no workers until it is promoted, whichever way its library is loaded.
use Idem;
use Sweeping;

# A standby of the primary; it sweeps every second as soon as it may.
sub new_standby ($primary, $name, $libraries)
{
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', qq{
		shared_preload_libraries = '$libraries'
		idempotency.cleanup_interval = '1s'
		log_min_messages = 'debug1'});
	$standby->start;
	return $standby;
}

# Calls the protocol, as far as a standby allows, and looks for workers.
sub is_without_workers ($standby)
{
	my $name = $standby->name;
	my $session = session($standby);

	is(ask($session, q{SELECT status FROM idem_get('old-1')}), 'completed', "$name: idem_get");
	is(outcome_in($session, 'new'), '25006', "$name: idem_begin");
	is(ask($session, 'SELECT backlog, launcher_pid FROM idempotency.sweeper'),
		'10|', "$name: the view tells of the backlog");
	$session->quit;
	is_deeply([ workers($standby) ], [], "$name: no worker");
	is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE objsubid = 18758}),
		'0', "$name: no lock of one either");
	return;
}

subtest 'standby and promotion' => sub {
	my $primary = new_node('primary',
		-init => [ allows_streaming => 1 ],
		shared_preload_libraries => 'idempotency',
		'idempotency.cleanup_interval' => 0);
	add_expired($primary, 10);
	$primary->backup('base');
	my $preloaded = new_standby($primary, 'preloaded', 'idempotency');
	my $plain = new_standby($primary, 'plain', '');

	foreach ($preloaded, $plain)
	{
		$primary->wait_for_catchup($_);
		is_without_workers($_);
	}
	# A worker started by mistake would be visible by now.
	add_expired($primary, 1, key => 'old-late-');
	$primary->wait_for_catchup($_) foreach $preloaded, $plain;
	is(records($_), '11', $_->name . ': nothing is removed') foreach $preloaded, $plain;
	# A worker that may not start before promotion would occupy its slot until then.
	is(scalar(log_since($plain, 0, qr/registering background worker "idempotency launcher"/)),
		0, 'plain: nothing is registered');
	$primary->stop;

	$preloaded->promote;
	is_swept($preloaded, 'postgres', 'preloaded: the launcher starts when recovery has ended');
	$plain->promote;
	is(begin_claim($plain, 'new')->{outcome}, 'execute', 'not preloaded: the first claim');
	is_swept($plain, 'postgres', 'starts it');
	launcher($_) foreach $preloaded, $plain;
	$_->stop foreach $preloaded, $plain;
};

done_testing();
