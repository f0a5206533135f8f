# The tables of policies, of decisions and of the sweeper's journal may belong to other roles. Code
# that such an owner puts on its table, or in its place, runs with that owner's rights: not with
# those of the records' owner, the caller or the sweeper, which are superusers here.
use Idem;

my $node = new_node('main', shared_preload_libraries => 'idempotency',
	'idempotency.cleanup_interval' => 0);

# Every role can read the notes. Each of the functions also tries to gain rights.
$node->safe_psql('postgres', q{
	CREATE ROLE keeper LOGIN;
	GRANT ALL ON SCHEMA idempotency TO keeper;
	ALTER TABLE idempotency.policy OWNER TO keeper;
	ALTER TABLE idempotency.journal OWNER TO keeper;
	ALTER TABLE idempotency.audit OWNER TO keeper;
	ALTER TABLE idempotency.audit_chain OWNER TO keeper;
	CREATE SCHEMA kept AUTHORIZATION keeper;
	SET ROLE keeper;
	CREATE TABLE kept.notes (what text, by name DEFAULT current_user);
	CREATE FUNCTION kept.note(what text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			ALTER ROLE keeper SUPERUSER;
			what := what || ', risen';
		EXCEPTION WHEN insufficient_privilege THEN
		END;
		INSERT INTO kept.notes (what) VALUES (what);
		RETURN true;
	END $$;
	CREATE FUNCTION kept.noted() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM kept.note(TG_WHEN || ' ' || TG_OP);
		RETURN NEW;
	END $$});

sub keeper ($sql)
{
	$node->safe_psql('postgres', "SET ROLE keeper; $sql");
	return;
}

# The notes and the role that made each; then removes them.
sub notes
{
	return $node->safe_psql('postgres', q{
		WITH gone AS (DELETE FROM kept.notes RETURNING what, by)
		SELECT string_agg(DISTINCT what || ' by ' || by, '; ' ORDER BY what || ' by ' || by) FROM gone});
}

sub superusers
{
	return $node->safe_psql('postgres', q{SELECT string_agg(rolname, ' ') FROM pg_roles
		WHERE rolsuper AND rolname = 'keeper'});
}

# Calls that write and read policies, as a superuser.
sub use_policies
{
	my $session = session($node);
	my @answers = map { ask($session, $_) } (
		q{SELECT idem_policy_set('scope', lease => '1 min')},
		q{SELECT outcome FROM idem_begin(NULL, scope => 'scope')},
		q{SELECT idem_policy_set('scope', lease => '2 min', replace => true)},
		q{SELECT idem_policy_drop('scope')},
		q{SELECT current_user = session_user});
	$session->quit;
	return join ' ', @answers;
}

is(use_policies(), ' execute  t t', 'policies work with any owner');

my @triggers = (
	[ 'BEFORE INSERT OR UPDATE', 'BEFORE INSERT by keeper; BEFORE UPDATE by keeper' ],
	[ 'AFTER INSERT OR UPDATE', 'AFTER INSERT by keeper; AFTER UPDATE by keeper' ]);
foreach (@triggers)
{
	my ($when, $noted) = @$_;
	keeper("CREATE TRIGGER tried $when ON idempotency.policy FOR EACH ROW EXECUTE FUNCTION kept.noted()");
	is(use_policies(), ' execute  t t', "a trigger, $when: policies work");
	is(notes(), $noted, '... and it runs as the owner');
	keeper('DROP TRIGGER tried ON idempotency.policy');
}

keeper('CREATE CONSTRAINT TRIGGER tried AFTER INSERT OR UPDATE ON idempotency.policy'
	  . ' DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION kept.noted()');
is(use_policies(), '42501 execute 42501 f t', 'a deferred trigger: no policy is set');
is(notes(), '', '... and it does not run');
keeper('DROP TRIGGER tried ON idempotency.policy');

keeper(q{ALTER TABLE idempotency.policy ADD CONSTRAINT tried CHECK (kept.note('check'))});
is(use_policies(), ' execute  t t', 'a check: policies work');
is(notes(), 'check by keeper', '... and it runs as the owner');
keeper('ALTER TABLE idempotency.policy DROP CONSTRAINT tried');

keeper(q{CREATE RULE tried AS ON DELETE TO idempotency.policy DO ALSO SELECT kept.note('rule')});
is(use_policies(), ' execute  t t', 'a rule: policies work');
is(notes(), 'rule by keeper', '... and it runs as the owner');
keeper('DROP RULE tried ON idempotency.policy');

keeper(q{
	ALTER TABLE idempotency.policy ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE POLICY tried ON idempotency.policy USING (kept.note('row security'))});
is(use_policies(), ' execute  t t', 'row security: policies work');
is(notes(), '', '... and it is not asked');
keeper(q{DROP POLICY tried ON idempotency.policy;
	ALTER TABLE idempotency.policy DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY});

keeper(q{
	ALTER TABLE idempotency.policy RENAME TO policy_table;
	CREATE VIEW idempotency.policy AS SELECT * FROM idempotency.policy_table WHERE kept.note('view')});
$node->safe_psql('postgres', q{INSERT INTO idempotency.policy_table (scope_pattern, on_missing_key) VALUES ('view', 'error')});
my $session = session($node);
is(outcome_in($session, 'k', scope => 'view'), 'execute', 'a view: policies work');
is(outcome_in($session, undef, scope => 'view'), '22004', '... and its rows hold');
$session->quit;
is(notes(), 'view by keeper', '... and it runs as the owner');
keeper(q{DROP VIEW idempotency.policy; ALTER TABLE idempotency.policy_table RENAME TO policy});

# Decisions are recorded, and swept.
keeper('CREATE TRIGGER tried BEFORE INSERT OR DELETE ON idempotency.audit FOR EACH ROW EXECUTE FUNCTION kept.noted()');
is(use_policies(), ' execute  t t', 'a trigger on the audit: policies work');
is(notes(), 'BEFORE INSERT by keeper', '... and it runs as the owner');
keeper(q{UPDATE idempotency.audit SET decided_at = '2000-01-01'});
$node->safe_psql('postgres', 'SELECT idem_cleanup()');
is(notes(), 'BEFORE DELETE by keeper', '... also where a decision is removed');
keeper('DROP TRIGGER tried ON idempotency.audit');
keeper('CREATE CONSTRAINT TRIGGER tried AFTER INSERT ON idempotency.audit'
	  . ' DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION kept.noted()');
is(use_policies(), '42501 execute 42501 f t', 'a deferred one: nothing is decided');
is(notes(), '', '... and it does not run');
keeper('DROP TRIGGER tried ON idempotency.audit');

# The sweeper notes its visits in the journal.
keeper('CREATE TRIGGER tried BEFORE UPDATE ON idempotency.journal FOR EACH ROW EXECUTE FUNCTION kept.noted()');
begin_claim($node, 'swept', ttl => '1 ms');
$node->safe_psql('postgres', q{SELECT idem_complete('swept', token => token) FROM idempotency.record WHERE key = 'swept';
	UPDATE idempotency.record SET expires_at = claimed_at, retained_until = claimed_at WHERE key = 'swept'});
$node->safe_psql('postgres', q{ALTER SYSTEM SET idempotency.cleanup_interval = 1});
$node->reload;
wait_until { record_state($node, 'swept') eq 'absent' } 'the sweeper';
wait_until { $node->safe_psql('postgres', 'SELECT count(*) > 0 FROM kept.notes') eq 't' } 'its note';
is(notes(), 'BEFORE UPDATE by keeper', 'a trigger on the journal runs as its owner');
keeper('DROP TRIGGER tried ON idempotency.journal');

is(superusers(), '', 'and no role became superuser');
$node->stop;
done_testing();
