# Every function of the protocol and every way to send a call, on every node, for a principal whose
# shard is there and for one whose shard is elsewhere.
use Idem;
use Citus;

my @nodes = new_cluster('citus.shard_count' => 4);
my ($coordinator, $worker1, $worker2) = @nodes;
distribute();
my ($here, $there) = map { principal_on($_) } $worker1, $worker2;
my @everywhere = map { my $node = $_; map { [ $node, $_ ] } $here, $there } @nodes;

# The output of a script in one session on that node; NODE and TENANT are replaced.
sub script
{
	my ($node, $tenant, $sql, %options) = @_;

	my $name = $node->name;
	return join(' ', split /\n/, try_sql($node, $sql =~ s/NODE/$name/gr =~ s/TENANT/$tenant/gr, %options));
}

sub is_everywhere
{
	my ($sql, $expected, $what) = @_;

	is(script(@$_, $sql), $expected, "$what, asked on " . $_->[0]->name . " for $_->[1]") foreach @everywhere;
	return;
}

subtest 'functions' => sub {
	my %tested = map { $_ => 1 } qw(idem_begin idem_complete idem_fail idem_unknown idem_extend idem_checkpoint idem_release
	  idem_once idem_once_each idem_execute idem_get idem_explain idem_resolve idem_forget idem_resolve_idle idem_erase
	  idem_await_claims);
	is($coordinator->safe_psql('postgres', q{
			SELECT string_agg(DISTINCT proname, ' ' ORDER BY proname) FROM pg_proc
			 WHERE 'principal' = ANY (proargnames) AND proallargtypes IS NULL AND proname LIKE 'idem\_%'}),
		join(' ', sort keys %tested), 'these have a principal');
	$coordinator->safe_psql('postgres', q{SELECT idem_policy_set('silent', on_lease_expiry => 'unknown')});
	my $claim = q{SELECT token AS t FROM idem_begin('KEY NODE', principal => 'TENANT') \gset
		};
	my %functions = (
		'complete, text' => [ q{SELECT idem_complete('KEY NODE', 201, 'a'::text, principal => 'TENANT', token => :t)}, 't' ],
		'complete, bytea' => [ q{SELECT idem_complete('KEY NODE', 201, 'a'::bytea, principal => 'TENANT', token => :t)}, 't' ],
		'complete, jsonb' => [ q{SELECT idem_complete('KEY NODE', 201, '{}'::jsonb, principal => 'TENANT', token => :t)}, 't' ],
		'complete, json' => [ q{SELECT idem_complete('KEY NODE', 201, '{}'::json, principal => 'TENANT', token => :t)}, 't' ],
		'fail, text' => [ q{SELECT idem_fail('KEY NODE', 'e', false, 500, 'a'::text, principal => 'TENANT', token => :t);
			SELECT outcome || error FROM idem_begin('KEY NODE', principal => 'TENANT')}, 't replaye' ],
		'fail, bytea' => [ q{SELECT idem_fail('KEY NODE', 'e', false, 500, 'a'::bytea, principal => 'TENANT', token => :t)}, 't' ],
		'fail, jsonb' => [ q{SELECT idem_fail('KEY NODE', 'e', true, 500, '{}'::jsonb, principal => 'TENANT', token => :t, retry_after => '1h');
			SELECT outcome FROM idem_begin('KEY NODE', principal => 'TENANT')}, 't retry_later' ],
		'fail, json' => [ q{SELECT idem_fail('KEY NODE', 'e', false, 500, '{}'::json, principal => 'TENANT', token => :t)}, 't' ],
		'fail, uncertain' => [ q{SELECT token AS t FROM idem_begin('KEY NODE', scope => 'silent', principal => 'TENANT') \gset
			SELECT idem_fail('KEY NODE', 'e', true, scope => 'silent', principal => 'TENANT', token => :t, uncertain => true);
			SELECT outcome FROM idem_begin('KEY NODE', scope => 'silent', principal => 'TENANT')}, 't unknown' ],
		'unknown' => [ q{SELECT idem_unknown('KEY NODE', 'e', 'ch_1', principal => 'TENANT', token => :t);
			SELECT outcome FROM idem_begin('KEY NODE', principal => 'TENANT')}, 't unknown' ],
		'extend' => [ q{SELECT idem_extend('KEY NODE', :t, '1h', principal => 'TENANT') > now() + interval '50 min'}, 't' ],
		'checkpoint' => [ q{SELECT idem_checkpoint('KEY NODE', 'half', '{"a": 1}', principal => 'TENANT', token => :t) > now();
			SELECT recovery_point, state FROM idem_get('KEY NODE', principal => 'TENANT')}, 't half|{"a": 1}' ],
		'release' => [ q{SELECT idem_release('KEY NODE', principal => 'TENANT', token => :t);
			SELECT idem_get('KEY NODE', principal => 'TENANT') IS NULL}, 't t' ],
		'forget' => [ q{SELECT idem_complete('KEY NODE', 200, principal => 'TENANT', token => :t);
			SELECT idem_forget('KEY NODE', principal => 'TENANT');
			SELECT idem_forget('KEY NODE', principal => 'TENANT')}, 't t f' ]);
	$functions{resolve} = [ q{SELECT idem_release('KEY NODE', principal => 'TENANT', token => :t);
		SELECT 1 FROM idem_begin('KEY NODE', principal => 'TENANT', lease => '1us');
		SELECT idem_resolve('KEY NODE', 'complete', principal => 'TENANT', status_code => 204);
		SELECT outcome, status_code FROM idem_begin('KEY NODE', principal => 'TENANT')}, 't 1 t replay|204' ];
	$functions{resolve_idle} = [ q{SELECT idem_resolve_idle('KEY NODE', 'fail', principal => 'TENANT');
		SELECT idem_release('KEY NODE', principal => 'TENANT', token => :t);
		SELECT 1 FROM idem_begin('KEY NODE', principal => 'TENANT', lease => '1us');
		SELECT idem_resolve_idle('KEY NODE', 'fail', principal => 'TENANT');
		SELECT idem_resolve_idle('KEY NODE', 'fail', principal => 'TENANT')}, 'running t 1 done passed' ];
	$functions{erase} = [ q{SELECT idem_erase('KEY NODE', principal => 'TENANT');
		SELECT idem_complete('KEY NODE', 200, principal => 'TENANT', token => :t);
		SELECT idem_erase('KEY NODE', principal => 'TENANT');
		SELECT idem_erase('KEY NODE', principal => 'TENANT')}, 'running t done passed' ];
	$functions{await_claims} = [ q{SELECT idem_await_claims('TENANT', at_most => '1 minute')}, '0' ];
	foreach my $name (sort keys %functions)
	{
		my ($sql, $expected) = @{ $functions{$name} };
		is_everywhere(($claim . $sql) =~ s/KEY/$name/gr, $expected, $name);
	}
	is_everywhere(q{SELECT idem_get('nothing', principal => 'TENANT') IS NULL}, 't', 'get of nothing');
	is_everywhere(q{SELECT outcome FROM idem_explain('nothing', principal => 'TENANT')}, 'execute', 'explain');
	is_everywhere(q{SELECT (idem_get('nothing', principal => 'TENANT')).outcome IS NULL}, 't', 'a field of nothing');
	is_everywhere(q{SELECT count(*) FROM idem_once_each(ARRAY['each NODE', 'each NODE'], principal => 'TENANT')}, '1', 'once_each');
	is_everywhere(q{SELECT idem_once('once NODE', principal => 'TENANT'), idem_once('once NODE', principal => 'TENANT')}, 't|f', 'once');
};

subtest 'statements that are sent again and again' => sub {
	# From the sixth execution on, the server may choose a generic plan.
	is_everywhere(
		q{PREPARE b AS SELECT outcome FROM idem_begin($1, principal => $2);
		PREPARE c AS SELECT idem_complete($1, 200, principal => $2);
		} . join(';', map { my $k = ($_ + 1) >> 1; "BEGIN; EXECUTE b('prepared $k NODE', 'TENANT'); EXECUTE c('prepared $k NODE', 'TENANT'); COMMIT" }
			  grep { $_ % 2 } 1 .. 16),
		join(' ', ('execute t') x 8), 'prepared');
	is_everywhere(q{BEGIN; DECLARE a CURSOR FOR SELECT outcome FROM idem_begin('cursor NODE', principal => 'TENANT');
		FETCH a; DECLARE b CURSOR FOR SELECT c.outcome FROM generate_series(1, 2) i, idem_begin('cursor NODE' || i, principal => 'TENANT') c;
		FETCH b; FETCH b; SELECT idem_complete('cursor NODE', 200, principal => 'TENANT'); COMMIT;
		SELECT outcome FROM idem_begin('cursor NODE', principal => 'TENANT')},
		'execute execute execute t replay', 'by a cursor');

	my $pipelined = $coordinator->basedir . '/pipelined.sql';
	my @work;
	foreach my $number (1 .. 10)
	{
		push @work, (qq{begin;
			select outcome from idem_begin('piped ' || :client_id || ' $number', principal => '$_');
			insert into payment values ('$_', 'piped ' || :client_id || ' $number', 1);
			select idem_complete('piped ' || :client_id || ' $number', principal => '$_');
			commit;
		}) foreach $here, $there;
	}
	append_to_file($pipelined, join("\n", '\startpipeline', @work, '\endpipeline', ''));
	foreach my $node (@nodes)
	{
		foreach my $mode ('extended', 'prepared')
		{
			$node->command_ok([ 'pgbench', '-n', '-M', $mode, '-c', '2', '-t', '1', '-f', $pipelined, $node->connstr('postgres') ],
				"pipelined, $mode, on " . $node->name);
			is(join(' ', on_each(q{SELECT count(*) FROM idempotency.records WHERE key LIKE 'piped%' AND status = 'completed'})),
				'40 40 40', 'each has completed');
			is(try_sql($coordinator, q{SELECT count(*) FROM payment WHERE id LIKE 'piped%'}), '40', 'with one effect');
			$coordinator->safe_psql('postgres', q{DELETE FROM payment WHERE id LIKE 'piped%'});
			$coordinator->safe_psql('postgres', q{SELECT count(idem_forget(key, principal => principal)) FROM (
				SELECT key, principal FROM idempotency.records WHERE key LIKE 'piped%' OFFSET 0) r});
		}
	}
};

subtest 'queries that Citus does not delegate' => sub {
	my $lines = q{CREATE TEMP TABLE line (k text, p text);
		COPY line FROM PROGRAM 'printf "1\tTENANT\n2\tTENANT\n3\tOTHER\n"';
		};
	foreach my $case (@everywhere)
	{
		my ($node, $tenant) = @$case;
		my $other = $tenant eq $here ? $there : $here;
		my $run = sub { return script($node, $tenant, ($lines . $_[0]) =~ s/OTHER/$other/gr) };
		my $name = $node->name . " for $tenant";
		is($run->(q{SELECT c.outcome FROM line, idem_begin('a NODE TENANT' || k, principal => 'TENANT') c}), 'execute execute execute', "keys of rows, $name");
		is($run->(q{SELECT c.outcome FROM line, LATERAL idem_begin('b NODE TENANT' || k, principal => p) c}), 'execute execute execute', "principals of rows, $name");
		is($run->(q{SELECT (idem_begin('c NODE TENANT' || k, principal => p)).outcome FROM line}), 'execute execute execute', "fields, $name");
		is($run->(q{SELECT k FROM line WHERE idem_once('d NODE TENANT' || k, principal => p) ORDER BY k}), '1 2 3', "a batch fed by COPY, $name");
		is($run->(q{SELECT k FROM line WHERE idem_once('d NODE TENANT' || k, principal => p)}), '', 'and never again');
		is($run->(q{SELECT c.outcome FROM (VALUES ('1'), ('2')) v (k), LATERAL idem_begin('e NODE TENANT' || v.k, principal => 'TENANT') c}),
			'execute execute', "VALUES, $name");
		is($run->(q{COPY (SELECT c.outcome FROM line, idem_begin('f NODE TENANT' || k, principal => p) c) TO STDOUT}), 'execute execute execute', "COPY TO, $name");
		is($run->(q{CREATE TEMP TABLE r AS SELECT c.outcome FROM line, idem_begin('g NODE TENANT' || k, principal => p) c; SELECT * FROM r}),
			'execute execute execute', "CREATE TABLE AS, $name");
		is($run->(q{SELECT outcome FROM idem_begin('h1 NODE TENANT', principal => 'TENANT') UNION ALL SELECT outcome FROM idem_begin('h2 NODE TENANT', principal => 'OTHER')}),
			'execute execute', "UNION, $name");
		is($run->(q{WITH c AS MATERIALIZED (SELECT c.* FROM line, idem_begin('i NODE TENANT' || k, principal => p) c)
			SELECT c.outcome, count(p.id) FROM c LEFT JOIN payment p ON p.tenant = c.principal AND p.id = 'none' GROUP BY c.key, c.outcome}),
			'execute|0 execute|0 execute|0', "joined with a distributed table, $name");

		# The connection is busy with the rows, so the call either fails or succeeds: all or
		# nothing.
		my $inserted = $run->(q{INSERT INTO payment SELECT p, 'j NODE TENANT' || k, 1 FROM line WHERE idem_once('j NODE TENANT' || k, principal => p) RETURNING 'in'});
		like($inserted, qr/^(?:in in in|0A000)$/, "INSERT ... SELECT into a distributed table, $name");
		my $count = $inserted eq '0A000' ? 0 : 3;
		is(try_sql($coordinator, "SELECT count(*) FROM payment WHERE id LIKE 'j " . $node->name . " $tenant%'"), $count, 'the effects');
		is(try_sql($coordinator, "SELECT count(*) FROM idempotency.records WHERE key LIKE 'j " . $node->name . " $tenant%'"), $count, 'as the records');
	}
};

# The server's planner makes a lone call of each of these. Citus then delegated what was none, and the
# backend crashed.
my @simplified = (
	[ 'a CTE of one row', q{WITH a AS (SELECT 'K' k) SELECT outcome FROM a, idem_begin(a.k, principal => 'TENANT')}, 'execute' ],
	[ 'a subquery of one row', q{SELECT c.outcome FROM (SELECT 'K' k) a, idem_begin(a.k, principal => 'TENANT') c}, 'execute' ],
	[ 'VALUES of one row', q{SELECT c.outcome FROM (VALUES ('K')) v (k), idem_begin(v.k, principal => 'TENANT') c}, 'execute' ],
	[ 'LATERAL', q{SELECT c.outcome FROM (SELECT 'K' k, 'TENANT' p) a, LATERAL idem_begin(a.k, principal => a.p) c}, 'execute' ],
	[ 'a join', q{SELECT c.outcome FROM (SELECT 1 x) a CROSS JOIN idem_begin('K', principal => 'TENANT') c}, 'execute' ],
	[ 'a join with a condition', q{SELECT c.outcome FROM (SELECT 1 x) a JOIN idem_begin('K', principal => 'TENANT') c ON true}, 'execute' ],
	[ 'a call of one row', q{SELECT idem_once(a.k, principal => 'TENANT') FROM (SELECT 'K' k) a}, 't' ],
	[ 'a nested subquery', q{SELECT * FROM (SELECT c.outcome FROM (SELECT 'K' k) a, idem_begin(a.k, principal => 'TENANT') c) s}, 'execute' ],
	[ 'an outer join', q{SELECT c.outcome FROM idem_begin('K', principal => 'TENANT') c LEFT JOIN (SELECT 1 x) a ON true}, 'execute' ],
	[ 'a scalar subquery', q{SELECT outcome, (SELECT count(*) FROM pg_class WHERE false) FROM idem_begin('K', principal => 'TENANT')}, 'execute|0' ],
	[ 'a scalar subquery beside one row', q{WITH a AS (SELECT 'K' k) SELECT outcome, (SELECT count(*) FROM pg_class WHERE false)
		FROM a, idem_begin(a.k, principal => 'TENANT')}, 'execute|0' ],
	[ 'two CTEs', q{WITH a AS (SELECT 'K' k), b AS (SELECT * FROM a) SELECT outcome FROM b, idem_begin(b.k, principal => 'TENANT')}, 'execute' ],
	[ 'a condition that is true', q{WITH a AS (SELECT 'K' k) SELECT outcome FROM a, idem_begin(a.k, principal => 'TENANT') WHERE true}, 'execute' ],
	[ 'a prepared statement', q{PREPARE p AS WITH a AS (SELECT $1::text k) SELECT outcome FROM a, idem_begin(a.k, principal => $2);
		} . join('; ', map { "EXECUTE p('K$_', 'TENANT')" } 1 .. 7), join ' ', ('execute') x 7 ],
	[ 'PL/pgSQL', q{DO $$ DECLARE o text; BEGIN WITH a AS (SELECT 'K' k) SELECT outcome INTO o FROM a, idem_begin(a.k, principal => 'TENANT');
		PERFORM set_config('test.outcome', o, false); END $$; SHOW test.outcome}, 'execute' ],
	[ 'a function in SQL', q{SELECT of_one_row('K', 'TENANT')}, 'execute' ],
	[ 'a function in SQL that is inlined', q{SELECT * FROM rows_of_one('K', 'TENANT')}, 'execute' ],
	[ 'a cursor', q{BEGIN; DECLARE c CURSOR FOR WITH a AS (SELECT 'K' k) SELECT outcome FROM a, idem_begin(a.k, principal => 'TENANT'); FETCH c; COMMIT}, 'execute' ],
	[ 'EXPLAIN ANALYZE', q{EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) WITH a AS (SELECT 'K' k)
		SELECT outcome FROM a, idem_begin(a.k, principal => 'TENANT')}, qr/Function Scan on idem_begin/ ],
	[ 'a block', q{BEGIN; WITH a AS (SELECT 'K' k) SELECT outcome FROM a, idem_begin(a.k, principal => 'TENANT');
		SELECT idem_complete('K', 200, principal => 'TENANT'); COMMIT}, 'execute t' ],
);

subtest 'statements that the planner simplifies' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE FUNCTION of_one_row(k text, p text) RETURNS text LANGUAGE sql AS
			$$ WITH a AS (SELECT $1 k) SELECT outcome FROM a, idem_begin(a.k, principal => $2) $$;
		CREATE FUNCTION rows_of_one(k text, p text) RETURNS SETOF text LANGUAGE sql STABLE AS
			$$ SELECT c.outcome FROM (SELECT $1 k) a, idem_begin(a.k, principal => $2) c $$});
	foreach my $number (0 .. $#simplified)
	{
		my ($what, $sql, $expected) = @{ $simplified[$number] };
		foreach (@everywhere)
		{
			my $answer = script(@$_, $sql =~ s/'K/'simple $number NODE/gr);
			my $name = "$what, asked on " . $_->[0]->name . " for $_->[1]";
			ref $expected ? like($answer, $expected, $name) : is($answer, $expected, $name);
		}
	}
};

# The planner also puts a call of ours in the place of a call of such a function.
$coordinator->safe_psql('postgres', q{
	CREATE FUNCTION once_of(k text, p text) RETURNS boolean LANGUAGE sql AS 'SELECT idem_once(k, principal => p)';
	CREATE FUNCTION once_within(k text, p text) RETURNS boolean LANGUAGE sql RETURN once_of(k, p);
	CREATE FUNCTION claim_of(k text, p text) RETURNS idem_claim LANGUAGE sql AS 'SELECT idem_begin(k, principal => p)';
	CREATE FUNCTION same(v text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT v'});
my @wrapped = map { my $function = $_; map { s/CALLED/$function/gr } (
	q{SELECT CALLED('K', 'TENANT')},
	q{SELECT CALLED(same('K'), 'TENANT')},
	q{SELECT f FROM CALLED('K', 'TENANT') f},
	q{WITH a AS (SELECT 'K' k) SELECT f FROM a, CALLED(a.k, 'TENANT') f},
	q{WITH a AS (SELECT 'K' k) SELECT CALLED(a.k, 'TENANT') FROM a},
	q{SELECT f FROM (VALUES ('K')) v (k), CALLED(v.k, 'TENANT') f},
	q{SELECT CALLED(v.k, 'TENANT') FROM (VALUES ('K')) v (k)},
	q{SELECT f FROM (SELECT 'K' k) a, CALLED(a.k, 'TENANT') f},
	q{SELECT f FROM CALLED('K', 'TENANT') f LEFT JOIN (SELECT 1 x) a ON true},
	q{SELECT CALLED(a.k, 'TENANT') FROM (SELECT 'K' k) a}) } qw(once_of once_within claim_of);

subtest 'functions in SQL whose call the planner replaces' => sub {
	foreach my $number (0 .. $#wrapped)
	{
		my $sql = $wrapped[$number] =~ s/'K/'wrapped $number NODE/gr;
		like(script(@$_, $sql), qr/^(?:t$|\(execute,)/, "asked on " . $_->[0]->name . " for $_->[1]: $sql") foreach @everywhere;
	}
	my $delegated = qr/Citus Adaptive/;
	foreach my $lone (q{SELECT once_of('x', 'TENANT')}, q{SELECT * FROM claim_of('x', 'TENANT')}, q{SELECT idem_once('x', principal => same('TENANT'))})
	{
		like(script($worker1, $there, "EXPLAIN (COSTS off) $lone"), $delegated, "Citus still delegates $lone");
	}
};

# The call would write on the other node, whose transaction knows nothing of that.
subtest 'read-only transactions' => sub {
	$coordinator->safe_psql('postgres', "SELECT idem_once('known', principal => '$_')") foreach $here, $there;
	foreach my $case (@everywhere)
	{
		my ($node, $tenant) = @$case;
		my $name = 'asked on ' . $node->name . " for $tenant";
		foreach my $sql (
			q{SELECT outcome FROM idem_begin('ro', principal => 'TENANT')}, q{SELECT idem_once('ro', principal => 'TENANT')},
			q{WITH a AS (SELECT 'ro' k) SELECT outcome FROM a, idem_begin(a.k, principal => 'TENANT')},
			q{SELECT (idem_begin('ro', principal => 'TENANT')).outcome}, map { s/'K/'ro/gr } @wrapped)
		{
			is(script($node, $tenant, "SET default_transaction_read_only = on; $sql"), '25006', "a session, $name: $sql");
			is(script($node, $tenant, "BEGIN; SET TRANSACTION READ ONLY; $sql; COMMIT"), '25006', "a block, $name: $sql");
		}
		is(script($node, $tenant, q{PREPARE p AS SELECT outcome FROM idem_begin('ro 2', principal => 'TENANT'); PREPARE g AS SELECT status FROM idem_get('known', principal => 'TENANT');
			BEGIN; EXECUTE p; ROLLBACK; BEGIN READ ONLY; EXECUTE g; EXECUTE p; COMMIT}), '25006', "a plan of before, $name");
		is(script($node, $tenant, q{BEGIN READ ONLY; SELECT status FROM idem_get('known', principal => 'TENANT'); COMMIT}), 'completed', "reading goes on, $name");
	}
	is(try_sql($coordinator, q{SELECT count(*) FROM idempotency.records WHERE key LIKE 'ro%'}), '0', 'nothing was written');
};

# Citus runs such a query on a shard, on the asked node if the shard is there.
subtest 'within a query on the tenant\'s rows' => sub {
	$coordinator->safe_psql('postgres', "INSERT INTO payment VALUES ('$here', 'row', 1), ('$there', 'row', 1)");
	is_everywhere(q{SELECT c.outcome FROM payment p, idem_begin('within NODE', principal => 'TENANT') c WHERE p.tenant = 'TENANT' AND p.id = 'row'},
		'execute', 'a claim');
	is_everywhere(q{BEGIN; SELECT c.outcome FROM payment p, idem_begin('worked NODE', principal => 'TENANT') c WHERE p.tenant = 'TENANT' AND p.id = 'row';
		INSERT INTO payment VALUES ('TENANT', 'worked NODE', 1); SELECT idem_complete('worked NODE', 200, principal => 'TENANT'); COMMIT;
		SELECT outcome FROM idem_begin('worked NODE', principal => 'TENANT')}, 'execute t replay', 'with its work');
	foreach my $case (@everywhere)
	{
		my ($node, $tenant) = @$case;
		my $other = $tenant eq $here ? $there : $here;
		my $own = $node == ($tenant eq $here ? $worker1 : $worker2);
		is(script($node, $tenant, qq{SELECT c.outcome FROM payment p, idem_begin('other NODE', principal => '$other') c
				WHERE p.tenant = 'TENANT' AND p.id = 'row'}),
			$own ? 'execute' : '0A000', "of another tenant's key, on " . $node->name);
	}
};

subtest 'a function of one\'s own' => sub {
	$coordinator->safe_psql('postgres', q{
		CREATE FUNCTION pay(tenant text, id text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE c record;
		BEGIN
			SELECT * INTO c FROM idem_begin(pay.id, principal => pay.tenant);
			IF c.outcome = 'execute' THEN
				INSERT INTO payment VALUES (pay.tenant, pay.id, 1);
				PERFORM * FROM idem_complete(pay.id, 200, 'paid'::text, principal => pay.tenant);
			END IF;
			RETURN c.outcome;
		END $$;
		SELECT create_distributed_function('pay(text, text)', 'tenant', colocate_with => 'payment', force_delegation => true)});
	is_everywhere(q{SELECT pay('TENANT', 'own NODE'); SELECT pay('TENANT', 'own NODE');
		BEGIN; SELECT pay('TENANT', 'block NODE'); ROLLBACK; BEGIN; SELECT pay('TENANT', 'block NODE'); COMMIT;
		SELECT pay('TENANT', 'block NODE')}, 'execute replay execute execute replay', 'delegated as a whole');
	is(try_sql($_, q{SELECT count(*) FROM payment WHERE id LIKE 'own %' OR id LIKE 'block %'}), '12', 'with one effect each') foreach @nodes;
	# Of a read-only session, the other node learns only what BEGIN itself says.
	foreach my $case (@everywhere)
	{
		my ($node, $tenant) = @$case;
		my $name = 'asked on ' . $node->name . " for $tenant";
		my $there = $node != ($tenant eq $here ? $worker1 : $worker2);
		is(script($node, $tenant, q{BEGIN READ ONLY; SELECT pay('TENANT', 'read NODE'); COMMIT}), '25006', "read-only, $name");
		is(script($node, $tenant, q{SET default_transaction_read_only = on; SELECT pay('TENANT', 'read NODE')}),
			$there ? 'execute' : '25006', "by a setting, $name");
	}
};

subtest 'isolation levels and savepoints' => sub {
	foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
	{
		is_everywhere(qq{BEGIN ISOLATION LEVEL $level; SAVEPOINT a; SELECT outcome FROM idem_begin('$level NODE', principal => 'TENANT');
			ROLLBACK TO a; SELECT outcome FROM idem_begin('$level NODE', principal => 'TENANT');
			SAVEPOINT b; INSERT INTO payment VALUES ('TENANT', '$level NODE', 1); RELEASE b;
			SAVEPOINT c; SELECT idem_complete('$level NODE', 200, principal => 'TENANT'); RELEASE c; COMMIT;
			SELECT outcome FROM idem_begin('$level NODE', principal => 'TENANT')}, 'execute execute t replay', $level);
	}
	is(try_sql($coordinator, q{SELECT count(*) FROM payment WHERE id LIKE '%READ%' OR id LIKE 'SERIAL%'}), '18', 'with one effect each');
};

# A lower bound and no upper one: the awaited lock is released only at the end of the test.
subtest 'waits end as asked' => sub {
	foreach my $case (@everywhere)
	{
		my ($node, $tenant) = @$case;
		my $session = session($node);
		ask($session, 'BEGIN');
		is(outcome_in($session, 'held', principal => $tenant), 'execute', 'held by ' . $node->name);
		foreach my $form (
			q{SELECT outcome FROM idem_begin('held', principal => 'TENANT', wait => '30ms')},
			q{SELECT (idem_begin('held', principal => 'TENANT', wait => '30ms')).outcome},
			q{SELECT c.outcome FROM generate_series(1, 1) i, LATERAL idem_begin('held', principal => 'TENANT', wait => '30ms') c})
		{
			is(script($_, $tenant, $form), 'in_progress', $_->name . ' is told') foreach @nodes;
		}
		ask($session, 'ROLLBACK');
		$session->quit;
	}
};

done_testing();
