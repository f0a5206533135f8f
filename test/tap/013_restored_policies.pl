# Policies survive a restore, also into a cluster that lacks the role a scope is reserved for: the
# scope stays closed, and the rest of the policy still applies.
use Idem;

my $policies = q{
	SELECT string_agg(p::text, chr(10) ORDER BY scope_pattern) FROM idempotency.policy AS p};

my $source = new_node('source');
my $target = new_node('target', -extension => 0);

$source->safe_psql('postgres', q{
	CREATE ROLE "Billing; team";
	CREATE ROLE app IN ROLE "Billing; team";
	SELECT idem_grant('app');
	SELECT idem_policy_set('refunds*', allowed_role => '"Billing; team"', on_lease_expiry => 'unknown');
	SELECT idem_policy_set('mail', on_lease_expiry => 'unknown');
	SELECT idem_policy_set('payments*', ttl => '7 days', on_missing_key => 'error')});

# outcome_of($node, $scope, key => 'k', ...): or the SQLSTATE of the error.
sub outcome_of ($node, $role, $scope, %named)
{
	my $session = session($node);
	ask($session, "SET ROLE $role");
	my $outcome = outcome_in($session, $named{key} // 'k', scope => $scope, %named);
	$session->quit;
	return $outcome;
}

# Two claims that are abandoned when the dump is made.
begin_claim($source, 'lost', scope => $_, lease => '1 ms') foreach 'refunds/1', 'mail';
is(outcome_of($source, 'app', 'refunds/1', key => 'lost'), 'unknown', 'no takeover here');
my $original = $source->safe_psql('postgres', $policies);

my $dump = $source->basedir . '/custom.dump';
$source->command_ok([ 'pg_dump', '--format=custom', '--file', $dump, 'postgres' ], 'a dump');
# Grants to missing roles fail, and pg_restore continues.
my ($stdout, $stderr) =
  run_command([ 'pg_restore', '-h', $target->host, '-p', $target->port, '-d', 'postgres', $dump ]);
unlike($stderr, qr/COPY failed|error: COPY/, 'no table is refused');
is($target->safe_psql('postgres', $policies), $original, 'every policy is there');

$target->safe_psql('postgres', q{CREATE ROLE app; SELECT idem_grant('app')});
my $superuser = $target->safe_psql('postgres', 'SELECT quote_ident(current_user)');
foreach my $role ('app', $superuser)
{
	is(outcome_of($target, $role, 'refunds/1'), '42501', "$role: the reserved scope is closed");
	is(outcome_of($target, $role, 'refunds/1', key => 'lost'), '42501', '... for old keys, too');
	is(outcome_of($target, $role, 'mail', key => 'lost'), 'unknown', '... no takeover');
	is(outcome_of($target, $role, 'payments/1', key => undef), '22004', '... a key is required');
}
like(
	($target->psql('postgres', q{SELECT idem_begin('k', scope => 'refunds/1')}))[2],
	qr/DETAIL:  Its policy admits only members of role "Billing; team", which does not exist\./,
	'the error says which role is missing');
is( $target->safe_psql('postgres', q{
		SELECT string_agg(scope_pattern, ' ') FROM idempotency.policies WHERE NOT role_exists}),
	'refunds*', 'as does the view');

# A policy names a role: any later role of that name is meant.
$target->safe_psql('postgres', 'CREATE ROLE "Billing; team"');
is(outcome_of($target, 'app', 'refunds/1'), '42501', 'a role of that name admits its members');
$target->safe_psql('postgres', 'GRANT "Billing; team" TO app');
is(outcome_of($target, 'app', 'refunds/1'), 'execute', '... who are now those of the new role');
is(outcome_of($target, 'app', 'refunds/1', key => 'lost'), 'unknown', '... and find the records');

$_->stop foreach $source, $target;
done_testing();
