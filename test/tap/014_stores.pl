# idempotency.store: which store a table allows, noticed at once; one choice for the whole server,
# which a session keeps until it ends; sessions that still have the old choice after a reload do no
# harm.
use Idem;

# With the heap store a written row releases its key's lock; with the SQL store the lock stays. So
# the locks tell which store is at work.
my $store_at_work = q{
	CREATE FUNCTION store_at_work() RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		locks bigint;
	BEGIN
		PERFORM idem_once(gen_random_uuid()::text, 'stores');
		SELECT count(*) INTO locks FROM pg_locks
		 WHERE locktype = 'advisory' AND objsubid = 18756 AND pid = pg_backend_pid();
		RETURN CASE locks WHEN 0 THEN 'heap' WHEN 1 THEN 'sql' END;
	EXCEPTION WHEN feature_not_supported THEN
		RETURN 'refused';
	WHEN not_null_violation THEN
		RETURN 'sql, in vain';
	END $$};

my $auto = new_node('auto', 'idempotency.store' => 'auto');
my $heap = new_node('heap', 'idempotency.store' => 'heap');
my %node = (auto => $auto, heap => $heap);
my %session;
foreach my $choice (sort keys %node)
{
	$node{$choice}->safe_psql('postgres', $store_at_work);
	$session{$choice} = session($node{$choice});
}

# The effect of each choice in sessions that exist throughout.
sub at_work
{
	return join ' ', map { ask($session{$_}, 'SELECT store_at_work()') } qw(auto heap);
}

# Only the executor handles these, so they need the SQL store, and the choice "heap" is an error.
# Each is added and removed again.
my @obstacles = (
	[ 'a trigger',
		q{CREATE FUNCTION noticed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		  CREATE TRIGGER noticed BEFORE INSERT ON idempotency.record FOR EACH ROW EXECUTE FUNCTION noticed()},
		q{DROP TRIGGER noticed ON idempotency.record} ],
	# The server remembers a rule until its next check.
	[ 'a rule',
		q{CREATE RULE noticed AS ON DELETE TO idempotency.record DO ALSO NOTIFY deleted},
		q{DROP RULE noticed ON idempotency.record}, q{VACUUM idempotency.record} ],
	[ 'another constraint, but the same number of them',
		q{ALTER TABLE idempotency.record DROP CONSTRAINT record_valid,
		  ADD CONSTRAINT short CHECK (length(key) < 100)},
		q{ALTER TABLE idempotency.record DROP CONSTRAINT short} ],
	# The SQL store writes a row as soon as a claim is granted.
	[ 'a column that may not be null',
		q{TRUNCATE idempotency.record; ALTER TABLE idempotency.record ALTER COLUMN finished_at SET NOT NULL},
		q{ALTER TABLE idempotency.record ALTER COLUMN finished_at DROP NOT NULL} ],
	[ 'a unique index',
		q{CREATE UNIQUE INDEX one_key ON idempotency.record (key)}, q{DROP INDEX idempotency.one_key} ],
	[ 'an index on an expression',
		q{CREATE INDEX by_hour ON idempotency.record (date_trunc('hour', created_at AT TIME ZONE 'UTC'))},
		q{DROP INDEX idempotency.by_hour} ],
	[ 'a partial index',
		q{CREATE INDEX failed ON idempotency.record (scope) WHERE status = 'f'},
		q{DROP INDEX idempotency.failed} ],
	[ 'a child table',
		q{CREATE TABLE archive () INHERITS (idempotency.record)},
		q{DROP TABLE archive}, q{VACUUM ANALYZE idempotency.record} ],
	[ 'no log',
		q{ALTER TABLE idempotency.record SET UNLOGGED}, q{ALTER TABLE idempotency.record SET LOGGED} ]);

subtest 'the store that a table allows' => sub {
	is(at_work(), 'heap heap', 'as it is made');
	foreach (@obstacles)
	{
		my ($name, $do, @undo) = @$_;
		$_->safe_psql('postgres', $do) foreach $auto, $heap;
		like(at_work(), qr/^sql(, in vain)? refused$/, $name);
		foreach my $node ($auto, $heap)
		{
			$node->safe_psql('postgres', $_) foreach @undo;
		}
		is(at_work(), 'heap heap', '... and without it');
	}
	$_->safe_psql('postgres', 'CREATE INDEX by_creation ON idempotency.record (created_at)')
	  foreach $auto, $heap;
	is(at_work(), 'heap heap', 'an index on plain columns is no obstacle');

	# A dropped column stays in the layout of the rows, behind ours.
	$_->safe_psql('postgres', 'ALTER TABLE idempotency.record ADD COLUMN tenant text')
	  foreach $auto, $heap;
	is(at_work(), 'sql refused', 'a further column');
	$_->safe_psql('postgres', 'ALTER TABLE idempotency.record DROP COLUMN tenant')
	  foreach $auto, $heap;
	is(at_work(), 'heap heap', '... until it is dropped');

	# One of our columns that was dropped and added again comes after the others.
	$_->safe_psql('postgres', q{ALTER TABLE idempotency.record DROP COLUMN salt CASCADE;
		ALTER TABLE idempotency.record ADD COLUMN salt bytea})
	  foreach $auto, $heap;
	is(at_work(), 'sql refused', 'columns in another order');
	like(
		($heap->psql('postgres', q{SELECT idem_once('refused')}))[2],
		qr/the heap store cannot serve table.*DETAIL:  Its columns are not those of this version\./s,
		'the error says why');
	$_->safe_psql('postgres', 'DROP EXTENSION idempotency; CREATE EXTENSION idempotency')
	  foreach $auto, $heap;
	is(at_work(), 'heap heap', 'until the table is made anew');
};
$session{heap}->quit;
$heap->stop;

# set_store($choice): for connections made from now on.
sub set_store ($choice)
{
	$auto->safe_psql('postgres', "LOAD 'idempotency'; ALTER SYSTEM SET idempotency.store = $choice");
	$auto->reload;
	$auto->poll_query_until('postgres', "SELECT current_setting('idempotency.store') = '$choice'")
	  or die "the store is not $choice";
	return;
}

subtest 'one choice for the server' => sub {
	$auto->safe_psql('postgres', q{CREATE ROLE app LOGIN; SELECT idem_grant('app')});
	my $session = session($auto);
	ask($session, q{LOAD 'idempotency'});
	is(ask($session, $_), '55P02', "refused: $_") foreach 'SET idempotency.store = sql',
	  'SET LOCAL idempotency.store = sql', 'ALTER ROLE app SET idempotency.store = sql',
	  'ALTER DATABASE postgres SET idempotency.store = sql';
	like(ask($session, 'SET idempotency.store = redis'), qr/^(22023|55P02)$/, 'as is nonsense');
	$session->quit;

	# A setting made before the library was loaded does not count, nor does one that a client asks
	# for.
	$auto->safe_psql('postgres', 'ALTER ROLE app SET idempotency.store = sql');
	local $ENV{PGOPTIONS} = '-c idempotency.store=sql';
	foreach my $user ('app', $auto->safe_psql('postgres', 'SELECT current_user'))
	{
		my $asked = $auto->background_psql('postgres', on_error_stop => 0,
			extra_params => [ '-U', $user ]);
		is(ask($asked, 'SELECT store_at_work()'), 'heap', "whatever $user asks for");
		$asked->quit;
	}
};

subtest 'a session keeps its own' => sub {
	is(ask($session{auto}, 'SELECT store_at_work()'), 'heap', 'a session that works');
	my $idle = session($auto);
	set_store('sql');
	my $new = session($auto);
	is(ask($new, 'SELECT store_at_work()'), 'sql', 'after a reload a new one has the new store');
	is(ask($idle, 'SELECT store_at_work()'), 'sql', '... and one that had not used any');
	is(ask($session{auto}, 'SHOW idempotency.store'), 'sql', 'the old one knows');
	is(ask($session{auto}, 'SELECT store_at_work()'), 'heap', '... and keeps its own');
	set_store('auto');
	is(ask($new, 'SELECT store_at_work()'), 'sql', 'as does the new one');
	$_->quit foreach $idle, $new;
};

# Until old connections have ended both stores are in use. A session with the SQL store does not see
# a row that the heap store has written and not committed, and whose lock it has released. It meets
# that row when it writes its own.
subtest 'both stores at the same time' => sub {
	my $holder = $session{auto};
	set_store('sql');
	my $other = session($auto);
	my $other_pid = pid_of($other);
	is(ask($other, 'SELECT store_at_work()'), 'sql', 'the other uses the SQL store');

	ask($holder, 'BEGIN');
	is(outcome_in($holder, 'new'), 'execute', 'new: granted');
	ask($holder, completion('new'));
	is(outcome_in($other, 'new'), 'in_progress', '... and not to the other as well');
	ask($holder, 'COMMIT');
	is(outcome_in($other, 'new'), 'replay', '... which is answered then');

	my $late = (claim_in($holder, 'late', lease => '1 ms'))[2];
	wait_until { lease_is_over('late') } 'the end of a lease';
	ask($holder, 'BEGIN');
	is(ask($holder, completion('late', $late)), 't', 'late: completed after its lease');
	is(outcome_in($other, 'late'), 'in_progress', '... and not taken over by the other');
	ask($holder, 'COMMIT');
	is(outcome_in($other, 'late'), 'replay', '... which is answered then');

	foreach my $function ('idem_complete', 'idem_release')
	{
		my $token = (claim_in($holder, $function, lease => '1 minute'))[2];
		ask($holder, 'BEGIN');
		is(ask($holder, completion($function, $token)), 't', "$function: completed");
		ask_later($other, "SELECT $function('$function', token => $token)");
		wait_until_blocked($auto, $other_pid);
		ask($holder, 'COMMIT');
		is(ask($other), '40001', '... and refused to the other');
		is(outcome_in($other, $function), 'replay', '... which is answered then');
	}
	$other->quit;
};

sub lease_is_over ($key)
{
	return $auto->safe_psql('postgres', 'SELECT lease_until < clock_timestamp()'
		  . " FROM idempotency.record WHERE key = '$key'") eq 't';
}

$session{auto}->quit;
$auto->stop;
done_testing();
