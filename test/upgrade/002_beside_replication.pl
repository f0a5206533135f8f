# pg_upgrade of a publisher and of its subscriber, with the tables of the business and of the
# records in one publication: nothing is lost or duplicated, and a repeat of an answered request
# does nothing.
use Idem;
use Sweeping;
use Upgrade;

plan skip_all => 'these two servers cannot even upgrade a database without the extension'
  unless servers_fit();

my %conf = (
	shared_preload_libraries => 'idempotency',
	'idempotency.cleanup_interval' => '1s',
	# At this level the server logs when a worker is started.
	log_min_messages => 'debug1',
	wal_level => 'logical',
	max_wal_senders => 10,
	max_replication_slots => 10,
	wal_retrieve_retry_interval => '100ms');
my ($publisher, $subscriber) = map { older_node("older_$_", %conf) } qw(publisher subscriber);
# Before that version pg_upgrade keeps neither the slot of a publisher nor a subscription's state of
# its tables: both have to be restored, while no session writes.
my $kept = $publisher->pg_version >= 17;

# The payment and its record, in one transaction. Returns the outcome.
sub pay
{
	my ($key) = @_;
	my $session = session($publisher);

	ask($session, 'BEGIN');
	my $outcome = outcome_in($session, $key, ttl => '1 day');
	if ($outcome eq 'execute')
	{
		ask($session, "INSERT INTO payment (key) VALUES ('$key')");
		ask($session, completion($key));
	}
	ask($session, 'COMMIT');
	$session->quit;
	return $outcome;
}

sub payments
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
		SELECT string_agg(key, ' ' ORDER BY id) FROM payment
		UNION ALL
		SELECT string_agg(r::text, chr(10) ORDER BY key) FROM idempotency.record AS r});
}

sub arrives
{
	my ($why) = @_;

	# Up to the last insert: a sweeper's commit does not wait for the disk, so it may not be written
	# yet.
	$publisher->wait_for_catchup('payments', 'replay', $publisher->lsn('insert'));
	is(payments($subscriber), payments($publisher), $why);
	return;
}

sub subscription
{
	my ($action) = @_;

	$subscriber->safe_psql('postgres', "ALTER SUBSCRIPTION payments $action");
	return;
}

# ---- both of the older version ----

$_->start foreach $publisher, $subscriber;
$_->safe_psql('postgres', q{
	CREATE EXTENSION idempotency;
	CREATE TABLE payment (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text UNIQUE)})
  foreach $publisher, $subscriber;
$publisher->safe_psql('postgres',
	'CREATE PUBLICATION payments FOR TABLE payment, idempotency.record');
$subscriber->safe_psql('postgres', sprintf q{
	CREATE SUBSCRIPTION payments CONNECTION '%s' PUBLICATION payments},
	$publisher->connstr . ' dbname=postgres');
$subscriber->wait_for_subscription_sync($publisher, 'payments');
is(pay('before'), 'execute', 'a payment');
is(begin_claim($publisher, 'leased', lease => '1 day', ttl => '1 day')->{outcome}, 'execute',
	'a leased claim');
add_expired($publisher, 10);
is_swept($publisher, 'postgres', 'what has expired is swept');
arrives('it arrives');

# ---- the publisher ----

# A stopping server ends the launcher before its WAL senders, so everything is sent: pg_upgrade
# refuses a slot with unsent changes. It starts the old server once more, and refuses a slot that the
# subscriber uses then.
$publisher->stop;
subscription('DISABLE');
my $publisher_then = $publisher;
$publisher = newer_node('newer_publisher', %conf);
ok(pg_upgrade($publisher_then, $publisher), 'the publisher is upgraded');
$publisher->append_conf('postgresql.conf', q{idempotency.cleanup_interval = '0'});
$publisher->start;
$publisher->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('payments', 'pgoutput')})
  unless $kept;
is($publisher->safe_psql('postgres', 'SELECT slot_name, plugin FROM pg_replication_slots'),
	'payments|pgoutput', 'its slot is there');
subscription("CONNECTION '" . $publisher->connstr . ' dbname=postgres' . q{'});
subscription('ENABLE');
is(pay('before'), 'replay', 'what was paid is not paid again');
is(begin_claim($publisher, 'leased')->{outcome}, 'in_progress', 'a lease runs on');
is(pay('between'), 'execute', 'what was not is paid');
arrives('it arrives at the older subscriber');

# ---- the subscriber ----

$subscriber->stop;
is(pay('meanwhile'), 'execute', 'a payment while it is away');
my $subscriber_then = $subscriber;
$subscriber = newer_node('newer_subscriber', %conf);
ok(pg_upgrade($subscriber_then, $subscriber), 'the subscriber is upgraded');
$subscriber->start;
unless ($kept)
{
	subscription('ENABLE');
	subscription('REFRESH PUBLICATION WITH (copy_data = false)');
}
arrives('what came meanwhile arrives');
add_expired($publisher, 10);
arrives('expired records arrive');
$subscriber->restart;
wait_for_visits($subscriber, 'postgres', 1);
arrives('the sweeper over there leaves them alone');
configure($publisher, 'idempotency.cleanup_interval' => '1s');
is_swept($publisher, 'postgres', 'the one here goes on');
is(pay($_), 'replay', "$_ is not paid again") foreach qw(before between meanwhile);
is(pay('after'), 'execute', 'a payment');
arrives('it arrives');
is((split /\n/, payments($subscriber))[0], 'before between meanwhile after', 'each once, in order');

$_->stop foreach $subscriber, $publisher;
done_testing();
