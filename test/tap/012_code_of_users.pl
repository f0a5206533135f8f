# Users' code on the table of records: triggers, rules, checks, defaults, operator classes, domains.
# It runs as the owner of the table, never at commit and never with the caller's rights. Whatever it
# does, the server neither warns nor crashes.
use Idem;

# An explicitly chosen heap store is an error where the table has users' code.
my $node = new_node('main', max_prepared_transactions => 2, 'idempotency.store' => 'auto');

$node->safe_psql('postgres', q{
	CREATE ROLE keeper LOGIN;
	CREATE ROLE caller LOGIN SUPERUSER;
	GRANT CREATE ON SCHEMA public TO keeper;
	GRANT ALL ON SCHEMA idempotency TO keeper;
	ALTER TABLE idempotency.record OWNER TO keeper;
	CREATE TABLE elsewhere (what text, by name DEFAULT current_user);
	ALTER TABLE elsewhere OWNER TO keeper;
	SET ROLE keeper;
	CREATE FUNCTION note(what text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.elsewhere (what) VALUES (what);
		RETURN true;
	END $$;
	CREATE FUNCTION opens_a_cursor() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE c refcursor := 'boom'; r record;
	BEGIN
		OPEN c FOR SELECT relname, md5(relname) FROM pg_class ORDER BY relname;
		FETCH c INTO r;
		RETURN NEW;
	END $$;
	CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'not today';
	END $$;
	CREATE FUNCTION swallows() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		RETURN NULL;
	END $$;
	CREATE FUNCTION calls_back() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		IF NEW.scope = '' THEN
			PERFORM public.idem_once(NEW.key, 'called back');
		END IF;
		RETURN NEW;
	END $$;
	CREATE FUNCTION writes_elsewhere() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM public.note(TG_WHEN || ' ' || TG_OP);
		RETURN NEW;
	END $$;
	CREATE FUNCTION changes_settings() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM set_config('search_path', 'nowhere', false), set_config('work_mem', '64kB', false),
			set_config('statement_timeout', '1', false);
		RETURN NEW;
	END $$;
	CREATE FUNCTION becomes_superuser() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		ALTER ROLE keeper SUPERUSER;
		RETURN NEW;
	END $$});
$node->safe_psql('postgres', 'ALTER FUNCTION calls_back() OWNER TO postgres');

sub keeper ($sql)
{
	return $node->safe_psql('postgres', "SET ROLE keeper; $sql");
}

sub value { return $node->safe_psql('postgres', $_[0]); }

# The server's log since then, without the messages that a trigger was asked to raise.
my $logged = 0;
sub is_quiet ($name)
{
	my $log = slurp_file($node->logfile, $logged);

	$logged = -s $node->logfile;
	unlike($log, qr/WARNING|PANIC|TRAP|terminated by signal|leak/, "$name: nothing to warn of");
	return;
}

# A whole life cycle in one superuser session: a claim committed and completed by token, one
# completed in its transaction, one released, one prepared. Returns the SQLSTATEs of all errors.
my $round = 0;
sub live
{
	my $key = 'key ' . ++$round;
	my $session = session($node, 'postgres', '-U', 'caller');
	my $token = "(SELECT token FROM idempotency.record WHERE key = '$key' AND scope = '')";
	my @met = map { my $answer = ask($session, $_); $answer =~ /^[0-9A-Z]{5}$/ && $answer =~ /\d/ ? $answer : () } (
		"SELECT outcome FROM idem_begin('$key')",
		'FETCH 5 FROM boom',
		"SELECT idem_extend('$key', $token)",
		"SELECT idem_complete('$key', 200, 'done', token => $token)",
		'BEGIN', "SELECT outcome FROM idem_begin('$key', scope => 'b')",
		"SELECT idem_checkpoint('$key', 'half', scope => 'b')",
		"SELECT idem_complete('$key', scope => 'b')", 'FETCH 5 FROM boom', 'COMMIT',
		'BEGIN', "SELECT outcome FROM idem_begin('$key', scope => 'c')", 'SAVEPOINT s',
		"SELECT idem_release('$key', 'c')", 'COMMIT',
		'BEGIN', "SELECT outcome FROM idem_begin('$key', scope => 'd')", "PREPARE TRANSACTION 'd'",
		"COMMIT PREPARED 'd'",
		"SELECT idem_forget('$key', 'b')");

	is(ask($session, 'SHOW search_path'), '"$user", public', 'the session has its settings');
	is(ask($session, 'SHOW statement_timeout'), '0', 'all of them');
	$session->quit;
	my %seen;
	return join ' ', sort grep { !$seen{$_}++ } @met;
}

# with_trigger(function, when): SQLSTATEs of a life cycle with such a trigger.
sub with_trigger ($function, $when, $kind = undef)
{
	keeper(($kind // 'CREATE TRIGGER') . " tried $when EXECUTE FUNCTION $function()");
	my $met = live();
	keeper('DROP TRIGGER tried ON idempotency.record');
	is($node->safe_psql('postgres', 'SELECT 1'), '1', "$function, $when: the server lives");
	is_quiet("$function, $when");
	return $met;
}

my $before = 'BEFORE INSERT OR UPDATE ON idempotency.record FOR EACH ROW';
my $after = 'AFTER INSERT OR UPDATE ON idempotency.record FOR EACH ROW';
my $statement = 'AFTER INSERT OR UPDATE OR DELETE ON idempotency.record FOR EACH STATEMENT';
my $deferrable = 'AFTER INSERT OR UPDATE ON idempotency.record DEFERRABLE FOR EACH ROW';
my $deferred = 'AFTER INSERT OR UPDATE ON idempotency.record DEFERRABLE INITIALLY DEFERRED FOR EACH ROW';

is(live(), '34000', 'a life without any trigger has no cursor');
subtest 'opening a cursor' => sub {
	# Within a transaction the name is already taken the second time, which is the trigger's own
	# error.
	is(with_trigger('opens_a_cursor', $_), '25P02 34000 42P03', $_) foreach $before, $after, $statement;
};
subtest 'raising' => sub {
	my $records = value('SELECT count(*) FROM idempotency.record');
	like(with_trigger('raises', $_), qr/P0001/, $_) foreach $before, $after, $statement;
	is(value('SELECT count(*) FROM idempotency.record'), $records, 'no claim was made');
};
subtest 'swallowing' => sub {
	like(with_trigger('swallows', $before), qr/55000/, 'rows');
	like(with_trigger('swallows', 'BEFORE UPDATE ON idempotency.record FOR EACH ROW'), qr/55000/, 'updates');
	like(with_trigger('swallows', 'BEFORE DELETE ON idempotency.record FOR EACH ROW'), qr/55000/, 'deletions');
};
subtest 'calling back' => sub {
	with_trigger('calls_back', $_) foreach $before, $after;
	is(value(q{SELECT count(*) > 0 FROM idempotency.record WHERE scope = 'called back' AND status = 'c'}),
		't', 'the calls were served');
};
subtest 'writing elsewhere' => sub {
	is(with_trigger('writes_elsewhere', $_), '34000', $_)
	  foreach $before, $after, $statement;
	is(with_trigger('writes_elsewhere', $deferrable, 'CREATE CONSTRAINT TRIGGER'), '34000', $deferrable);
	is(value(q{SELECT string_agg(DISTINCT by, ',') FROM elsewhere}), 'keeper', 'as the owner alone');
};
subtest 'changing settings' => sub {
	with_trigger('changes_settings', $_) foreach $before, $after;
};
subtest 'rights' => sub {
	like(with_trigger('becomes_superuser', $_), qr/42501/, $_) foreach $before, $after;
	like(with_trigger('becomes_superuser', $deferred, 'CREATE CONSTRAINT TRIGGER'), qr/55000/, $deferred);
	keeper("CREATE CONSTRAINT TRIGGER tried $deferrable EXECUTE FUNCTION becomes_superuser()");
	my $session = session($node, 'postgres', '-U', 'caller');
	ask($session, $_) foreach 'BEGIN', 'SET CONSTRAINTS ALL DEFERRED';
	is(ask($session, q{SELECT idem_begin('deferred')}), '42501', 'one that is deferred by hand is refused');
	$session->quit;
	keeper('DROP TRIGGER tried ON idempotency.record');
	is(value(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'keeper'}), 'f', 'no role became superuser');
};

# ---- not only triggers ----

# The caller is a superuser. The users' code must not run as one.
sub runs_as_keeper ($name, $make, $drop)
{
	keeper("TRUNCATE elsewhere; $make");
	$node->psql('postgres', "SELECT idem_once('$name'); SELECT idem_forget('$name')",
		extra_params => [ '-U', 'caller' ]);
	my ($rows, $others) = split /\|/,
	  value(q{SELECT count(*), count(*) FILTER (WHERE by <> 'keeper') FROM elsewhere});
	is($others, '0', "$name: nothing ran with the caller's rights");
	keeper($drop);
	is_quiet($name);
	return $rows;
}

keeper(q{
	CREATE FUNCTION noted_cmp(text, text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		PERFORM public.note('compared');
		RETURN bttextcmp($1, $2);
	END $$;
	CREATE FUNCTION noted_rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$});
value(q{
	CREATE OPERATOR CLASS noted_ops FOR TYPE text USING btree AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
		FUNCTION 1 noted_cmp(text, text);
	ALTER OPERATOR CLASS noted_ops USING btree OWNER TO keeper});

cmp_ok(runs_as_keeper('check',
		q{ALTER TABLE idempotency.record ADD CONSTRAINT noted CHECK (note('checked ' || key))},
		'ALTER TABLE idempotency.record DROP CONSTRAINT noted'), '>', 0, 'a check runs');
cmp_ok(runs_as_keeper('default',
		q{ALTER TABLE idempotency.record ADD COLUMN noted boolean DEFAULT note('by default')},
		'ALTER TABLE idempotency.record DROP COLUMN noted'), '>', 0, 'a default runs');
cmp_ok(runs_as_keeper('rule',
		q{CREATE RULE noted AS ON DELETE TO idempotency.record DO ALSO INSERT INTO elsewhere VALUES ('ruled')},
		'DROP RULE noted ON idempotency.record'), '>', 0, 'a rule runs');
value(q{SELECT idem_once('before the index'), idem_once('and another')});
cmp_ok(runs_as_keeper('index',
		'CREATE INDEX noted ON idempotency.record (error noted_ops); CREATE INDEX noted_key ON idempotency.record (key noted_ops)',
		'DROP INDEX idempotency.noted, idempotency.noted_key'), '>', 0, 'an operator class is used');

# ---- a table that changes within the claim's own transaction ----

subtest 'the table stops being plain before COMMIT' => sub {
	add_database($node, 'fresh', 'public');
	$node->safe_psql('fresh', q{CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN RETURN NEW; END'});
	my $session = session($node, 'fresh');
	my $early = value('SHOW idempotency.store') eq 'sql';

	ask($session, 'BEGIN');
	is(outcome_in($session, 'changed'), 'execute', 'granted');
	ask($session, "CREATE TRIGGER tried $before EXECUTE FUNCTION keeps()");
	is(ask($session, 'COMMIT'), $early ? '' : '55000', 'refused at commit, where a claim is left to write');
	is(record_state($node, 'changed', 'fresh'), $early ? 'in_progress' : 'absent', 'with the claim');
	is_quiet('a changed table');
	$session->quit;
};

$node->stop;
done_testing();
