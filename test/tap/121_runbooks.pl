# docs/alerts.md on a server with the fault of each alert. The statements of a section, run by the role
# that the page names, show the fault; its remedy ends the fault; and nothing else has changed: no
# policy, record, right or setting that the section does not name.
use Idem;

my $page = slurp_file("$FindBin::RealBin/../../docs/alerts.md");
my %section = $page =~ /^## (\w+)\n(.*?)(?=^## |\z)/msg;

# The SQL of a section, without what readers do not see.
sub statements_of ($alert)
{
	return join "\n", $section{$alert} =~ /```sql\n(.*?)```/sg;
}

my $keys = PostgreSQL::Test::Utils::tempdir() . '/keys';
my $node = new_node('main',
	shared_preload_libraries => 'idempotency',
	max_prepared_transactions => 1,
	'idempotency.cleanup_interval' => 0,
	'idempotency.encryption_key_file' => $keys);

# The reader of the page, who is an operator, an administrator and a member of pg_monitor.
$node->safe_psql('postgres', q{
	CREATE ROLE oncall LOGIN;
	GRANT pg_monitor TO oncall;
	SELECT idem_grant('oncall', operator => true, administrator => true, worker => true)});

sub as_oncall ($sql)
{
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'oncall' ]);
}

sub as_owner ($sql) { return $node->safe_psql('postgres', $sql) }

# ---- what a runbook could change ----

# A line for each option of a policy, value of a record, right and setting.
sub everything
{
	my %lines = map { $_ => 1 } split /\n/, as_owner(q{
		SELECT format('policy %s: %s %s', scope_pattern, o.key, o.value)
		  FROM idempotency.policies p, jsonb_each_text(to_jsonb(p)) o WHERE o.value IS NOT NULL;
		SELECT format('record %s: %s %s', r.key, o.key, o.value)
		  FROM idempotency.record r, jsonb_each_text(to_jsonb(r)) o WHERE o.value IS NOT NULL;
		SELECT format('right on %s: %s', p.oid::regprocedure, p.proacl) FROM pg_proc p
		 WHERE p.proname LIKE 'idem%' OR p.pronamespace = 'idempotency'::regnamespace;
		SELECT format('right on %s: %s', c.oid::regclass, c.relacl) FROM pg_class c
		 WHERE c.relnamespace = 'idempotency'::regnamespace;
		SELECT format('object %s: %s', c.oid::regclass, c.relkind) FROM pg_class c
		 WHERE c.relnamespace = 'idempotency'::regnamespace;
		SELECT format('trigger %s: %s', t.tgrelid::regclass, t.tgname) FROM pg_trigger t
		 WHERE t.tgrelid = 'idempotency.record'::regclass;
		SELECT format('constraint %s: %s', c.conrelid::regclass, c.conname) FROM pg_constraint c
		 WHERE c.conrelid = 'idempotency.record'::regclass;
		SELECT format('setting %s: %s', name, setting) FROM pg_file_settings WHERE applied});
	return \%lines;
}

# Lines of one and not of the other.
sub changes ($before, $after)
{
	return sort grep { !($before->{$_} && $after->{$_}) } keys %{ { %$before, %$after } };
}

# ---- a case for each section ----

# fault: makes it. shows: what the statements of the section print. remedies: a text of the section,
# the statement that a reader makes of it, and who runs it. cured: a query that prints "t" then.
# changes: what these may change.
my ($open, $prepared);
my %case = (
	IdempotencyMismatchesRising => {
		fault => sub {
			as_owner(q{SELECT idem_policy_set('POST /payments', ttl => '7 days', retention => '30 days', max_attempts => 3,
				principal_required => true, on_lease_expiry => 'unknown', exclude_fields => '{trace_id}',
				allowed_role => 'oncall', keep_history => true)});
			as_owner(q{SELECT idem_begin('m', '{"meta": {"sent_at": 1}}', 'POST /payments', 'p')});
			is(as_owner(q{SELECT outcome FROM idem_begin('m', '{"meta": {"sent_at": 2}}', 'POST /payments', 'p')}),
				'mismatch', 'the fault');
		},
		by => \&as_owner,
		shows => qr/exclude_fields\|\{trace_id\}\|POST \/payments/,
		cured => q{SELECT count(*) = 2 FROM unnest('{1,2}'::text[]) t, idem_begin('m2', format('{"meta": {"sent_at": %s}}', t)::jsonb,
			'POST /payments', 'p') WHERE outcome IN ('execute', 'in_progress')},
		changes => qr{^(policy POST /payments: exclude_fields|setting idempotency\.log_(events|keys)|record m2:)}
	},
	IdempotencyConflictsRising => {
		fault => sub {
			as_owner(q{SELECT idem_policy_set('slow', ttl => '7 days', max_attempts => 5)});
			as_owner(q{SELECT idem_begin('c', scope => 'slow', lease => '1 hour', holder => 'worker 7')});
		},
		shows => qr/leased\|slow\|\|worker 7/,
		by => \&as_owner,
		changes => qr{^policy POST /payments: wait }
	},
	IdempotencyTakeoversRecurring => {
		fault => sub { as_owner(q{SELECT idem_begin('t', scope => 'slow', lease => '1 us'); SELECT idem_begin('t', scope => 'slow', lease => '1 us')}) },
		by => \&as_owner,
		changes => qr{^policy POST /payments: (lease|on_lease_expiry) }
	},
	IdempotencyRetriesExhausted => {
		fault => sub {
			as_owner(q{SELECT idem_policy_set('fragile', max_attempts => 1)});
			as_owner(qq{SELECT idem_fail('$_', 'out of stock', true, scope => 'fragile', token => c.token) FROM idem_begin('$_', scope => 'fragile') c})
			  foreach qw(x1 x2 x3);
		},
		shows => qr/fragile\|\|x1\|1/,
		remedies => [
			'`reopen` gives one more attempt', q{SELECT idem_resolve('x1', 'reopen', 'fragile', reason => 'stock is back')},
			q{idem_resolve_all('reopen', reason, status => 'exhausted', ...)},
			q{CALL idem_resolve_all('reopen', 'stock is back', scope => 'fragile', status => 'exhausted')}
		],
		cured => q{SELECT count(*) = 0 FROM idempotency.exhausted},
		changes => qr/^record x[123]: /
	},
	IdempotencyDeadLetters => {
		fault => sub {
			as_owner(q{SELECT idem_fail('x4', 'out of stock', true, scope => 'fragile', token => c.token) FROM idem_begin('x4', scope => 'fragile') c});
		},
		shows => qr/fragile\|1\|/,
		changes => qr/^$/
	},
	IdempotencyDueUnclaimed => {
		fault => sub {
			as_owner(q{SELECT idem_fail('d', 'no answer', true, scope => 'hooks', retry_after => '0', token => c.token) FROM idem_begin('d', scope => 'hooks') c});
		},
		by => \&as_owner,
		shows => qr/hooks\|1\|/,
		remedies => [ 'call `idem_claim_due(scope)` as their role in a transaction, and roll back',
			q{BEGIN; SET LOCAL ROLE oncall; SELECT key FROM idem_claim_due('hooks'); ROLLBACK} ],
		changes => qr/^$/
	},
	IdempotencyClaimsAbandoned => {
		fault => sub { as_owner(q{SELECT idem_begin('a', scope => 'left', lease => '1 us', holder => 'worker 1')}) },
		shows => qr/left\|\|a\|1\|worker 1/,
		remedies => [ 'or decide with `idem_resolve`', q{SELECT idem_resolve('a', 'release', 'left', reason => 'worker 1 is gone')} ],
		cured => q{SELECT count(*) = 0 FROM idempotency.abandoned WHERE key = 'a'},
		changes => qr/^record a: /
	},
	IdempotencyResultsUnknown => {
		fault => sub {
			as_owner(q{SELECT idem_unknown('u', 'timeout', 'psp-17', 'bank', token => c.token) FROM idem_begin('u', scope => 'bank') c});
		},
		shows => qr/bank\|\|u\|1/,
		remedies => [ '`complete` or `fail` if you know how it ended',
			q{SELECT idem_resolve('u', 'complete', 'bank', status_code => 201, body => 'paid'::text, reason => 'psp-17 is paid')} ],
		cured => q{SELECT status = 'completed' FROM idempotency.records WHERE key = 'u'},
		changes => qr/^record u: /
	},
	IdempotencyClaimOld => {
		fault => sub {
			as_owner(q{SELECT idem_begin('o', scope => 'long', lease => '10 days', holder => 'worker 2');
				UPDATE idempotency.record SET claimed_at = claimed_at - interval '2 days' WHERE key = 'o'});
		},
		shows => qr/long\|\|o\|worker 2/,
		remedies => [ q{idem_resolve(..., 'release', even_if_running => true)},
			q{SELECT idem_resolve('o', 'release', 'long', even_if_running => true, reason => 'worker 2 was stopped')} ],
		cured => q{SELECT outcome = 'execute' FROM idem_begin('o', scope => 'long')},
		changes => qr/^record o: /
	},
	IdempotencyTransactionStuck => {
		fault => sub {
			$open = session($node);
			ask($open, 'BEGIN');
			outcome_in($open, 'stuck', scope => 'stuck');
			as_owner(q{BEGIN; SELECT idem_begin('prepared', scope => 'stuck'); PREPARE TRANSACTION 'forgotten'});
		},
		shows => qr/transactional\|\d+\|.*\|idle in transaction\|/,
		remedies => [
			'`pg_terminate_backend(pid)` frees its keys immediately',
			q{SELECT pg_terminate_backend(pid, 10000) FROM idempotency.in_flight WHERE kind = 'transactional'},
			'ROLLBACK PREPARED', q{ROLLBACK PREPARED 'forgotten'}
		],
		by => \&as_owner,
		cured => q{SELECT count(*) = 2 FROM unnest('{stuck,prepared}'::text[]) k, idem_once(k, 'stuck') AS new WHERE new},
		changes => qr/^record (stuck|prepared): /
	},
	IdempotencyBacklogGrowing => {
		fault => sub {
			as_owner(q{SELECT count(idem_once('b' || n, 'brief')) FROM generate_series(1, 50) n;
				UPDATE idempotency.record SET expires_at = '-infinity', retained_until = now() - interval '1 day' WHERE scope = 'brief'});
		},
		shows => qr/^50\|.*^0$/ms,
		cured => q{SELECT backlog = 0 FROM idempotency.sweeper},
		changes => qr/^record b\d+: /
	},
	IdempotencySweeperFailing => {
		fault => sub {
			as_owner(q{CREATE FUNCTION public.no_removal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept'; END $$;
				CREATE TRIGGER no_removal BEFORE DELETE ON idempotency.record FOR EACH ROW EXECUTE FUNCTION public.no_removal();
				SELECT idem_once('f', 'brief');
				UPDATE idempotency.record SET expires_at = '-infinity', retained_until = now() - interval '1 day' WHERE key = 'f'});
			$node->append_conf('postgresql.conf', q{idempotency.cleanup_interval = '1s'});
			$node->reload;
			$node->poll_query_until('postgres', 'SELECT failures > 0 FROM idempotency.sweeper') or die 'no failure';
		},
		remedies => [ '`last_error` of `idempotency.sweeper` has the cause', 'SELECT last_error FROM idempotency.sweeper',
			'a trigger or constraint that was added to the table', 'DROP TRIGGER no_removal ON idempotency.record' ],
		by => \&as_owner,
		shows => qr/kept/,
		awaits => q{SELECT failures = 0 AND backlog = 0 FROM idempotency.sweeper},
		changes => qr/^(record f: |trigger idempotency\.record: no_removal)/
	},
	IdempotencyStoreSlow => {
		fault => sub { as_owner(q{CREATE INDEX failed ON idempotency.record (scope) WHERE status = 'f'}) },
		shows => qr/record\|sql\|It has another index/,
		remedies => [ 'Drop it, and the next call uses the heap store again', 'DROP INDEX idempotency.failed' ],
		by => \&as_owner,
		cured => q{SELECT store = 'heap' FROM idempotency.stores},
		changes => qr/^(right on|object) idempotency\.failed: /,
		not_for => 'sql'
	},
	IdempotencyStoreErrors => {
		fault => sub {
			as_owner(q{ALTER TABLE idempotency.record ADD CONSTRAINT narrow CHECK (scope <> 'refused')});
			isnt($node->psql('postgres', q{SELECT idem_begin('k', scope => 'refused')}), 0, 'the fault');
		},
		shows => qr/^refused\|1$/m,
		remedies => [ 'drop or fix it; `why` names it', 'ALTER TABLE idempotency.record DROP CONSTRAINT narrow' ],
		by => \&as_owner,
		cured => q{SELECT idem_once('k', 'refused')},
		changes => qr/^(constraint idempotency\.record: narrow|record k: )/
	},
	IdempotencyEncryptionErrors => {
		fault => sub {
			as_owner(q{SELECT idem_policy_set('sealed', encrypt => true)});
			isnt($node->psql('postgres', q{SELECT idem_begin('k', scope => 'sealed')}), 0, 'the fault');
		},
		shows => qr/The key file cannot be opened/,
		changes => qr/^$/
	},
	IdempotencyKeyMissing => {
		fault => sub { },
		shows => qr/The key file cannot be opened/,
		remedies => [ 'Put the right key file in its place, and reload', sub {
			append_to_file($keys, 'a ' . 'A' x 43 . "= current\n");
			chmod 0600, $keys or die "chmod: $!";
			$node->reload;
			return ''; } ],
		cured => q{SELECT outcome = 'execute' FROM idem_begin('k', scope => 'sealed', holder => 'me')},
		changes => qr/^record k: /
	},
	IdempotencyRecordsGrowing => {
		fault => sub { as_owner(q{SELECT count(idem_once('g' || n, 'grown')) FROM generate_series(1, 200) n}) },
		by => \&as_owner,
		shows => qr/^grown\|200\|/m,
		changes => qr/^$/
	},
	IdempotencyScopesEvicted => {
		fault => sub { as_owner(q{SELECT count(idem_once('e', 'evicted-' || n)) FROM generate_series(1, 2000) n}) },
		shows => qr/^evicted-\d+\|1\|/m,
		changes => qr/^$/
	});

# 120_monitoring.pl has metrics that are missing; 104 and 108 have servers without preloading.
my %elsewhere = map { $_ => 1 } qw(IdempotencySweeperStopped IdempotencyCountersMissing IdempotencyMetricsMissing);

is(join(' ', sort keys %case, keys %elsewhere), join(' ', sort keys %section), 'each section has a case');

foreach my $alert (grep { $case{$_} } $page =~ /^## (\w+)$/mg)
{
	my $case = $case{$alert};
	next if ($case->{not_for} // '') eq ($ENV{IDEM_STORE} // '');
	subtest $alert => sub {
		my $run = $case->{by} // \&as_oncall;

		$case->{fault}->();
		my $before = everything();
		my $output = $run->(statements_of($alert));
		my @remedies = @{ $case->{remedies} // [] };
		while (my ($text, $remedy) = splice @remedies, 0, 2)
		{
			ok(index($section{$alert} =~ s/\s+/ /gr, $text) >= 0, "the section says: $text");
			$output .= ref $remedy ? $remedy->() : $run->($remedy);
		}
		like($output, $case->{shows}, 'the statements show the fault') if $case->{shows};
		$node->poll_query_until('postgres', $case->{awaits}) or die "$alert: not cured" if $case->{awaits};
		is(as_owner($case->{cured}), 't', 'the fault is gone') if $case->{cured};
		is_deeply([ grep { !/$case->{changes}/ } changes($before, everything()) ], [], 'nothing else has changed');
	};
}

abandon($open);
$node->stop;
done_testing();
