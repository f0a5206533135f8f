# The claims of docs/security.md that no other test covers: who owns what, what each role may use,
# what errors reveal, and how much one caller can ask for.
use Idem;

my $node = new_node('main', max_connections => 20);
my $owner = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', q{
	CREATE ROLE nobody LOGIN;
	CREATE ROLE app LOGIN;
	CREATE ROLE support LOGIN;
	CREATE ROLE upkeep LOGIN;
	CREATE ROLE worker LOGIN;
	SELECT idem_grant('app'), idem_grant('support', operator => true), idem_grant('upkeep', administrator => true),
		idem_grant('worker', worker => true)});

# The objects of the extension in one catalog.
sub members ($catalog)
{
	return "pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'idempotency'"
	  . " JOIN $catalog o ON o.oid = d.objid"
	  . " WHERE d.classid = '$catalog'::regclass AND d.refclassid = 'pg_extension'::regclass"
	  . " AND d.deptype = 'e'";
}

sub count_of ($query, $database = undef)
{
	return $node->safe_psql($database // 'postgres', "SELECT count(*) FROM $query");
}

# The names of functions that a role may call.
sub callable ($role)
{
	return $node->safe_psql('postgres',
		q{SELECT string_agg(DISTINCT o.proname::text, ' ' ORDER BY o.proname::text) FROM }
		  . members('pg_proc') . " AND has_function_privilege('$role', o.oid, 'EXECUTE')");
}

# Statements of the audit's chain. They run with the caller's rights on its tables.
my $chain = "'{digest_of_decision,digest_of_names,digest_of_texts,faults_of_audit,link_decisions,next_link,remove_old_decisions}'";
my $helpers = 'digest_of_decision digest_of_names digest_of_texts faults_of_audit idem_backoff idem_event_id idem_fingerprint'
  . ' idem_http_status idem_key idem_parse_key idem_problem idem_response is_record link_decisions next_link remove_old_decisions';

subtest 'rights on functions' => sub {
	is(callable('nobody'), $helpers, 'PUBLIC: the helpers, the check of the records and the chain of the audit');
	is(count_of(members('pg_proc') . qq{ AND has_function_privilege('nobody', o.oid, 'EXECUTE')
			AND (o.provolatile <> 'i' OR o.proparallel <> 's') AND o.proname <> ALL ($chain)}),
		'0', 'which are pure');
	is(count_of(members('pg_proc') . qq{ AND o.proname = ANY ($chain) AND o.prosecdef}), '0', 'or have the rights of the caller');
	my @more = split / /, callable('app');
	is(join(' ', grep { " $helpers " !~ / $_ / } @more),
		'idem_begin idem_checkpoint idem_complete idem_execute idem_extend idem_fail idem_get'
		  . ' idem_once idem_once_each idem_release idem_unknown',
		'idem_grant: the protocol');
	my %known = map { $_ => 1 } @more;
	is(join(' ', grep { !$known{$_} } split / /, callable('support')),
		'idem_attempts idem_audit_verify idem_await_claims idem_erase idem_erase_decisions idem_explain idem_forget idem_forget_principal idem_policy'
		  . ' idem_resolve idem_resolve_all idem_resolve_idle',
		'idem_grant(operator): the decisions');
	is(join(' ', grep { !$known{$_} } split / /, callable('upkeep')),
		'idem_audit_verify idem_cleanup idem_policy idem_policy_alter idem_policy_drop idem_policy_set idem_reseal idem_stats_reset idem_verify_sealed',
		'idem_grant(administrator): policies and upkeep');
	is(join(' ', grep { !$known{$_} } split / /, callable('worker')), 'idem_claim_due', 'idem_grant(worker): records that are due');
};

subtest 'no privileges on tables' => sub {
	foreach my $role (qw(nobody app support upkeep worker))
	{
		is(count_of(members('pg_class') . qq{ AND o.relkind IN ('r', 'v') AND (
				has_table_privilege('$role', o.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
				OR has_any_column_privilege('$role', o.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))}),
			'0', "$role: on no table and no view");
		is($node->safe_psql('postgres',
				"SELECT has_schema_privilege('$role', 'idempotency', 'USAGE, CREATE')"),
			'f', "$role: no privilege on their schema either");
	}
};

# As administrators give a role that only reads all tables that are made later.
subtest 'default privileges' => sub {
	$node->safe_psql('postgres',
		'CREATE ROLE reader; CREATE DATABASE closed; CREATE DATABASE opened');
	$node->safe_psql('opened', q{
		ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO reader, pg_monitor;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO reader;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON ROUTINES TO reader;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO reader});
	my %rights;
	foreach my $database (qw(closed opened))
	{
		$node->safe_psql($database, 'CREATE EXTENSION idempotency');
		$rights{$database} = join "\n", map {
			my ($catalog, $kind, $name, $acl, $owner) = @$_;
			$node->safe_psql($database,
				"SELECT $name, a.grantee::regrole, a.privilege_type FROM " . members($catalog)
				  =~ s/JOIN $catalog o ON o.oid = d.objid/JOIN $catalog o ON o.oid = d.objid,
					aclexplode(coalesce(o.$acl, acldefault('$kind', o.$owner))) a/r
				  . ' ORDER BY 1, 2, 3')
		} ([ 'pg_class', 'r', 'o.oid::regclass::text', 'relacl', 'relowner' ],
			[ 'pg_proc', 'f', 'o.oid::regprocedure::text', 'proacl', 'proowner' ],
			[ 'pg_namespace', 'n', 'o.nspname', 'nspacl', 'nspowner' ]);
	}
	like($rights{closed}, qr/idempotency\.record\|postgres\|SELECT/, 'rights are compared');
	is($rights{opened}, $rights{closed}, 'the rights are those of the script');
	$node->safe_psql('postgres', 'DROP DATABASE opened');
	$node->safe_psql('postgres', 'DROP DATABASE closed; DROP ROLE reader');
};

subtest 'ownership' => sub {
	foreach (
		[ 'pg_class', 'relowner' ],
		[ 'pg_proc', 'proowner' ],
		[ 'pg_type', 'typowner' ],
		[ 'pg_namespace', 'nspowner' ])
	{
		my ($catalog, $column) = @$_;
		my $objects = members($catalog);
		isnt(count_of($objects), '0', "$catalog has objects of the extension");
		is(count_of("$objects AND o.$column <> '$owner'::regrole"), '0', '... all of its creator');
	}
	is(count_of(members('pg_proc') . ' AND (o.prosecdef OR o.proconfig IS NOT NULL)'),
		'0', 'no function is SECURITY DEFINER');
};

subtest 'callers need no right on the tables, with any owner' => sub {
	add_database($node, 'handed', 'public');
	$node->safe_psql('handed', q{
		CREATE ROLE keeper;
		GRANT USAGE, CREATE ON SCHEMA idempotency TO keeper;
		ALTER TABLE idempotency.record OWNER TO keeper;
		ALTER TABLE idempotency.policy OWNER TO keeper;
		SELECT idem_grant('app')});
	my $session = session($node, 'handed');
	ask($session, 'SET SESSION AUTHORIZATION app');
	is(ask($session, q{SELECT idem_once('k'), idem_once('k')}), 't|f', 'the protocol works');
	is(ask($session, 'SELECT current_user, session_user'), 'app|app', 'as oneself again');
	is(ask($session, 'SELECT count(*) FROM idempotency.record'), '42501', 'the table is closed');
	$session->quit;
};

# A role that may call the functions and knows the names of a record can read the record.
subtest 'a principal is any name that the caller gives' => sub {
	call($node, 'idem_policy_set', scope_pattern => 'own', allowed_role => 'support');
	my $session = session($node);
	foreach my $scope ('', 'own')
	{
		$node->safe_psql('postgres', "SELECT idem_once('paid', '$scope', 'alice')");
	}
	ask($session, 'SET SESSION AUTHORIZATION app');
	my $look = q{SELECT status FROM idem_get('paid', %s, 'alice')};
	is(ask($session, sprintf $look, q{''}), 'completed', 'a role with the grant may name any principal');
	is(ask($session, sprintf $look, q{'own'}), '42501', 'but not in the scope of other roles');
	$session->quit;
};

# Calls that fail, each full of data that the error must not repeat.
subtest 'errors name nothing of the request' => sub {
	$node->safe_psql('postgres', q{
		CREATE FUNCTION told(call text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			message text; detail text; hint text; code text;
		BEGIN
			EXECUTE call;
			RETURN 'no error';
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
				detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			RETURN concat_ws('|', code, message, detail, hint);
		END $$;
		SELECT idem_once('SECRET-1', '', 'SECRET-2');
		SELECT idem_begin('SECRET-3', principal => 'SECRET-2', lease => '1 hour');
		SELECT idem_policy_set('SECRET-4', allowed_role => 'support')});
	my %calls = (
		q{idem_complete('SECRET-0', principal => 'SECRET-2', token => 1)} => 'ID404',
		q{idem_complete('SECRET-3', principal => 'SECRET-2', token => 1)} => 'ID409',
		q{idem_complete('SECRET-3', principal => 'SECRET-2')} => '22004',
		q{idem_once('SECRET-3', '', 'SECRET-2', wait => '0')} => '55P03',
		q{idem_forget('SECRET-3', '', 'SECRET-2')} => '55006',
		q{idem_resolve('SECRET-1', 'fail', '', 'SECRET-2')} => '55000',
		q{idem_begin(repeat('SECRET-5', 50))} => '22023',
		q{idem_begin(E'SECRET-5\n')} => '22023',
		q{idem_begin('k', principal => repeat('SECRET-5', 50))} => '22023',
		q{idem_begin('k', holder => repeat('SECRET-5', 50))} => '22023',
		q{idem_begin('k', ('"SECRET-6' || repeat('x', 17000000) || '"')::jsonb)} => '54000',
		q{idem_complete('SECRET-3', headers => '{"SECRET 6": "x"}', token => 1)} => '22023',
		q{idem_complete('SECRET-3', headers => '{"X": {"SECRET-6": 1}}', token => 1)} => '22023',
		q{idem_complete('SECRET-3', 200, repeat('SECRET-6', 600000), principal => 'SECRET-2', token => 1)}
		  => '54000|ID409',
		q{SET ROLE app; SELECT idem_begin('SECRET-5', scope => 'SECRET-4')} => '42501');
	foreach my $sql (sort keys %calls)
	{
		my ($first, $then) = $sql =~ /^(SET ROLE app); SELECT (.*)/s ? ($1, $2) : ('SELECT', $sql);
		my $told = $node->safe_psql('postgres', "$first; SELECT told(\$call\$SELECT $then\$call\$)");
		$told =~ s/^\s+//;
		like($told, qr/^(?:$calls{$sql})\|/, "$then: $calls{$sql}");
		unlike($told, qr/SECRET/, '... and no secret');
	}
};

# Limits of one call. Each value is one above the maximum.
subtest 'limits of one call' => sub {
	my $session = session($node);
	my $call = sub { ask($session, 'SELECT outcome FROM ' . invocation('idem_begin', @_)) };

	ask($session, 'SET SESSION AUTHORIZATION app');
	is($call->(key => 'k' x 256), '22023', 'a key of 256 characters');
	is($call->(key => 'k', ttl => '36525 days 1 us'), '22023', 'a ttl over a century');
	is($call->(key => 'k', lease => '36525 days 1 us'), '22023', 'a lease over a century');
	is($call->(key => 'k', wait => '1 day 1 us'), '22023', 'a wait over a day');
	is($call->(key => 'k', fingerprint => '\x' . '00' x 65), '22023', 'a fingerprint of 65 bytes');
	is($call->(key => 'k', request => \"(repeat('[', 1001) || repeat(']', 1001))::jsonb"),
		'54000', 'a request of 1001 levels');
	is($call->(key => 'k', request => \"to_jsonb(repeat('x', 16 * 1024 * 1024))"),
		'54000', 'a request over 16 MiB');
	ask($session, 'BEGIN');
	is($call->(key => 'k'), 'execute', 'a claim');
	is(ask($session, q{SELECT idem_complete('k', 200, repeat('x', 4 * 1024 * 1024 + 1))}),
		'54000', 'a body over 4 MiB');
	ask($session, 'ROLLBACK');
	is(ask($session, q{SET idempotency.max_body_bytes = '1GB'}), '42501', 'no caller raises that');
	is(count_of(q{idempotency.record WHERE key = 'k'}), '0', 'nothing was stored');
	$session->quit;
};

# Also for a setting made before the library is loaded, when the server accepts any value.
subtest 'no caller shortens the memory' => sub {
	local $ENV{PGOPTIONS} = '-c idempotency.default_retention=1';
	my $session = $node->background_psql('postgres', on_error_stop => 0,
		extra_params => [ '-U', 'app' ]);
	ask($session, '\set VERBOSITY sqlstate');
	my $spans = sub {
		ask($session, qq{SELECT outcome FROM idem_begin('$_[0]')});
		return $node->safe_psql('postgres', qq{
			SELECT lease_until - claimed_at > '50 s', expires_at - claimed_at, retained_until - claimed_at
			  FROM idempotency.record WHERE key = '$_[0]'});
	};

	ask($session, "SET idempotency.$_") foreach q{default_ttl = '1 s'}, q{default_lease = '1 ms'};
	is($spans->('early'), 't|1 day|1 day', 'set before the library is loaded: of no effect');
	is(ask($session, "SET idempotency.$_"), '42501', "refused: $_")
	  foreach q{default_ttl = '1 s'}, q{default_retention = '1 s'}, q{default_lease = '1 ms'};
	is($spans->('late'), 't|1 day|1 day', '... so nothing has changed');
	$session->quit;
};

subtest 'how large a stored request may be' => sub {
	call($node, 'idem_policy_set', scope_pattern => 'stored', store_request => 'true');
	my $large = "SELECT outcome FROM idem_begin('large', to_jsonb(repeat('x', 5 * 1024 * 1024)), 'stored',"
	  . " fingerprint => '\\x00')";
	my $session = session($node);
	is(ask($session, $large), '54000', 'no larger than a body');
	is(record_state($node, 'large'), 'absent', 'and nothing is granted');
	$session->quit;
};

subtest 'limits that the application must set' => sub {
	is(begin_claim($node, 'long', lease => '36525 days')->{outcome}, 'execute', 'a long lease');
	is(call($node, 'idem_resolve', key => 'long', action => 'release', even_if_running => \'true'), 't', 'which an operator ends');
};

subtest 'locks of keys and pg_advisory_lock never meet' => sub {
	my ($claimer, $user) = map { session($node) } 1 .. 2;
	ask($claimer, 'BEGIN');
	is(outcome_in($claimer, 'locked'), 'execute', 'the lock of a key is held');
	my ($high, $low) = split /\|/, $node->safe_psql('postgres',
		'SELECT classid, objid FROM pg_locks WHERE objsubid = 18756');
	is(ask($user, "SELECT pg_try_advisory_lock((${high}::bigint << 32) | ${low}::bigint)"), 't',
		'the same number is free as a bigint');
	is(ask($user, "SELECT pg_try_advisory_lock(${high}::bigint::bit(32)::int, ${low}::bigint::bit(32)::int)"), 't',
		'and as two integers');
	$_->quit foreach $claimer, $user;
};

$node->stop;
done_testing();
