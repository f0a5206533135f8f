# Under a policy with "encrypt" no stored value lies anywhere in the clear, and every call still
# answers. A record whose key is missing, or that was changed, answers nothing, and nothing is
# executed again.
use File::Find qw(find);
use IPC::Run ();
use MIME::Base64 qw(encode_base64);
use Idem;

# ---- key files ----

my $folder = PostgreSQL::Test::Utils::tempdir('keys');

sub key_of ($letter)
{
	return encode_base64($letter x 32, '');
}

# keys('main', 'b', 'a'): the key file with these keys, the first of them current. A pair is an id
# and the letter of a key other than the id's own.
sub keys_in ($name, @keys)
{
	my $file = "$folder/$name";
	my @lines = map { ref $_ ? "$_->[0] " . key_of($_->[1]) : "$_ " . key_of($_) } @keys;

	$lines[0] .= ' current' if @lines;
	# As documented: a new file replaces the old one, so no process reads half a file.
	unlink "$file.new";
	append_to_file("$file.new", join('', map { "$_\n" } @lines));
	chmod 0600, "$file.new" or die "chmod: $!";
	rename "$file.new", $file or die "rename: $!";
	return $file;
}

# Reloads; every session that begins afterwards has noticed it.
sub take_keys ($node, @keys)
{
	keys_in($node->name, @keys);
	my $before = $node->safe_psql('postgres', 'SELECT pg_conf_load_time()');
	$node->reload;
	$node->poll_query_until('postgres', "SELECT pg_conf_load_time() > '$before'")
	  or die 'no reload';
	return;
}

sub key_rows ($node)
{
	return $node->safe_psql('postgres',
		q{SELECT string_agg(concat_ws(' ', key_id, available, current, records), ', ' ORDER BY key_id)
		    FROM idempotency.encryption_keys});
}

my $primary = new_node('primary',
	-init => [ allows_streaming => 1 ],
	shared_preload_libraries => 'idempotency',
	log_statement => 'none',
	'idempotency.encryption_key_file' => keys_in('primary', 'a'));
my $session = session($primary);

sub begin_in ($scope, $key, %named)
{
	return begin_claim($primary, $key, scope => $scope, principal => 'shop',
		request => \qq('{"card": "$scope-request"}'), holder => "$scope-holder", %named);
}

sub end_in ($function, $scope, $key, $token, %named)
{
	return call($primary, $function, key => $key, scope => $scope, principal => 'shop',
		token => $token, %named);
}

sub checkpoint_in ($scope, $key, $token)
{
	return end_in('idem_checkpoint', $scope, $key, $token, recovery_point => "$scope-point",
		state => \qq('{"seat": "$scope-state"}'));
}

sub complete_in ($scope, $key, $token)
{
	return end_in('idem_complete', $scope, $key, $token, status_code => 201,
		body => \"'$scope-body'::text", headers => \qq('{"X-Secret": "$scope-headers"}'));
}

sub fail_in ($scope, $key, $token, %named)
{
	return end_in('idem_fail', $scope, $key, $token, error => "$scope-error", %named);
}

# All values that a record can keep, stored in every way: in one transaction, with a lease, by a
# retry and a takeover, by an operation and by an operator.
sub fill ($scope)
{
	call($primary, 'idem_policy_set', scope_pattern => $scope, store_request => \'true',
		keep_history => \'true', encrypt => $scope eq 'sealed' ? \'true' : \'false');
	complete_in($scope, 'done', begin_in($scope, 'done')->{token});
	checkpoint_in($scope, 'running', begin_in($scope, 'running', lease => '1 hour')->{token});
	fail_in($scope, 'failed', begin_in($scope, 'failed')->{token}, status_code => 422);
	my $claim = begin_in($scope, 'retried');
	checkpoint_in($scope, 'retried', $claim->{token});
	fail_in($scope, 'retried', $claim->{token}, retryable => \'true', retry_after => '0');
	fail_in($scope, 'retried', begin_in($scope, 'retried')->{token},
		retryable => \'true', retry_after => '0');
	checkpoint_in($scope, 'taken', begin_in($scope, 'taken', lease => '1 ms')->{token});
	$primary->poll_query_until('postgres',
		"SELECT outcome = 'execute' FROM idem_begin('taken', scope => '$scope', principal => 'shop', lease => '1 hour')")
	  or die 'not taken over';
	begin_in($scope, 'executed', -function => 'idem_execute', operation => 'echo(jsonb)');
	begin_in($scope, 'resolved', lease => '1 hour');
	call($primary, 'idem_resolve', key => 'resolved', action => 'fail', scope => $scope,
		principal => 'shop', body => \"'$scope-body'::text", error => "$scope-error");
	ask($session, 'BEGIN');
	outcome_in($session, 'transactional', scope => $scope, principal => 'shop',
		request => \qq('{"card": "$scope-request"}'));
	ask($session, "SELECT idem_complete('transactional', 200, '$scope-body'::text, NULL, '$scope', 'shop')");
	ask($session, 'COMMIT');
	return;
}

# The values of a record, from idem_get.
sub told ($node, $scope, $key)
{
	return $node->safe_psql('postgres',
		q{SELECT concat_ws(' ', status, status_code, headers, convert_from(body, 'UTF8'), error,
			recovery_point, state, holder) FROM }
		  . invocation('idem_get', key => $key, scope => $scope, principal => 'shop'));
}

# Its attempts, from idem_attempts.
sub history ($node, $scope, $key)
{
	return $node->safe_psql('postgres',
		q{SELECT concat_ws(' ', attempt, holder, how, status_code, error, resolved_by) FROM }
		  . invocation('idem_attempts', key => $key, scope => $scope, principal => 'shop'));
}

$primary->safe_psql('postgres',
	'CREATE FUNCTION echo(jsonb) RETURNS jsonb LANGUAGE sql RETURN $1');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
keys_in('standby', 'a');
$standby->append_conf('postgresql.conf',
	"idempotency.encryption_key_file = '$folder/standby'");
$standby->start;

my @keys = qw(done running failed retried taken executed resolved transactional);
my @markers = qw(request headers body state point holder error);

subtest 'answers are those of a scope that is not encrypted' => sub {
	fill($_) foreach qw(plain sealed);
	foreach my $key (@keys)
	{
		is(told($primary, 'sealed', $key) =~ s/sealed-/plain-/gr, told($primary, 'plain', $key), $key);
		is(history($primary, 'sealed', $key) =~ s/sealed-/plain-/gr, history($primary, 'plain', $key), "$key: its attempts");
	}
	is(history($primary, 'sealed', 'retried'),
		"1 sealed-holder retryable sealed-error\n2 sealed-holder retryable sealed-error", 'attempts in full');
	like(told($primary, 'sealed', 'done'),
		qr/^completed 201 \{"X-Secret": "sealed-headers"\} sealed-body sealed-holder$/, 'in full');
	my $repeat = begin_in('sealed', 'done');
	is("$repeat->{outcome} $repeat->{body}", 'replay \x' . unpack('H*', 'sealed-body'), 'a replay');
	is(begin_in('sealed', 'done', request => \q('{"card": "another"}'))->{outcome},
		'mismatch', 'another request with the key');
	my $retry = begin_in('sealed', 'retried', lease => '1 hour');
	is("$retry->{attempt} $retry->{recovery_point} $retry->{state}{seat} $retry->{error}",
		'3 sealed-point sealed-state sealed-error', 'a retry goes on where the last attempt stopped');
	is($primary->safe_psql('postgres', q{SELECT count(*) FROM idempotency.record WHERE scope = 'sealed'
		AND coalesce(fingerprint, body, headers::text::bytea, error::bytea, recovery_point::bytea,
			state::text::bytea, holder::bytea, request::text::bytea) IS NOT NULL}),
		'0', 'no column has a value in the clear');
	is($primary->safe_psql('postgres', q{SELECT count(*) FROM idempotency.records WHERE scope = 'sealed'
		AND sealed_by = 'a'}), scalar(@keys), 'the view says which key has sealed them');
};

# ---- places where no value may be found ----

# The files below a folder that contain a marker of the scope.
sub files_with ($marker, @folders)
{
	my @found;

	find({ no_chdir => 1, wanted => sub {
		push @found, $File::Find::name if -f $_ && index(slurp_file($_), $marker) >= 0;
	} }, @folders);
	return @found;
}

subtest 'nothing lies in the clear' => sub {
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$primary->run_log([ 'pg_dump', '-f', "$folder/dump.sql", $primary->connstr('postgres') ]);
	foreach my $what (@markers)
	{
		foreach my $place ([ 'data directory', $primary->data_dir . '/base' ],
			[ 'WAL', $primary->data_dir . '/pg_wal' ], [ 'standby', $standby->data_dir ])
		{
			my ($name, $where) = @$place;
			is_deeply([ files_with("sealed-$what", $where) ], [], "$what: $name");
			cmp_ok(scalar(files_with("plain-$what", $where)), '>', 0, "$what: $name: can be found");
		}
		# pg_dump writes a bytea as hexadecimal digits.
		my $dump = slurp_file("$folder/dump.sql");
		my $hex = sub { unpack 'H*', $_[0] };
		unlike($dump, qr/sealed-$what/, "$what: dump");
		is(index($dump, $hex->("sealed-$what")), -1, "$what: dump, as bytes");
		cmp_ok(index($dump, "plain-$what") + index($dump, $hex->("plain-$what")), '>', -2,
			"$what: dump: can be found");
	}
	my $log = slurp_file($primary->logfile);
	unlike($log, qr/sealed-(request|headers|body|state|point|holder|error)/, 'log');
};

subtest 'a standby with the keys opens them' => sub {
	is(told($standby, 'sealed', 'done'), told($primary, 'sealed', 'done'), 'idem_get');
	is(history($standby, 'sealed', 'retried'), history($primary, 'sealed', 'retried'), 'idem_attempts');
	is($standby->safe_psql('postgres', 'SELECT key_id, records, unopened, key FROM idem_verify_sealed()'), 'a|15|0|', 'idem_verify_sealed');
	my $reader = session($standby);
	unlink "$folder/standby";
	$standby->reload;
	wait_until { ask($reader, "SELECT idem_get('done', 'sealed', 'shop')") eq 'ID503' }
	  'the standby has no keys';
	is(ask($reader, "SELECT status FROM idem_get('done', 'plain', 'shop')"),
		'completed', 'others still get their answers');
	$reader->quit;
	$standby->stop;
};

# ---- keys that are missing or wrong ----

# The answers to all calls while the values of the record "done" can't be decrypted.
sub is_closed ($sqlstate, $why)
{
	my $row = q{SELECT md5(r::text) FROM idempotency.record r WHERE (scope, key) = ('sealed', 'done')};
	my $before = ask($session, $row);
	my $counted = q{SELECT coalesce(sum(encryption_errors), 0) FROM idempotency.stats WHERE scope = 'sealed'};
	my $errors = ask($session, $counted);

	is(outcome_in($session, 'done', scope => 'sealed', principal => 'shop', request => \$_),
		$sqlstate, "$why: idem_begin") foreach q('{"card": "sealed-request"}'), q('{"card": "other"}'), 'NULL';
	is(ask($session, "SELECT idem_get('done', 'sealed', 'shop')"), $sqlstate, "$why: idem_get");
	is(ask($session, 'SELECT ' . invocation('idem_execute', key => 'done', scope => 'sealed',
		principal => 'shop', operation => 'echo(jsonb)', request => \q('{"card": "sealed-request"}'))),
		$sqlstate, "$why: idem_execute");
	is(ask($session, $row), $before, "$why: the record is as it was");
	is(ask($session, $counted) - $errors, 5, "$why: counted");
	is(outcome_in($session, 'done', scope => 'plain', principal => 'shop'), 'replay',
		"$why: others are answered");
	return;
}

# A new idempotency key is refused before anything is granted.
sub is_refused ($why)
{
	is(outcome_in($session, 'new', scope => 'sealed'), 'ID503', "$why: a new key");
	is(ask($session, "SELECT count(*) FROM idempotency.record WHERE key = 'new'"), '0',
		"$why: nothing is granted");
	return;
}

# Abandoned claims: one in an encrypted scope, and behind it one in a plain scope.
my $abandoned = q{SELECT string_agg(scope || ' ' || status, ', ' ORDER BY scope) FROM idempotency.records WHERE key = 'left'};

sub abandon_claims
{
	foreach my $scope (qw(left_plain left_sealed))
	{
		call($primary, 'idem_policy_set', scope_pattern => $scope, abandon_after => '1 ms', on_abandon => 'fail',
			keep_history => \'true', encrypt => $scope eq 'left_sealed' ? \'true' : \'false');
		begin_in($scope, 'left', lease => '1 ms');
	}
	return;
}

# Due records, likewise.
sub due_records
{
	foreach my $scope (qw(due_sealed due_plain))
	{
		call($primary, 'idem_policy_set', scope_pattern => $scope, store_request => \'true',
			encrypt => $scope eq 'due_sealed' ? \'true' : \'false');
		fail_in($scope, 'due', begin_in($scope, 'due', method => 'POST', path => "/$scope-path")->{token},
			retryable => \'true', retry_after => '0');
	}
	return;
}

my $claims = q{SELECT string_agg(concat_ws(' ', scope, method, path, request, error), ', ' ORDER BY scope) FROM idem_claim_due('due*', 10)};

sub is_not_claimed ($why)
{
	my $counted = q{SELECT coalesce(sum(encryption_errors), 0) FROM idempotency.stats WHERE scope = 'due_sealed'};
	my $before = ask($session, $counted);
	ask($session, 'BEGIN');
	is(ask($session, $claims), 'due_plain POST /due_plain-path {"card": "due_plain-request"} due_plain-error',
		"$why: a worker gets what opens");
	ask($session, 'ROLLBACK');
	is(ask($session, $counted), $before + 1, "$why: what does not is counted");
	return;
}

sub is_claimed
{
	ask($session, 'BEGIN');
	is(ask($session, $claims),
		'due_plain POST /due_plain-path {"card": "due_plain-request"} due_plain-error, '
		  . 'due_sealed POST /due_sealed-path {"card": "due_sealed-request"} due_sealed-error',
		'with the file again: a worker gets both, opened');
	is(ask($session,
			q{SELECT DISTINCT method IS NULL AND path IS NULL AND sealed_path IS NOT NULL FROM idempotency.record WHERE scope = 'due_sealed'}),
		't', 'a path is sealed');
	ask($session, 'ROLLBACK');
	$primary->safe_psql('postgres', "SELECT idem_forget('due', scope, 'shop') FROM idempotency.records WHERE key = 'due'");
	return;
}

# Only the test's own sweeper sweeps here.
sub is_passed_over ($why)
{
	like(ask($session, 'SELECT idem_cleanup()'), qr/^\d+$/, "$why: cleaning up goes on");
	is(ask($session, $abandoned), 'left_plain failed, left_sealed in_progress',
		"$why: what can't be sealed is passed over");
	cmp_ok(ask($session, "SELECT coalesce(sum(encryption_errors), 0) FROM idempotency.stats WHERE scope = 'left_sealed'"),
		'>', 0, "$why: and counted");
	return;
}

sub is_given_up
{
	ask($session, 'SELECT idem_cleanup()');
	is(ask($session, $abandoned), 'left_plain failed, left_sealed failed', 'with the file again: it is given up');
	$primary->safe_psql('postgres', "SELECT idem_forget('left', scope, 'shop') FROM idempotency.records WHERE key = 'left'");
	return;
}

subtest 'without a key file everything encrypted is closed' => sub {
	$primary->append_conf('postgresql.conf', 'idempotency.cleanup_interval = 0');
	$primary->reload;
	abandon_claims();
	due_records();
	my $token = begin_in('sealed', 'alive', lease => '1 hour')->{token};
	my $resolved = begin_in('sealed', 'dropped', lease => '1 hour')->{token};
	ask($session, "SELECT idem_once('once', 'sealed')");
	unlink "$folder/primary";
	$primary->reload;
	wait_until { ask($session, "SELECT idem_get('done', 'sealed', 'shop')") eq 'ID503' } 'no keys';
	is_closed('ID503', 'no file');
	is_refused('no file');
	is(ask($session, "SELECT idem_complete('alive', 200, 'sealed-body'::text, scope => 'sealed', principal => 'shop', token => $token)"),
		'ID503', 'no file: a result that can\'t be sealed is not recorded');
	is(ask($session, "SELECT idem_extend('alive', $token, scope => 'sealed', principal => 'shop') > now()"),
		't', 'no file: a heartbeat needs no key');
	is(ask($session, "SELECT idem_once('once', 'sealed')"), 'f', 'no file: a call that stores nothing works');
	is(ask($session, "SELECT idem_resolve('dropped', 'release', 'sealed', 'shop', even_if_running => true), idem_forget('dropped', 'sealed', 'shop')"),
		't|t', 'no file: an operator can release');
	is(ask($session, "SELECT why FROM idempotency.encryption_keys WHERE key_id IS NULL"),
		'The key file cannot be opened: No such file or directory.', 'no file: the view says so');
	is(ask($session, 'CALL idem_reseal()'), 'ID503', 'no file: nothing to seal with');
	is_passed_over('no file');
	is_not_claimed('no file');
	is(ask($session, "SELECT idem_attempts('retried', 'sealed', 'shop')"), 'ID503', 'no file: idem_attempts');
	is(ask($session, "SELECT count(*) FROM idem_attempts('retried', 'plain', 'shop')"), '2', 'no file: of others it tells');
	my $note = q{SELECT outcome, record->>'status', record ? 'holder', request->>'stored', notes[1] FROM };
	is(ask($session, $note . q{idem_explain('done', '{"card": "sealed-request"}', 'sealed', 'shop')}),
		"replay|completed|f|true|Encrypted values of the record cannot be opened here: idem_begin raises an error, and"
		  . " the request is assumed to be the record's. The key file cannot be opened: No such file or directory.",
		'no file: idem_explain says why');
	like(ask($session, $note . q{idem_explain('unknown', NULL, 'sealed', 'shop')}),
		qr/^execute\|.*Values cannot be encrypted here, so idem_begin raises an error \(ID503\)/,
		'no file: also of a new key');
	take_keys($primary, 'a');
	is_given_up();
	is_claimed();
	is(ask($session, "SELECT idem_complete('alive', 200, 'sealed-body'::text, scope => 'sealed', principal => 'shop', token => $token)"),
		't', 'with the file again: it is recorded');
	like(told($primary, 'sealed', 'done'), qr/^completed 201/, 'and answered');
};

subtest 'files that are not taken' => sub {
	my $file = "$folder/primary";
	my $why = sub { ask($session, "SELECT why FROM idempotency.encryption_keys WHERE key_id IS NULL") };

	chmod 0640, $file or die "chmod: $!";
	$primary->reload;
	wait_until { $why->() ne '' } 'the file is read again';
	like($why->(), qr/^The key file has group or world access/, 'readable by others');
	is_closed('ID503', 'readable by others');
	unlink $file;
	append_to_file($file, "a short\n");
	chmod 0600, $file or die "chmod: $!";
	is($why->(), 'Line 1 of the key file cannot be used. Its key is not the base64 of 32 bytes.',
		'a line that makes no sense');
	unlink $file;
	append_to_file($file, '#' x 20000);
	chmod 0600, $file or die "chmod: $!";
	is($why->(), 'The key file has more than 16384 bytes.', 'a large one');
	unlink $file;
	mkdir $file or die "mkdir: $!";
	is($why->(), 'The key file is not a regular file.', 'a folder');
	rmdir $file;
	my $inside = $primary->data_dir . '/keys';
	mkdir $inside or die "mkdir: $!";
	keys_in('primary', 'a');
	rename $file, "$inside/primary" or die "rename: $!";
	symlink "$inside/primary", $file or die "symlink: $!";
	is($why->(), 'A symbolic link in its path leads into the data directory.', 'a link into the data directory');
	unlink $file, "$inside/primary";
	rmdir $inside;
	take_keys($primary, 'a');

	foreach my $path ('keys', $primary->data_dir . '/keys', $primary->data_dir . '/base/../keys')
	{
		$primary->append_conf('postgresql.conf', "idempotency.encryption_key_file = '$path'");
		my $offset = -s $primary->logfile;
		$primary->reload;
		$primary->wait_for_log(qr/invalid value for parameter "idempotency.encryption_key_file"/, $offset);
		is(ask($session, 'SHOW idempotency.encryption_key_file'), $file, "not $path");
	}
	$primary->append_conf('postgresql.conf', "idempotency.encryption_key_file = '$file'");
	$primary->reload;
	$primary->safe_psql('postgres', "CREATE ROLE app LOGIN; SELECT idem_grant('app')");
	is($primary->safe_psql('postgres',
		"SELECT count(*) FROM pg_settings WHERE name = 'idempotency.encryption_key_file'",
		extra_params => [ '-U', 'app' ]), '0', 'other roles do not see the path');
	$primary->psql('postgres', "SELECT idem_attempts('retried', 'sealed', 'shop')",
		stderr => \my $refusal, extra_params => [ '-U', 'app' ]);
	like($refusal, qr/permission denied for function idem_attempts/, 'attempts are not shown either');
};

subtest 'a wrong key opens nothing' => sub {
	my $token = begin_in('sealed', 'mixed', lease => '1 hour')->{token};
	abandon_claims();
	take_keys($primary, [ 'a', 'x' ]);
	is_closed('ID500', 'another key of that id');
	like(ask($session, q{SELECT notes FROM idem_explain('done', NULL, 'sealed', 'shop')}),
		qr/Column \w+ of the record could not be opened with the key \\"a\\"\./, 'another key of that id: idem_explain');
	is(ask($session, "SELECT idem_complete('mixed', 200, 'sealed-body'::text, scope => 'sealed', principal => 'shop', token => $token)"),
		'ID503', 'another key of that id: nothing is added to a record that it cannot open');
	is(ask($session, "SELECT idem_checkpoint('mixed', 'sealed-point', scope => 'sealed', principal => 'shop', token => $token)"),
		'ID503', 'another key of that id: a checkpoint adds nothing either');
	is_refused('another key of that id');
	is(ask($session, 'CALL idem_reseal()'), 'ID503', 'another key of that id: nothing is sealed with it');
	is_passed_over('another key of that id');
	is($primary->safe_psql('postgres', 'SELECT key_id, available, current, records, why FROM idempotency.encryption_keys'),
		'a|f|t|19|This database has used another key under this id.', 'another key of that id: the view says so');
	like(ask($session, q{SELECT notes[1] FROM idem_explain('new', NULL, 'sealed', 'shop')}),
		qr/ID503.*The key "a" of the key file is not the one that this database has used/, 'and so does idem_explain');
	$primary->safe_psql('postgres', "SELECT idem_forget('left', scope, 'shop') FROM idempotency.records WHERE key = 'left'");
	my $verified = 'SELECT key_id, records, unopened, scope, principal, why FROM idem_verify_sealed()';
	is(ask($session, $verified),
		'a|18|18|sealed|shop|Column fingerprint of the record could not be opened with the key "a".', 'a check of all values tells');
	take_keys($primary, 'b');
	is(ask($session, $verified), 'a|18|18|sealed|shop|The key file has no key with the id "a".', 'also of a missing key');
	is_closed('ID503', 'no key of that id');
	is(key_rows($primary), 'a f f 18, b t t 0', 'the view tells which one is missing');
	like(ask($session, q{SELECT notes FROM idem_explain('done', NULL, 'sealed', 'shop')}),
		qr/The key file has no key with the id \\"a\\"\./, 'and idem_explain');
	my ($remaining, undef, $warning) = (0);
	$primary->psql('postgres', 'CALL idem_reseal()', stdout => \$remaining, stderr => \$warning);
	is($remaining, '18', 'nothing can be sealed anew');
	like($warning, qr/WARNING:  18 records could not be decrypted/, 'and that is reported');
	take_keys($primary, 'a');
	is(key_rows($primary), 'a t t 18', 'nothing has changed');
	is(ask($session, $verified), 'a|18|0|||', 'and all values open');
	complete_in('sealed', 'mixed', $token);
	like(told($primary, 'sealed', 'mixed'), qr/sealed-body/, 'and the answer is recorded with the right one');
	is(ask($session, "SELECT idem_forget('mixed', 'sealed', 'shop')"), 't', 'and forgotten');
};

# Their check values are in a table, where the first transaction to use a key writes it.
subtest 'the first use of a key' => sub {
	my $known = q{SELECT string_agg(key_id, ' ' ORDER BY key_id COLLATE "C") FROM idempotency.encryption_key};
	is(ask($session, $known), 'a', 'only keys that have sealed something are known');
	take_keys($primary, [ 'first', 'f' ], 'a');
	my ($one, $two) = (session($primary), session($primary));
	ask($_, 'BEGIN; SET LOCAL lock_timeout = 1') foreach $one, $two;
	is(outcome_in($one, 'one', scope => 'sealed', principal => 'shop', holder => 'me'), 'execute', 'a session uses it');
	is(outcome_in($two, 'two', scope => 'sealed', principal => 'shop', holder => 'me'), 'execute', 'another one does not wait');
	ask($_, 'ROLLBACK') foreach $one, $two;
	is(ask($session, $known), 'a', 'a rollback takes it back');
	ask($one, 'BEGIN; SAVEPOINT s');
	outcome_in($one, 'one', scope => 'sealed', principal => 'shop', holder => 'me');
	ask($one, 'ROLLBACK TO s');
	is(outcome_in($one, 'one', scope => 'sealed', principal => 'shop', holder => 'me'), 'execute', 'to a savepoint as well');
	ask($one, "SELECT idem_complete('one', 200, 'sealed-body'::text, scope => 'sealed', principal => 'shop')");
	ask($one, 'COMMIT');
	is(ask($session, $known), 'a first', 'a commit keeps it');
	take_keys($primary, [ 'first', 'y' ], 'a');
	is(outcome_in($two, 'two', scope => 'sealed', principal => 'shop', holder => 'me'), 'ID503',
		'another key under its id is refused, before it seals anything');
	$primary->safe_psql('postgres', 'CREATE ROLE writer LOGIN; GRANT pg_write_all_data TO writer');
	foreach my $sql ('DELETE FROM idempotency.encryption_key', 'TRUNCATE idempotency.encryption_key',
		q{UPDATE idempotency.encryption_key SET check_value = ''})
	{
		isnt($primary->psql('postgres', $sql, extra_params => [ '-U', 'writer' ]), 0, "not for other roles: $sql");
	}
	is(ask($session, "SELECT idem_forget('one', 'sealed', 'shop')"), 't', 'its records have gone');
	is(outcome_in($two, 'two', scope => 'sealed', principal => 'shop', holder => 'me'), 'ID503', 'it is still refused');
	ask($session, "DELETE FROM idempotency.encryption_key WHERE key_id = 'first'");
	ask($two, 'BEGIN');
	is(outcome_in($two, 'two', scope => 'sealed', principal => 'shop', holder => 'me'), 'execute',
		'until the owner of the table removes its check value');
	ask($two, 'ROLLBACK');
	$_->quit foreach $one, $two;
	take_keys($primary, 'a');
};

subtest 'the list of keys reads only sealed records' => sub {
	# The SQL store keeps a lock for each key of a transaction.
	$primary->safe_psql('postgres', q{DO $$ BEGIN FOR i IN 1 .. 20 LOOP
		PERFORM idem_once(format('%s of %s', n, i), 'many') FROM generate_series(1, 1000) n;
		COMMIT; END LOOP; END $$});
	my $plan = $primary->safe_psql('postgres',
		'EXPLAIN (ANALYZE, BUFFERS, TIMING off, SUMMARY off) SELECT * FROM idempotency.encryption_keys;' x 2);
	# The first run reads catalogs as well.
	my $hit = ($plan =~ /Buffers: shared hit=(\d+)/g)[-1];
	my $pages = $primary->safe_psql('postgres', q{SELECT pg_relation_size('idempotency.record') / 8192});
	cmp_ok($hit, '<', $pages, 'fewer pages than the table has');
	$primary->safe_psql('postgres', q{DELETE FROM idempotency.record WHERE scope = 'many'});
};

# ---- rows that were changed ----

subtest 'a sealed value opens in its own place only' => sub {
	my $at = "WHERE (scope, key) = ('sealed', 'done')";
	my $save = "CREATE TABLE saved AS SELECT * FROM idempotency.record $at";
	my @damage = (
		[ 'a bit', "UPDATE idempotency.record SET sealed_body = set_bit(sealed_body, 200, 1 - get_bit(sealed_body, 200)) $at" ],
		[ 'the version', "UPDATE idempotency.record SET sealed_body = set_byte(sealed_body, 0, 2) $at" ],
		[ 'the end', "UPDATE idempotency.record SET sealed_body = substr(sealed_body, 1, 20) $at" ],
		[ 'nothing', "UPDATE idempotency.record SET sealed_body = '' $at" ],
		[ 'the salt', "UPDATE idempotency.record SET salt = set_byte(salt, 0, 255 - get_byte(salt, 0)) $at" ],
		[ 'no salt', "UPDATE idempotency.record SET salt = NULL $at" ],
		[ 'a short salt', "UPDATE idempotency.record SET salt = substr(salt, 2) $at" ],
		[ 'another column', "UPDATE idempotency.record SET sealed_body = sealed_headers $at" ],
		[ 'another row', "UPDATE idempotency.record r SET sealed_body = o.sealed_body FROM idempotency.record o WHERE (r.scope, r.key, o.scope, o.key) = ('sealed', 'done', 'sealed', 'executed')" ],
		[ 'all of another row', "UPDATE idempotency.record r SET (sealed_body, sealed_by, salt, sealed_fingerprint, sealed_headers, sealed_holder) = (o.sealed_body, o.sealed_by, o.salt, o.sealed_fingerprint, o.sealed_headers, o.sealed_holder) FROM idempotency.record o WHERE (r.scope, r.key, o.scope, o.key) = ('sealed', 'done', 'sealed', 'resolved')" ]);

	ask($session, $save);
	foreach my $damage (@damage)
	{
		my ($what, $sql) = @$damage;
		ask($session, $sql);
		is(ask($session, "SELECT idem_get('done', 'sealed', 'shop')"), 'ID500', "$what: idem_get");
		is(outcome_in($session, 'done', scope => 'sealed', principal => 'shop',
			request => \q('{"card": "sealed-request"}')), 'ID500', "$what: idem_begin");
		ask($session, "DELETE FROM idempotency.record $at");
		ask($session, 'INSERT INTO idempotency.record SELECT * FROM saved');
	}
	is(begin_in('sealed', 'done')->{outcome}, 'replay', 'as it was, it is replayed');
	ask($session, "UPDATE saved SET principal = 'thief'");
	ask($session, 'INSERT INTO idempotency.record SELECT * FROM saved');
	is(ask($session, "SELECT idem_get('done', 'sealed', 'thief')"), 'ID500', 'another principal');
	is(ask($session, "SELECT idem_forget('done', 'sealed', 'thief')"), 't', 'it can be forgotten');
};

# ---- policies that change ----

subtest 'records from before a change of the policy stay readable' => sub {
	my $token = begin_in('plain', 'changed', lease => '1 hour')->{token};
	call($primary, 'idem_policy_alter', scope_pattern => 'plain', encrypt => \'true');
	like(told($primary, 'plain', 'done'), qr/plain-body plain-holder$/, 'in the clear');
	complete_in('plain', 'changed', $token);
	like(told($primary, 'plain', 'changed'), qr/plain-body plain-holder$/, 'half and half');
	is($primary->safe_psql('postgres', q{SELECT sealed_by, holder, sealed_holder IS NOT NULL, request, fingerprint
		FROM idempotency.record WHERE (scope, key) = ('plain', 'changed')}),
		'a||t||', 'its clear values are sealed with its answer');
	call($primary, 'idem_policy_alter', scope_pattern => 'sealed', encrypt => \'false', reason => 'a test');
	like(told($primary, 'sealed', 'done'), qr/sealed-body sealed-holder$/, 'sealed');
	checkpoint_in('sealed', 'running', record_token('running'));
	like(told($primary, 'sealed', 'running'), qr/sealed-point/, 'and sealed values stay sealed');
	is($primary->safe_psql('postgres', q{SELECT count(recovery_point) FROM idempotency.record WHERE scope = 'sealed'}),
		'0', 'also where more is kept');
	call($primary, 'idem_policy_alter', scope_pattern => 'sealed', encrypt => \'true');
};

sub record_token ($key)
{
	return $primary->safe_psql('postgres',
		"SELECT token FROM idempotency.record WHERE (scope, key) = ('sealed', '$key')");
}

# ---- rotation ----

# By an operator, who may read no table.
$primary->safe_psql('postgres', "CREATE ROLE support LOGIN; SELECT idem_grant('support', operator => true, administrator => true)");

sub reseal (@options)
{
	$primary->psql('postgres', 'CALL idem_reseal(' . join(', ', @options) . ')',
		stdout => \my $remaining, stderr => \my $messages, extra_params => [ '-U', 'support' ]);
	return ($remaining, $messages);
}

# Statements that began before a reload may still use the older keys.
sub wait_for_statements
{
	my $now = $primary->safe_psql('postgres', 'SELECT clock_timestamp()');

	$primary->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity
		WHERE state = 'active' AND query_start < '$now' AND backend_type = 'client backend')")
	  or die 'a statement does not end';
	return;
}

subtest 'keys are changed while there is work' => sub {
	call($primary, 'idem_policy_set', scope_pattern => 'load', store_request => \'true', encrypt => \'true');
	append_to_file("$folder/load.sql", <<'END');
\set number random(1, 300)
BEGIN;
SELECT outcome = 'execute' AS go FROM idem_begin(:number::text, jsonb_build_object('n', :number), 'load') \gset
\if :go
SELECT idem_complete(:number::text, 200, :number::text, '{"X": "y"}', 'load');
\endif
COMMIT;
END
	my $output = '';
	my $load = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '4', '-T', '3600', '-f', "$folder/load.sql",
			$primary->connstr('postgres') ],
		'<', \undef, '>&', \$output);
	my $executed = "SELECT count(*) FROM idempotency.record WHERE scope = 'load'";
	wait_until { ask($session, $executed) > 20 } 'some requests';
	my @old = ('a');
	foreach my $new (qw(b c d))
	{
		take_keys($primary, $new, @old);
		my $answered = "SELECT replayed FROM idempotency.stats WHERE scope = 'load'";
		my $before = ask($session, $answered);
		wait_until { (reseal(7))[0] eq '0' } "nothing is left that $old[0] has sealed";
		wait_until { ask($session, $answered) > $before } 'requests go on';
		wait_for_statements();
		wait_until { (reseal(7))[0] eq '0' } "not by statements with the old key either";
		take_keys($primary, $new);
		@old = ($new);
		unlike(key_rows($primary), qr/\w f f \d/, "$new: no key is missing");
		is($primary->safe_psql('postgres', "SELECT string_agg(DISTINCT sealed_by, ' ') FROM idempotency.attempt"),
			$new, "$new: no older key has sealed an attempt either");
		like(history($primary, 'sealed', 'failed'), qr/^1 sealed-holder failed 422 sealed-error$/, "$new: which open");
	}
	$load->signal('TERM');
	eval { $load->finish };
	unlike($output, qr/error|abort/i, 'no client got an error');
	is(ask($session, "SELECT sum(encryption_errors) FROM idempotency.stats WHERE scope = 'load'"), '0',
		'none is counted');
	like(told($primary, 'sealed', 'done'), qr/sealed-body sealed-holder$/, 'older answers are replayed');
	is(begin_in('sealed', 'done')->{outcome}, 'replay', 'and replayed');
};

# The audit rows of later calls: the caller, the key, whether any record was resealed, and how many
# remain.
sub reseals_since ($moment)
{
	return $primary->safe_psql('postgres', qq{
		SELECT decided_by, after ->> 'key', (after ->> 'sealed')::integer > 0, after ->> 'remaining' FROM idempotency.decisions
		WHERE action = 'reseal' AND decided_at > '$moment' ORDER BY decided_at});
}

subtest 'the audit has the work of a cancelled call' => sub {
	take_keys($primary, 'x', 'd');
	my $before = $primary->safe_psql('postgres', q{
		CREATE FUNCTION at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_advisory_xact_lock(7);
			RETURN NEW;
		END $$;
		CREATE TRIGGER at_gate BEFORE UPDATE ON idempotency.record
			FOR EACH ROW WHEN (OLD.key = 'done') EXECUTE FUNCTION at_gate();
		SELECT clock_timestamp()});
	my ($keeper, $support) = (session($primary), session($primary, undef, '-U', 'support'));
	my $pid = pid_of($support);
	ask($keeper, 'SELECT pg_advisory_lock(7)');
	ask_later($support, 'CALL idem_reseal(1)');
	wait_until_blocked($primary, $pid);
	is(reseals_since($before), 'support|x||', 'the audit names the caller');
	$primary->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	is(ask($support), '57014', 'cancelled');
	is(reseals_since($before), 'support|x||', 'and stays so');
	ask($keeper, 'SELECT pg_advisory_unlock(7)');
	$keeper->quit;
	$primary->safe_psql('postgres', q{
		DROP TRIGGER at_gate ON idempotency.record;
		DROP FUNCTION at_gate()});
	is(ask($support, 'CALL idem_reseal()'), '0', 'the next call does the rest');
	is(reseals_since($before), "support|x||\nsupport|x||\nsupport|x|t|0", 'and says so with its end');
	$support->quit;
};

subtest 'a record in use is left, and reported' => sub {
	take_keys($primary, 'e', 'x');
	my $holder = session($primary);
	my $token = record_token('running');
	ask($holder, 'BEGIN');
	is(ask($holder, "SELECT idem_extend('running', $token, scope => 'sealed', principal => 'shop') > now()"),
		't', 'a session works on it');
	my ($remaining, $messages) = reseal();
	is($remaining, '1', 'it is left');
	like($messages, qr/NOTICE:  1 record was in use/, 'and reported');
	ask($holder, 'COMMIT');
	is((reseal())[0], '0', 'none afterwards');
	is(ask($holder, 'BEGIN; CALL idem_reseal()'), '25001', 'not within a transaction');
	$holder->quit;
	is(ask($session, 'CALL idem_reseal(0)'), '22023', 'a batch has at least one record');
};

# Resealing, retries and rollbacks of before have changed entries of the partial index.
subtest 'the index of sealed rows is whole' => sub {
	is($primary->safe_psql('postgres', q{CREATE EXTENSION amcheck;
		SELECT count(bt_index_check(i.indexrelid, heapallindexed => true)::text) FROM pg_index i
		 WHERE i.indrelid IN ('idempotency.record'::regclass, 'idempotency.attempt'::regclass)}), '8', 'no entry is missing');
};

# ---- elsewhere ----

subtest 'a dump opens where the keys are' => sub {
	begin_in('sealed', 'cyrillic', lease => '1 hour', holder => \q(U&'\0437\0438\043c\0430'));
	$primary->run_log([ 'pg_dump', '-Fc', '-f', "$folder/dump", $primary->connstr('postgres') ]);
	my $other = new_node('other', -extension => 0,
		'idempotency.encryption_key_file' => keys_in('other', 'z', 'e'));
	$other->safe_psql('postgres', "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
	foreach my $database (qw(postgres latin))
	{
		$other->run_log([ 'pg_restore', '--no-owner', '--no-privileges', '-d', $other->connstr($database), "$folder/dump" ]);
		is($other->safe_psql($database, q{SELECT convert_from(body, 'UTF8'), holder FROM idem_get('done', 'sealed', 'shop')}),
			'sealed-body|sealed-holder', "$database: opened");
	}
	is($other->safe_psql('latin', 'CALL idem_reseal()'), '0',
		'values outside the encoding of the database can be sealed again, too');
	is($other->safe_psql('postgres', 'CALL idem_reseal()'), '0', 'and sealed with a key of its own');
	unlike($other->safe_psql('postgres', q{SELECT string_agg(DISTINCT sealed_by, '') FROM idempotency.record}),
		qr/[^z]/, 'all of it');
	$other->stop;
	my $third = new_node('third', -extension => 0,
		'idempotency.encryption_key_file' => keys_in('third', [ 'e', 'y' ]));
	$third->run_log([ 'pg_restore', '--no-owner', '--no-privileges', '-d', $third->connstr('postgres'), "$folder/dump" ]);
	$third->psql('postgres', "SELECT idem_begin('new', scope => 'sealed')", stderr => \my $error);
	like($error, qr/The key "e" of the key file is not the one/, 'another key under an id of the dump is refused there');
	$third->stop;
};

$session->quit;
$primary->stop;
done_testing();
