# pg_upgrade: no workers run during it, and records are the same after it.
use Idem;
use Sweeping;

my $content = 'SELECT md5(string_agg(r::text, chr(10) ORDER BY scope, key)), count(*)'
  . ' FROM idempotency.record AS r';

# What the server logs of it at level debug1.
my $registration = qr/(?:register|start)ing background worker .*"idempotency launcher"/;

# Starts a server as pg_upgrade does, and claims a key in it.
sub stays_silent ($node, $libraries)
{
	my $name = $libraries ? 'preloaded' : 'not preloaded';
	my $size = log_size($node);
	my @pg_ctl = ('pg_ctl', '-w', '-D', $node->data_dir);

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	system_or_bail(@pg_ctl, '-l', $node->logfile, '-o', '-b', 'start');
	is($node->safe_psql('postgres', q{SELECT outcome FROM idem_begin('upgrade')}),
		'execute', "$name: a claim");
	# Long enough for a launcher, had one been registered.
	$node->safe_psql('postgres', 'SELECT pg_sleep(1)');
	is_deeply([ workers($node) ], [], "$name: nothing is registered in binary-upgrade mode");
	is($node->safe_psql('postgres', q{SELECT idem_forget(key) FROM idem_resolve('upgrade', 'fail'),
			CAST('upgrade' AS text) AS key}), 't', "$name: the claim is forgotten");
	system_or_bail(@pg_ctl, 'stop');
	is(scalar(log_since($node, $size, $registration)), 0, "$name: it has not been tried either");
	return;
}

subtest 'pg_upgrade' => sub {
	my $old = new_node('old',
		log_min_messages => 'debug1',
		'idempotency.cleanup_interval' => '1s');
	# Adds records without a claim, which would start the launcher.
	add_expired($old, 10);
	$old->stop;
	stays_silent($old, '');
	stays_silent($old, 'idempotency');
	# Records to keep must not be swept before.
	$old->append_conf('postgresql.conf', q{idempotency.cleanup_interval = '0'});
	$old->start;
	my $token = begin_claim($old, 'done')->{token};
	call($old, 'idem_complete', key => 'done', status_code => 201, body => \"'\\x00ff'::bytea",
		token => $token);
	my $running = begin_claim($old, 'running', lease => '1 hour')->{token};
	launcher($old);
	isnt(scalar(log_since($old, 0, $registration)), 0, 'a start as usual is logged');
	my $before = $old->safe_psql('postgres', $content);
	like($before, qr/\|12$/, 'a cluster with records');
	$old->stop;

	my $new = PostgreSQL::Test::Cluster->new('new');
	$new->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
	$new->append_conf('postgresql.conf', q{
		shared_preload_libraries = 'idempotency'
		idempotency.cleanup_interval = '0'});
	my $bin = $old->config_data('--bindir');
	chdir PostgreSQL::Test::Utils::tempdir() or die "cannot change folder: $!";
	command_ok(
		[
			'pg_upgrade', '--no-sync',
			'--old-bindir' => $bin, '--new-bindir' => $bin,
			'--old-datadir' => $old->data_dir, '--new-datadir' => $new->data_dir,
			'--old-port' => $old->port, '--new-port' => $new->port,
			'--socketdir' => $new->host
		],
		'is run');
	$new->start;
	is($new->safe_psql('postgres', $content), $before, 'the records are the same');
	is(begin_claim($new, 'done')->{body}, '\\x00ff', 'an answer is replayed');
	is(begin_claim($new, 'running')->{outcome}, 'in_progress', 'a lease runs on');
	is(call($new, 'idem_complete', key => 'running', token => $running), 't', 'for its holder');
	is($new->safe_psql('postgres', 'SELECT backlog FROM idempotency.sweeper'),
		'10', 'the journal came along');
	$new->safe_psql('postgres', q{CREATE ROLE app; CREATE ROLE support;
		SELECT idem_grant('app'), idem_grant('support', operator => true, administrator => true)});
	is($new->safe_psql('postgres', q{
			SELECT r, count(*) FROM pg_proc AS p, unnest('{app,support}'::name[]) AS r
			 WHERE p.proname LIKE 'idem\_%' AND p.proacl IS NOT NULL
			   AND has_function_privilege(r, p.oid, 'EXECUTE') GROUP BY r ORDER BY r}),
		"app|17\nsupport|36", 'and what idem_grant is to give');
	configure($new, 'idempotency.cleanup_interval' => '1s');
	is_swept($new, 'postgres', 'and sweeping goes on');
	$new->stop;
};

done_testing();
